//! Lowers the nodes of a graph, each by its row.

use stablehlo::{DType, Extent, Refusal, Value};

use crate::call::Call;
use crate::common::bounded_views;
use crate::cx::{Arg, Cx, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Graph, GraphArg};
use crate::spec::{ArgSpec, Dim, ScalarSpec};
use crate::table;

pub(crate) fn lower_graph<'b>(graph: &'b Graph, call: &Call, cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    // Tensors become values. Numbers stay arguments, because type promotion treats them as numbers.
    let mut values: Vec<Option<Arg<'b>>> = Vec::new();
    for ((_, arg), index) in cx.args.iter().zip(0..) {
        // An out= argument is written and never read, so it is not an input of the graph.
        let only_written = call.mutated.contains(&index) && !graph_reads(graph, call, index);
        if !only_written {
            collect_inputs(arg, cx, &mut values);
        }
    }
    values.truncate(graph.inputs);
    if let Some(bounds) = &graph.bounds {
        for &(input, capacity) in &bounds.sizes {
            if let Some(Some(Arg::Scalar(scalar))) = values.get(input) {
                cx.b().add_size(cx.scalar_value(scalar, DType::I64), capacity);
            }
        }
        for (input, extents) in &bounds.inputs {
            if let Some(Some(Arg::Value(value))) = values.get_mut(*input) {
                *value = value.with_extents(extents.clone());
            }
        }
    }
    lower_nodes(graph, values, cx)
}

/// Adds the nodes of a graph to the function being built and returns the graph's results.
pub(crate) fn lower_nodes<'b>(
    graph: &'b Graph,
    mut values: Vec<Option<Arg<'b>>>,
    cx: &Cx<'b>,
) -> Result<Vec<Value<'b>>> {
    for (index, node) in graph.nodes.iter().enumerate() {
        let row = table::find_in_graph(&node.operator)
            .ok_or_else(|| Error::not_implemented(format!("{} has no lowering", node.operator)))?;
        let args = node
            .args
            .iter()
            .map(|(name, arg)| Ok((name.as_str(), graph_arg(arg, &values)?)))
            .collect::<Result<Vec<_>>>()?;
        let mut node_cx = cx.with(args);
        node_cx.operator = &node.operator;
        let expected = graph.bounds.as_ref().and_then(|bounds| bounds.results.get(index)?.as_deref());
        node_cx.result_dims = expected.unwrap_or_default();
        let makes_bounded = expected.into_iter().flatten().flatten().flatten().any(|dim| !dim.sizes.is_empty());
        let bounded = makes_bounded || node_cx.args.iter().any(|(_, arg)| is_bounded(arg));
        if bounded && !row.bounded {
            return Err(Error::not_implemented(format!("{} does not support bounded dimensions", node.operator)));
        }
        let before = cx.b().refusal();
        let mut lowered = row.lower(&node_cx);
        if lowered.is_err()
            && matches!(cx.b().refusal(), Some(Refusal::Bounded(_)))
            && let Some(args) = bounded_views::compacted(&node_cx)
        {
            cx.b().reset_refusal(before);
            node_cx.args = args;
            lowered = row.lower(&node_cx);
        }
        let mut results = lowered?;
        if bounded {
            check_bounds(&node.operator, &mut results, expected)?;
        }
        for i in 0..node.results {
            values.push(results.get(i).copied().map(Arg::Value));
        }
    }
    let value_at = |&k: &usize| match values.get(k) {
        Some(Some(Arg::Value(value))) => Ok(*value),
        Some(Some(Arg::Scalar(scalar))) => Ok(cx.scalar_value(scalar, scalar.spec.dtype)),
        _ => Err(Error::runtime("a graph has no such value")),
    };
    graph.outputs.iter().flatten().map(value_at).collect()
}

fn is_bounded(arg: &Arg<'_>) -> bool {
    match arg {
        Arg::Plain(ArgSpec::Dim(_) | ArgSpec::Dims(_)) => true,
        Arg::Value(value) => value.is_bounded(),
        Arg::List(items) => items.iter().any(is_bounded),
        _ => false,
    }
}

/// Compares the valid lengths of each result with the sizes that PyTorch traced. A result without bounded dimensions,
/// such as zeros, gets the valid lengths of PyTorch's sizes.
fn check_bounds(operator: &str, results: &mut [Value<'_>], expected: Option<&[Option<Vec<Dim>>]>) -> Result<()> {
    for (i, result) in results.iter_mut().enumerate() {
        let Some(Some(dims)) = expected.map(|expected| expected.get(i).and_then(Option::as_ref)) else { continue };
        let wrong = || {
            let expected = Dim::capacities(dims);
            Error::not_implemented(format!("{operator} gives another shape than PyTorch, {result:?}, not {expected:?}"))
        };
        if dims.len() != result.rank() {
            return Err(wrong());
        }
        let mut extents = result.extents();
        for (axis, dim) in dims.iter().enumerate() {
            if extents[axis].is_whole() && dim.sizes.len() == 1 {
                extents[axis] = dim.extent(|size| result.builder().capacity(size));
            }
            if dim.sizes.is_empty() {
                // PyTorch knows that the size equals the capacity, for example after broadcasting to a known size.
                extents[axis] = Extent::default();
            }
            if extents[axis].sizes() != dim.sizes || result.dim(axis) != dim.capacity {
                return Err(wrong());
            }
        }
        if extents != result.extents() {
            *result = result.without_extents().with_extents(extents);
        }
    }
    Ok(())
}

/// Whether the graph reads a mutated argument. In-place forms do, `out=` forms do not.
fn graph_reads(graph: &Graph, call: &Call, index: usize) -> bool {
    let count = |arg: &ArgSpec| match arg {
        ArgSpec::Tensor(_) => 1,
        ArgSpec::List(items) => items.iter().filter(|i| !matches!(i, ArgSpec::None)).count(),
        ArgSpec::Scalar(scalar) if is_input(scalar) => 1,
        _ => 0,
    };
    let before: usize = call.args[..index].iter().map(count).sum();
    before < graph.inputs
}

/// Whether a number is an input of the graph: the schema has a Tensor in its position, or the number is not baked in.
fn is_input(scalar: &ScalarSpec) -> bool {
    scalar.is_tensor || scalar.baked.is_none()
}

fn collect_inputs<'b>(arg: &Arg<'b>, cx: &Cx<'b>, values: &mut Vec<Option<Arg<'b>>>) {
    match arg {
        Arg::Tensor(spec) => values.push(Some(Arg::Value(cx.inputs.read(spec)))),
        Arg::Scalar(scalar) if is_input(&scalar.spec) => values.push(Some(arg.clone())),
        Arg::List(items) => items.iter().for_each(|item| collect_inputs(item, cx, values)),
        _ => {}
    }
}

fn graph_arg<'b>(arg: &'b GraphArg, values: &[Option<Arg<'b>>]) -> Result<Arg<'b>> {
    let at = |k: usize| {
        values.get(k).cloned().flatten().ok_or_else(|| Error::runtime("a graph uses a value it does not have"))
    };
    let scalar = |number: stablehlo::Number| {
        use stablehlo::Number::*;
        let dtype = match number {
            Bool(_) => DType::Bool,
            Int(_) => DType::I64,
            Unsigned(_) => DType::U64,
            Float(_) => DType::F64,
            Complex(..) => DType::C128,
        };
        Arg::Scalar(Scalar {
            spec: ScalarSpec { dtype, wrapped: true, is_tensor: false, baked: Some(number) },
            index: 0,
        })
    };
    Ok(match arg {
        GraphArg::Value(k) => at(*k)?,
        GraphArg::Values(items) => {
            Arg::List(items.iter().map(|item| item.map_or(Ok(Arg::None), at)).collect::<Result<Vec<_>>>()?)
        }
        GraphArg::Scalar(number) => scalar(*number),
        GraphArg::Graph(graph) => Arg::Graph(graph),
        GraphArg::Scalars(numbers) => Arg::List(numbers.iter().map(|&n| scalar(n)).collect()),
        GraphArg::Plain(ArgSpec::None) => Arg::None,
        GraphArg::Plain(plain) => Arg::Plain(plain.clone()),
    })
}
