//! Matrix products.
//!
//! Products of 16-bit floats are accumulated in float32, as PyTorch and the matrix units do.

use std::f64::consts::FRAC_1_SQRT_2;

use stablehlo::{DType, DotDims, Precision, Value};

use crate::cx::Cx;
use crate::error::Result;
use crate::ops::unary::conjugate;
use crate::table::{Row, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["mm", "mm.dtype"], |cx| rounded(cx, mm(cx.tensor("self")?, cx.tensor("mat2")?))),
    one(&["bmm", "bmm.dtype"], |cx| rounded(cx, bmm(cx.tensor("self")?, cx.tensor("mat2")?))),
    one(&["mv"], |cx| rounded(cx, contract(cx.tensor("self")?, cx.tensor("vec")?, &[1], &[0]))),
    one(&["dot"], |cx| rounded(cx, contract(cx.tensor("self")?, cx.tensor("tensor")?, &[0], &[0]))),
    one(&["vdot"], |cx| rounded(cx, contract(conjugate(cx.tensor("self")?), cx.tensor("other")?, &[0], &[0]))),
    one(&["addmm", "addmm.dtype"], |cx| rounded(cx, addmm(cx)?)),
    one(&["baddbmm", "baddbmm.dtype"], |cx| {
        rounded(cx, plus_self(cx, bmm(cx.tensor("batch1")?, cx.tensor("batch2")?))?)
    }),
    one(&["addbmm"], |cx| {
        // The sum over the batch is part of the contraction.
        let (a, b) = (cx.tensor("batch1")?, cx.tensor("batch2")?);
        rounded(cx, plus_self(cx, contract(a, b, &[0, 2], &[0, 1]))?)
    }),
    one(&["addmv"], |cx| {
        rounded(cx, plus_self(cx, contract(cx.tensor("mat")?, cx.tensor("vec")?, &[1], &[0]))?)
    }),
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
    one(&["_int_mm"], |cx| {
        let dims = DotDims { lhs_contract: vec![1], rhs_contract: vec![0], ..DotDims::default() };
        Ok(cx.tensor("self")?.dot_general(cx.tensor("mat2")?, &dims, DType::I32))
    }),
];

/// The product over pairs of dimensions, in the type that PyTorch accumulates in.
pub(crate) fn product<'b>(a: Value<'b>, b: Value<'b>, dims: &DotDims) -> Value<'b> {
    a.dot_general(b, dims, a.dtype().opmath())
}

fn contract<'b>(a: Value<'b>, b: Value<'b>, over_a: &[usize], over_b: &[usize]) -> Value<'b> {
    product(a, b, &DotDims { lhs_contract: over_a.to_vec(), rhs_contract: over_b.to_vec(), ..DotDims::default() })
}

/// The product of two matrices, in the type of its accumulation.
pub(crate) fn mm<'b>(a: Value<'b>, b: Value<'b>) -> Value<'b> {
    contract(a, b, &[1], &[0])
}

/// The products of matrices in the last two dimensions; the leading ones, equal in both, are batches.
pub(crate) fn bmm<'b>(a: Value<'b>, b: Value<'b>) -> Value<'b> {
    let rank = a.rank();
    let batch: Vec<usize> = (0..rank - 2).collect();
    let dims = DotDims {
        lhs_batch: batch.clone(),
        rhs_batch: batch,
        lhs_contract: vec![rank - 1],
        rhs_contract: vec![rank - 2],
    };
    product(a, b, &dims)
}

/// A product in the result's type.
fn rounded<'b>(cx: &Cx<'b>, value: Value<'b>) -> Result<Value<'b>> {
    Ok(value.convert(cx.dtype_or_none("out_dtype").unwrap_or(cx.ty("self")?.dtype)))
}

fn addmm<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    plus_self(cx, mm(cx.tensor("mat1")?, cx.tensor("mat2")?))
}

/// `beta * self + alpha * product`. A `beta` of 0 ignores `self`, NaN included.
fn plus_self<'b>(cx: &Cx<'b>, product: Value<'b>) -> Result<Value<'b>> {
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

/// Multiplies each of the last dimensions by a matrix, over the matrix's dimension `summed`; in full
/// precision, because the matrices are weights of a mean or a filter.
pub(crate) fn along_last_axes<'b>(x: Value<'b>, matrices: &[Value<'b>], summed: usize) -> Value<'b> {
    let first = x.rank() - matrices.len();
    matrices.iter().fold(x, |x, &matrix| {
        // The summed dimension leaves the front and its result joins at the back: after a round all are in place.
        let dims = DotDims { lhs_contract: vec![first], rhs_contract: vec![summed], ..DotDims::default() };
        x.builder().with_precision(Precision::Highest, || product(x, matrix, &dims))
    })
}
