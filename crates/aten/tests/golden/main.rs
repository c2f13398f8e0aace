//! The programs that calls are lowered to, as text. A change of a row shows as a difference in a `.mlir` file beside this one.
//!
//! `UPDATE_EXPECT=1 cargo test --package aten --test golden` writes the files anew.

mod case;
mod graph;

use aten::DType::{BF16, Bool, C64, F16, F32, F64, I32, I64, U8};
use aten::{Graph, GraphArg, Node, Target};
use case::Case;
use expect_test::expect_file;
use graph::{bool, bounded, bounded_graph, dims, graph, int, ints, known, node, value, values};

/// Compares what the cases are lowered to with the text in a file.
fn check(name: &str, cases: Vec<Case>) {
    let texts: Vec<String> = cases.into_iter().map(Case::text).collect();
    expect_file![format!("{name}.mlir")].assert_eq(&texts.join("\n"));
}

#[test]
fn elementwise() {
    check(
        "elementwise",
        vec![
            Case::row("add.Tensor").tensor("self", F32, &[2, 3]).tensor("other", I32, &[3]).baked("alpha", 1),
            Case::row("add.Tensor").tensor("self", BF16, &[4]).tensor("other", F32, &[]).number("alpha", F64),
            Case::row("div.Tensor").tensor("self", I64, &[4]).tensor("other", I64, &[4]),
            Case::row("div.Tensor_mode")
                .tensor("self", I32, &[4])
                .tensor("other", I32, &[4])
                .str("rounding_mode", "floor"),
            Case::row("pow.Tensor_Scalar").tensor("self", F32, &[4]).baked("exponent", 3),
            Case::row("clamp").tensor("self", U8, &[4]).number("min", I64).number("max", I64),
            Case::row("eq.Scalar").tensor("self", F16, &[4]).number("other", F64),
            Case::row("where.self").tensor("condition", Bool, &[2, 1]).tensor("self", F32, &[2, 3]).tensor(
                "other",
                F32,
                &[],
            ),
            Case::row("gelu").tensor("self", BF16, &[2, 3]).str("approximate", "tanh"),
            Case::row("gelu").tensor("self", I32, &[2, 3]).str("approximate", "none"),
            Case::row("sigmoid").tensor("self", C64, &[3]),
            Case::row("bitwise_and.Tensor").tensor("self", I64, &[4]).tensor("other", Bool, &[4]),
            Case::row("special_laguerre_polynomial_l").tensor("x", F64, &[4]).baked("n", 2),
            Case::row("fake_quantize_per_tensor_affine_cachemask")
                .tensor("self", F32, &[4])
                .number("scale", F64)
                .int("zero_point", 0)
                .int("quant_min", -128)
                .int("quant_max", 127),
        ],
    );
}

#[test]
fn reduce() {
    check(
        "reduce",
        vec![
            Case::row("sum.dim_IntList").tensor("self", F32, &[2, 3]).ints("dim", &[1]).bool("keepdim", true),
            Case::row("sum.dim_IntList").tensor("self", I32, &[2, 3]).ints("dim", &[]).bool("keepdim", false),
            Case::row("mean.dim").tensor("self", BF16, &[2, 3]).ints("dim", &[0]).bool("keepdim", false),
            Case::row("var.correction")
                .tensor("self", F32, &[2, 3])
                .ints("dim", &[1])
                .baked("correction", 1)
                .bool("keepdim", false),
            Case::row("amax").tensor("self", F32, &[2, 3]).ints("dim", &[1]).bool("keepdim", false),
            Case::row("amax").tensor("self", I64, &[2, 3]).ints("dim", &[1]).bool("keepdim", false),
            Case::row("argmax").tensor("self", F32, &[2, 3]).int("dim", 1).bool("keepdim", false),
            Case::row("cumsum").tensor("self", F32, &[2, 3]).int("dim", 1),
            Case::row("sort.stable")
                .tensor("self", F32, &[2, 3])
                .bool("stable", true)
                .int("dim", -1)
                .bool("descending", false),
            Case::row("topk")
                .tensor("self", I32, &[8])
                .int("k", 2)
                .int("dim", -1)
                .bool("largest", true)
                .bool("sorted", true),
            Case::row("any.dim").tensor("self", F32, &[2, 3]).int("dim", 0).bool("keepdim", false),
            Case::row("sum.dim_IntList").tensor("self", F32, &[2, 3]).ints("dim", &[2]).bool("keepdim", false),
            Case::row("linalg_vector_norm")
                .tensor("self", F16, &[2, 3])
                .baked("ord", 2)
                .ints("dim", &[1])
                .bool("keepdim", false),
        ],
    );
}

#[test]
fn index() {
    check(
        "index",
        vec![
            Case::row("index.Tensor").tensor("self", F32, &[4, 5]).tensors("indices", &[(I64, &[3]), (I64, &[2, 1])]),
            Case::row("index.Tensor").tensor("self", F32, &[4]).tensors("indices", &[(Bool, &[4])]),
            Case::row("index_put")
                .tensor("self", BF16, &[4, 5])
                .tensors("indices", &[(I64, &[3])])
                .tensor("values", BF16, &[3, 5])
                .bool("accumulate", true),
            Case::row("gather").tensor("self", F32, &[4, 5]).int("dim", 1).tensor("index", I64, &[4, 2]),
            Case::row("index_select").tensor("self", I64, &[4, 5]).int("dim", 0).tensor("index", I32, &[2]),
            Case::row("scatter_add").tensor("self", F32, &[4]).int("dim", 0).tensor("index", I64, &[6]).tensor(
                "src",
                F32,
                &[6],
            ),
            Case::row("scatter.value")
                .tensor("self", U8, &[4])
                .int("dim", 0)
                .tensor("index", I64, &[2])
                .number("value", I64),
            Case::row("nonzero").tensor("self", F32, &[2, 3]),
            Case::row("masked_select").tensor("self", F32, &[2, 3]).tensor("mask", Bool, &[3]),
        ],
    );
}

#[test]
fn linalg() {
    check(
        "linalg",
        vec![
            Case::row("mm").tensor("self", F32, &[2, 3]).tensor("mat2", F32, &[3, 4]),
            Case::row("mm").tensor("self", I64, &[2, 3]).tensor("mat2", I64, &[3, 4]),
            Case::row("bmm").tensor("self", BF16, &[2, 3, 4]).tensor("mat2", BF16, &[2, 4, 5]),
            Case::row("addmm")
                .tensor("self", F32, &[4])
                .tensor("mat1", F32, &[2, 3])
                .tensor("mat2", F32, &[3, 4])
                .baked("beta", 1)
                .number("alpha", F64),
            Case::row("addmm")
                .tensor("self", F32, &[5])
                .tensor("mat1", F32, &[2, 3])
                .over(F32, &[5, 3])
                .view("mat2", 2, &[3, 5], &[1, 3], 0)
                .baked("beta", 1)
                .baked("alpha", 1),
            Case::row("bmm").tensor("self", BF16, &[2, 1, 4]).over(BF16, &[2, 3, 4]).view(
                "mat2",
                1,
                &[2, 4, 3],
                &[12, 1, 4],
                0,
            ),
            // The gradient of a linear layer's weight, of [2, 3, 4].
            Case::row("mm")
                .over(BF16, &[2, 3, 4])
                .view("self", 0, &[4, 6], &[1, 4], 0)
                .over(BF16, &[2, 3, 5])
                .view("mat2", 1, &[6, 5], &[5, 1], 0)
                .only_for(Target::Tpu),
            // A linear layer whose weight is stored transposed.
            Case::graph(
                "a weight that is transposed twice",
                graph(
                    2,
                    vec![
                        node("t", &[("self", value(1))]),
                        node("t", &[("self", value(2))]),
                        node("mm", &[("self", value(0)), ("mat2", value(3))]),
                    ],
                ),
            )
            .tensor("x", F32, &[2, 3])
            .tensor("weight", F32, &[3, 4]),
            // One query beside keys whose heads were moved to the front.
            Case::graph(
                "a row by matrices whose batch is permuted, too",
                graph(
                    2,
                    vec![
                        node("permute", &[("self", value(1)), ("dims", ints(&[1, 0, 2]))]),
                        node("transpose.int", &[("self", value(2)), ("dim0", int(1)), ("dim1", int(2))]),
                        node("bmm", &[("self", value(0)), ("mat2", value(3))]),
                    ],
                ),
            )
            .tensor("query", F32, &[2, 1, 4])
            .tensor("keys", F32, &[3, 2, 4]),
            Case::row("linalg_cholesky_ex")
                .tensor("self", F32, &[3, 3])
                .bool("upper", false)
                .bool("check_errors", false),
            Case::row("linalg_solve_triangular")
                .tensor("self", F64, &[3, 3])
                .tensor("B", F64, &[3, 2])
                .bool("upper", true)
                .bool("left", true)
                .bool("unitriangular", false),
        ],
    );
}

#[test]
fn nn() {
    let convolution = |dtype| {
        Case::row("convolution")
            .tensor("input", dtype, &[1, 4, 8, 8])
            .tensor("weight", dtype, &[6, 2, 3, 3])
            .tensor("bias", dtype, &[6])
            .ints("stride", &[2, 2])
            .ints("padding", &[1, 1])
            .ints("dilation", &[1, 1])
            .bool("transposed", false)
            .ints("output_padding", &[0, 0])
            .int("groups", 2)
    };
    check(
        "nn",
        vec![
            convolution(F32),
            convolution(I64),
            Case::row("max_pool2d_with_indices")
                .tensor("self", F32, &[1, 1, 4, 4])
                .ints("kernel_size", &[2, 2])
                .ints("stride", &[2, 2])
                .ints("padding", &[0, 0])
                .ints("dilation", &[1, 1])
                .bool("ceil_mode", false),
            Case::row("native_layer_norm")
                .tensor("input", BF16, &[2, 8])
                .ints("normalized_shape", &[8])
                .tensor("weight", BF16, &[8])
                .tensor("bias", BF16, &[8])
                .number("eps", F64),
            Case::row("_softmax").tensor("self", F16, &[2, 3]).int("dim", -1).bool("half_to_float", false),
            Case::row("nll_loss_forward")
                .tensor("self", F32, &[2, 3])
                .tensor("target", I64, &[2])
                .tensor("weight", F32, &[3])
                .int("reduction", 1)
                .int("ignore_index", -100),
            Case::row("mse_loss").tensor("self", F32, &[2, 3]).tensor("target", F32, &[2, 3]).int("reduction", 1),
            Case::row("embedding")
                .tensor("weight", F32, &[10, 4])
                .tensor("indices", I64, &[2, 3])
                .int("padding_idx", -1)
                .bool("scale_grad_by_freq", false)
                .bool("sparse", false),
            Case::row("reflection_pad1d").tensor("self", F32, &[2, 5]).ints("padding", &[1, 2]),
        ],
    );
}

#[test]
fn random() {
    check(
        "random",
        vec![
            Case::row("uniform").tensor("self", F32, &[2, 3]).number("from", F64).number("to", F64),
            Case::row("normal_functional").tensor("self", BF16, &[5]).number("mean", F64).number("std", F64),
            Case::row("native_dropout").tensor("input", F32, &[2, 3]).number("p", F64).bool("train", true),
            Case::row("random.to").tensor("self", I64, &[4]).int("to", 10),
        ],
    );
}

#[test]
fn shape() {
    check(
        "shape",
        vec![
            Case::row("cat").tensors("tensors", &[(F32, &[2, 3]), (I32, &[1, 3])]).int("dim", 0),
            Case::row("_to_copy").tensor("self", F32, &[2, 3]).dtype("dtype", BF16),
            Case::row("arange.start_step").baked("start", 0).baked("end", 10).baked("step", 2).result(I64, &[5]),
            Case::row("full").ints("size", &[2, 3]).number("fill_value", F64).result(F32, &[2, 3]),
            Case::row("tril").tensor("self", F32, &[3, 3]).int("diagonal", 0),
            Case::row("flip").tensor("self", I64, &[2, 3]).ints("dims", &[1]),
            Case::row("clone").tensor("self", F32, &[2, 3]).strided_result(F32, &[2, 3], &[1, 2]),
        ],
    );
}

/// Arguments that are views, and results that are written through views.
#[test]
fn views() {
    check(
        "views",
        vec![
            // A column of a matrix, which is written where it lies.
            Case::row("add.Tensor")
                .over(F32, &[4, 6])
                .view("self", 0, &[4], &[6], 2)
                .baked("other", 1)
                .baked("alpha", 1)
                .writes(&["self"]),
            // A part whose offset is an input of the program.
            Case::row("mul.Tensor")
                .over(F32, &[24])
                .view_with("self", 0, &[6], &[1], 6, |spec| spec.offset_input = Some(0))
                .baked("other", 2)
                .writes(&["self"])
                .only_for(Target::Cpu),
            // The transpose of a storage, and an out= argument that is all of its storage.
            Case::row("exp")
                .over(F32, &[2, 3])
                .view("self", 0, &[3, 2], &[1, 3], 0)
                .tensor("out", F32, &[3, 2])
                .writes(&["out"]),
            // A conjugate view.
            Case::row("real").over(C64, &[3]).view_with("self", 0, &[3], &[1], 0, |spec| spec.is_conj = true),
            Case::row("clone").over(C64, &[3]).view_with("self", 0, &[3], &[1], 0, |spec| spec.is_conj = true),
            // Windows that overlap.
            Case::row("clone").over(F32, &[6]).view("self", 0, &[5, 2], &[1, 1], 0),
            // A view of the bits as another element type.
            Case::row("clone").over(F32, &[4]).view_with("self", 0, &[4], &[1], 0, |spec| spec.dtype = I32),
            // Two views of one storage, written one after the other.
            Case::row("_foreach_neg")
                .over(F32, &[4, 6])
                .views("self", 0, &[(&[4, 3], &[6, 1], 0), (&[4, 3], &[6, 1], 3)])
                .writes(&["self"]),
        ],
    );
}

/// Rows that have no folder, and rows that others follow from.
#[test]
fn others() {
    check(
        "others",
        vec![
            Case::row("_fft_c2c")
                .tensor("self", C64, &[8])
                .ints("dim", &[0])
                .int("normalization", 0)
                .bool("forward", true),
            Case::row("_fft_r2c")
                .tensor("self", F64, &[8])
                .ints("dim", &[0])
                .int("normalization", 0)
                .bool("onesided", true),
            Case::row("_fused_sgd_")
                .tensors("self", &[(F32, &[3])])
                .tensors("grads", &[(F32, &[3])])
                .tensors("momentum_buffer_list", &[(F32, &[3])])
                .number("weight_decay", F64)
                .number("momentum", F64)
                .number("lr", F64)
                .number("dampening", F64)
                .bool("nesterov", false)
                .bool("maximize", false)
                .bool("is_first_step", false)
                .writes(&["self", "grads", "momentum_buffer_list"]),
            Case::row("_foreach_add.Scalar").tensors("self", &[(F32, &[2]), (I32, &[3])]).number("scalar", F64),
            Case::row("_assert_async.msg").tensor("self", Bool, &[]).str("assert_msg", "x must be positive"),
        ],
    );
}

#[test]
fn collectives() {
    let over = |operator: &'static str, groups: &'static [i64], size: i64| {
        Case::row(operator).tensor("input", F32, &[8, 3]).ints("groups", groups).int("group_size", size)
    };
    check(
        "collectives",
        vec![
            over("torchtpu::all_reduce", &[], 4).str("reduce_op", "avg"),
            over("torchtpu::reduce_scatter", &[0, 2, 1, 3], 2).str("reduce_op", "max"),
            Case::row("torchtpu::reduce_scatter")
                .tensor("input", F32, &[8, 64])
                .ints("groups", &[])
                .int("group_size", 4)
                .str("reduce_op", "sum"),
            over("torchtpu::all_gather", &[0, 1, 2, 3], 2),
            over("torchtpu::all_to_all", &[], 4),
            Case::row("torchtpu::permute_replicas").tensor("input", F32, &[3]).ints("pairs", &[0, 1, 1, 0]),
        ],
    );
}

#[test]
fn graphs() {
    let sum = node("sum.dim_IntList", &[("self", value(1)), ("dim", ints(&[1])), ("keepdim", bool(true))]);
    let branch = |operator: &str| GraphArg::Graph(Box::new(graph(1, vec![node(operator, &[("self", value(0))])])));
    let cond =
        [("pred", value(0)), ("true_fn", branch("sin")), ("false_fn", branch("cos")), ("operands", values(&[1]))];
    let below = graph(1, vec![node("lt.Scalar", &[("self", value(0)), ("other", GraphArg::Scalar(100.into()))])]);
    let doubled = graph(1, vec![node("mul.Tensor", &[("self", value(0)), ("other", GraphArg::Scalar(2.into()))])]);
    let while_loop = [
        ("carried_inputs", values(&[0])),
        ("additional_inputs", values(&[])),
        ("cond_fn", GraphArg::Graph(Box::new(below))),
        ("body_fn", GraphArg::Graph(Box::new(doubled))),
    ];
    let one = |inputs: usize, node: Node| -> Graph { graph(inputs, vec![node]) };
    check(
        "graphs",
        vec![
            Case::graph(
                "a decomposition",
                graph(
                    1,
                    vec![
                        node("exp", &[("self", value(0))]),
                        sum,
                        node("div.Tensor", &[("self", value(1)), ("other", value(2))]),
                    ],
                ),
            )
            .tensor("self", F32, &[2, 3]),
            Case::graph("a node without a row", one(1, node("unheard_of", &[("self", value(0))]))).tensor(
                "self",
                F32,
                &[2],
            ),
            Case::graph("higher_order::cond", one(2, node("higher_order::cond", &cond)))
                .tensor("pred", Bool, &[])
                .tensor("x", F32, &[2]),
            Case::graph("higher_order::while_loop", one(1, node("higher_order::while_loop", &while_loop))).tensor(
                "x",
                I64,
                &[],
            ),
        ],
    );
}

/// Graphs in which one size changes from call to call, up to 8, and in some of them another, up to 4.
#[test]
fn bounded_dimensions() {
    let (two, one) = ([known(2), bounded(8, &[0])], [bounded(8, &[0])]);
    let batch = [bounded(4, &[1]), bounded(8, &[0]), known(3)];
    let merged = [bounded(32, &[0, 1]), known(3)];
    let cat = [known(2), bounded(16, &[0])];
    let split = [known(4), bounded(8, &[0])];
    check(
        "bounded",
        vec![
            bounded_graph(
                "a sum over a bounded dimension",
                &[&two],
                &[8],
                vec![(
                    node("sum.dim_IntList", &[("self", value(0)), ("dim", ints(&[1])), ("keepdim", bool(false))]),
                    &[known(2)],
                )],
            ),
            bounded_graph(
                "a mean over a bounded dimension",
                &[&two],
                &[8],
                vec![(
                    node("mean.dim", &[("self", value(0)), ("dim", ints(&[1])), ("keepdim", bool(false))]),
                    &[known(2)],
                )],
            ),
            bounded_graph(
                "a softmax along a bounded dimension",
                &[&two],
                &[8],
                vec![(node("_softmax", &[("self", value(0)), ("dim", int(1)), ("half_to_float", bool(false))]), &two)],
            ),
            bounded_graph(
                "a product that contracts a bounded dimension",
                &[&two, &[bounded(8, &[0]), known(5)]],
                &[8],
                vec![(node("mm", &[("self", value(0)), ("mat2", value(1))]), &[known(2), known(5)])],
            ),
            bounded_graph(
                "two tensors joined along a bounded dimension",
                &[&two, &two],
                &[8],
                vec![(node("cat", &[("tensors", values(&[0, 1])), ("dim", int(1))]), &cat)],
            ),
            bounded_graph(
                "two bounded dimensions merged, and a sum over both",
                &[&batch],
                &[8, 4],
                vec![
                    (node("view", &[("self", value(0)), ("size", dims(&merged))]), &merged),
                    (
                        node("sum.dim_IntList", &[("self", value(3)), ("dim", ints(&[0])), ("keepdim", bool(false))]),
                        &[known(3)],
                    ),
                ],
            ),
            bounded_graph(
                "a flip of a bounded dimension",
                &[&one],
                &[8],
                vec![(node("flip", &[("self", value(0)), ("dims", ints(&[0]))]), &one)],
            ),
            bounded_graph(
                "a reshape that cuts through a bounded dimension",
                &[&cat],
                &[8],
                vec![(node("view", &[("self", value(0)), ("size", dims(&split))]), &split)],
            )
            .only_for(Target::Cpu),
            bounded_graph(
                "a row that does not take bounded dimensions",
                &[&two],
                &[8],
                vec![(node("linalg_cholesky_ex", &[("self", value(0))]), &two)],
            ),
        ],
    );
}
