//! Matrix products.
//!
//! Products of 16-bit floats accumulate in float32, as in PyTorch and in the hardware's matrix units.

use std::f64::consts::FRAC_1_SQRT_2;

use stablehlo::{DType, DTypes, DotDims, Target, Value};

use crate::cx::Cx;
use crate::error::{Error, Result, not_implemented_for, scalar_type_name};
use crate::number_check::c_name;
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["mm", "mm.dtype"], |cx| rounded(cx, factors(cx, "self", "mat2", |a, b| alone(cx, a, b))?)),
    one(&["bmm", "bmm.dtype"], |cx| rounded(cx, factors(cx, "self", "mat2", |a, b| alone(cx, a, b))?)),
    one(&["mv"], |cx| rounded(cx, factors(cx, "self", "vec", mv)?)),
    one(&["dot"], |cx| rounded(cx, factors(cx, "self", "tensor", dot)?)),
    one(&["vdot"], |cx| rounded(cx, factors(cx, "self", "other", |a, b| dot(a.conjugate(), b))?)),
    one(&["addmm", "addmm.dtype"], |cx| rounded(cx, addmm(cx)?)),
    one(&["baddbmm", "baddbmm.dtype"], |cx| rounded(cx, plus_self(cx, factors(cx, "batch1", "batch2", bmm)?)?)),
    one(&["addbmm"], |cx| {
        let [own, other] = [cx.ty("self")?.dtype, cx.ty("batch2")?.dtype];
        if own != other {
            let [own, other] = [own, other].map(scalar_type_name);
            return Err(Error::runtime(format!("self and mat2 must have the same dtype, but got {own} and {other}")));
        }
        // The sum over the batch is part of the contraction.
        let summed = factors(cx, "batch1", "batch2", |a, b| contract(a, b, &[0, 2], &[0, 1]))?;
        rounded(cx, plus_self(cx, summed)?)
    }),
    one(&["addmv"], |cx| rounded(cx, plus_self(cx, factors(cx, "mat", "vec", mv)?)?)),
    one(&["addr"], |cx| {
        let dtype = cx.promoted(&["self", "vec1", "vec2"])?;
        let (a, b) = (cx.operand("vec1", dtype.opmath())?, cx.operand("vec2", dtype.opmath())?);
        Ok(plus_self(cx, a.unsqueeze(1) * b)?.convert(dtype))
    }),
    one(&["_addmm_activation"], |cx| {
        let x = addmm(cx)?;
        let gelu = || x * 0.5 * ((x * FRAC_1_SQRT_2).erf() + 1);
        let activated = if cx.bool("use_gelu")? { gelu() } else { x.max(0) };
        rounded(cx, activated)
    }),
    one(&["_trilinear"], trilinear),
    one(&["_int_mm"], |cx| {
        let dims = DotDims { lhs_contract: vec![1], rhs_contract: vec![0], ..DotDims::default() };
        Ok(cx.tensor("self")?.dot_general(cx.tensor("mat2")?, &dims, DType::I32))
    }),
]);

/// The product over pairs of dimensions, in PyTorch's accumulation type.
pub(crate) fn product<'b>(a: Value<'b>, b: Value<'b>, dims: &DotDims) -> Value<'b> {
    a.dot_general(b, dims, a.dtype().opmath())
}

fn contract<'b>(a: Value<'b>, b: Value<'b>, over_a: &[usize], over_b: &[usize]) -> Value<'b> {
    product(a, b, &DotDims { lhs_contract: over_a.to_vec(), rhs_contract: over_b.to_vec(), ..DotDims::default() })
}

/// A product of two arguments, which must have the same type.
fn factors<'b>(
    cx: &Cx<'b>,
    a: &str,
    b: &str,
    product: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>,
) -> Result<Value<'b>> {
    let (a, b) = (cx.tensor(a)?, cx.tensor(b)?);
    if a.dtype() != b.dtype() {
        return Err(Error::runtime(format!(
            "expected mat1 and mat2 to have the same dtype, but got: {} != {}",
            compiler_name(a.dtype()),
            compiler_name(b.dtype())
        )));
    }
    let is_taken = DTypes::NUMBERS.or(DTypes::FLOAT8).contains(a.dtype());
    let product = if is_taken { product(a, b) } else { product(a.convert(DType::I32), b.convert(DType::I32)) };
    // PyTorch's kernels check the type only if there are elements to multiply, or to add to.
    let is_nothing = (a.numel() == 0 || b.numel() == 0) && (cx.is_none("beta") || product.numel() == 0);
    if is_nothing || is_taken { Ok(product) } else { Err(not_implemented_for(cx.operator, a.dtype())) }
}

/// The C++ name of an element type in PyTorch's messages about products: integers have the names of the compiler.
fn compiler_name(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "unsigned char",
        DType::I8 => "signed char",
        DType::I16 => "short",
        DType::I64 => "long long",
        DType::U16 => "unsigned short",
        DType::U32 => "unsigned int",
        DType::U64 => "unsigned long long",
        other => c_name(other),
    }
}

fn mv<'b>(matrix: Value<'b>, vector: Value<'b>) -> Value<'b> {
    contract(matrix, vector, &[1], &[0])
}

/// The product of vectors. XLA's product of two long vectors on a CPU adds to one number, and so loses digits. Its sum
/// does not.
fn dot<'b>(a: Value<'b>, b: Value<'b>) -> Value<'b> {
    if !(a.dtype().is_float() || a.dtype().is_complex()) {
        return contract(a, b, &[0], &[0]);
    }
    let dtype = a.dtype().opmath();
    (a.convert(dtype) * b.convert(dtype)).reduce_sum(&[0])
}

/// Products of matrices, in the accumulation type: [..., m, k] [..., k, n] -> [..., m, n].
pub(crate) fn bmm<'b>(a: Value<'b>, b: Value<'b>) -> Value<'b> {
    a.matmul(b, a.dtype().opmath())
}

/// Products of matrices, of which nothing else is made: [..., m, k] [..., k, n] -> [..., m, n].
///
/// A TPU's matrix unit accumulates bfloat16 in float32, and rounds what it writes. With a product of float32, XLA leaves
/// the rounding to the operators that read it, and keeps twice the bytes in memory.
fn alone<'b>(cx: &Cx<'b>, a: Value<'b>, b: Value<'b>) -> Value<'b> {
    let result = cx.dtype_or_none("out_dtype").unwrap_or(a.dtype());
    let is_rounded = cx.b().target() == Target::Tpu && a.dtype() == DType::BF16 && result == DType::BF16;
    a.matmul(b, if is_rounded { DType::BF16 } else { a.dtype().opmath() })
}

/// Converts a product to the result's type.
pub(crate) fn rounded<'b>(cx: &Cx<'b>, value: Value<'b>) -> Result<Value<'b>> {
    Ok(value.convert(cx.dtype_or_none("out_dtype").unwrap_or(cx.ty("self")?.dtype)))
}

fn addmm<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    plus_self(cx, factors(cx, "mat1", "mat2", bmm)?)
}

/// `beta * self + alpha * product`. If `beta` is 0, `self` is ignored, including NaN.
pub(crate) fn plus_self<'b>(cx: &Cx<'b>, product: Value<'b>) -> Result<Value<'b>> {
    let dtype = product.dtype();
    let is = |name: &str, number: f64| cx.known_number(name).is_some_and(|known| known.to_f64() == number);
    let product = if is("alpha", 1.0) { product } else { product * cx.scalar("alpha", dtype)? };
    if is("beta", 0.0) {
        return Ok(product);
    }
    let input = cx.tensor("self")?.convert(dtype);
    let input = if is("beta", 1.0) {
        input
    } else {
        let beta = cx.scalar("beta", dtype)?;
        beta.eq(0).select(input.splat_like(0), beta * input)
    };
    Ok(input + product)
}

/// A value, and for each of its dimensions a label of the dimension in the joint space.
type Labelled<'b> = (Value<'b>, Vec<usize>);

/// The product of two values over their joint space, summed over the dimensions that `summed` selects.
fn joined<'b>((a, of_a): &Labelled<'b>, (b, of_b): &Labelled<'b>, summed: impl Fn(usize) -> bool) -> Labelled<'b> {
    let only = |own: &[usize], others: &[usize]| -> Vec<usize> {
        (0..own.len()).filter(|&i| !others.contains(&own[i]) && summed(own[i])).collect()
    };
    let reduced = |x: &Value<'b>, own: &[usize], others: &[usize]| -> Labelled<'b> {
        let axes = only(own, others);
        let left = (0..own.len()).filter(|i| !axes.contains(i)).map(|i| own[i]).collect();
        (x.reduce_sum(&axes), left)
    };
    let ((a, of_a), (b, of_b)) = (reduced(a, of_a, of_b), reduced(b, of_b, of_a));
    let common = |sum: bool| -> Vec<usize> {
        of_a.iter().copied().filter(|&label| of_b.contains(&label) && summed(label) == sum).collect()
    };
    let places = |of: &[usize], labels: &[usize]| -> Vec<usize> {
        labels.iter().filter_map(|label| of.iter().position(|l| l == label)).collect()
    };
    let (batch, contract) = (common(false), common(true));
    let dims = DotDims {
        lhs_batch: places(&of_a, &batch),
        rhs_batch: places(&of_b, &batch),
        lhs_contract: places(&of_a, &contract),
        rhs_contract: places(&of_b, &contract),
    };
    let free = |of: &[usize]| -> Vec<usize> {
        of.iter().copied().filter(|label| !batch.contains(label) && !contract.contains(label)).collect()
    };
    let labels = [batch.clone(), free(&of_a), free(&of_b)].concat();
    (product(a, b, &dims), labels)
}

/// The sum over `sumdim` of the product of three tensors, each repeated along its own `expand` dimensions.
fn trilinear<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let mut operands = Vec::new();
    for (tensor, expand) in [("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")] {
        let (value, expand) = (cx.tensor(tensor)?, cx.ints(expand)?);
        let labels = (0..value.rank() + expand.len()).filter(|&i| !expand.contains(&(i as i64))).collect();
        operands.push((value, labels));
    }
    let sumdim = cx.ints("sumdim")?;
    let summed = |label: usize| sumdim.contains(&(label as i64));
    let [a, b, c]: [Labelled<'b>; 3] =
        operands.try_into().map_err(|_| Error::runtime("_trilinear takes three tensors"))?;
    let (sum, labels) = joined(&joined(&a, &b, |label| summed(label) && !c.1.contains(&label)), &c, summed);
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|&i| labels[i]);
    Ok(sum.transpose(&order).convert(a.0.dtype()))
}
