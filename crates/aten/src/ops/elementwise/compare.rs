//! Comparisons, logical and bitwise operators.

use stablehlo::{Comparison, DType, Value};

use crate::cx::Cx;
use crate::error::Result;
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["eq.Tensor", "eq.Scalar"], |cx| compared(cx, Comparison::Eq)),
    one(&["ne.Tensor", "ne.Scalar"], |cx| compared(cx, Comparison::Ne)),
    one(&["lt.Tensor", "lt.Scalar"], |cx| compared(cx, Comparison::Lt)),
    one(&["le.Tensor", "le.Scalar"], |cx| compared(cx, Comparison::Le)),
    one(&["gt.Tensor", "gt.Scalar"], |cx| compared(cx, Comparison::Gt)),
    one(&["ge.Tensor", "ge.Scalar"], |cx| compared(cx, Comparison::Ge)),
    one(&["logical_and"], |cx| logical(cx, |x, y| x & y)).shapes_like(&[("logical_and", "eq.Tensor")]),
    one(&["logical_or"], |cx| logical(cx, |x, y| x | y)).shapes_like(&[("logical_or", "eq.Tensor")]),
    one(&["logical_xor"], |cx| logical(cx, |x, y| x ^ y)).shapes_like(&[("logical_xor", "eq.Tensor")]),
    one(&["bitwise_and.Tensor", "bitwise_and.Scalar", "bitwise_and.Scalar_Tensor"], |cx| {
        cx.pair("self", "other").map(|(x, y)| x & y)
    }),
    one(&["bitwise_or.Tensor", "bitwise_or.Scalar", "bitwise_or.Scalar_Tensor"], |cx| {
        cx.pair("self", "other").map(|(x, y)| x | y)
    }),
    one(&["bitwise_xor.Tensor", "bitwise_xor.Scalar", "bitwise_xor.Scalar_Tensor"], |cx| {
        cx.pair("self", "other").map(|(x, y)| x ^ y)
    }),
    // A shift by a negative amount, or by at least the width of the type, shifts out all bits, in PyTorch as in XLA.
    one(
        &[
            "bitwise_left_shift.Tensor",
            "bitwise_left_shift.Tensor_Scalar",
            "bitwise_left_shift.Scalar_Tensor",
            "__lshift__.Tensor",
            "__lshift__.Scalar",
        ],
        |cx| cx.pair("self", "other").map(|(x, amount)| x.shift_left(amount)),
    )
    .shapes_like(&[
        ("__lshift__.Tensor", "bitwise_left_shift.Tensor"),
        ("__lshift__.Scalar", "bitwise_left_shift.Tensor_Scalar"),
    ]),
    one(
        &[
            "bitwise_right_shift.Tensor",
            "bitwise_right_shift.Tensor_Scalar",
            "bitwise_right_shift.Scalar_Tensor",
            "__rshift__.Tensor",
            "__rshift__.Scalar",
        ],
        |cx| cx.pair("self", "other").map(|(x, amount)| shift_right(x, amount)),
    )
    .shapes_like(&[
        ("__rshift__.Tensor", "bitwise_right_shift.Tensor"),
        ("__rshift__.Scalar", "bitwise_right_shift.Tensor_Scalar"),
    ]),
]);

fn compared<'b>(cx: &Cx<'b>, comparison: Comparison) -> Result<Value<'b>> {
    cx.pair("self", "other").map(|(x, y)| x.compare(comparison, y))
}

/// Converts each operand to bool and applies `f`.
fn logical<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>) -> Result<Value<'b>> {
    Ok(f(cx.tensor("self")?.convert(DType::Bool), cx.tensor("other")?.convert(DType::Bool)))
}

fn shift_right<'b>(x: Value<'b>, amount: Value<'b>) -> Value<'b> {
    if x.dtype().is_unsigned() { x.shift_right_logical(amount) } else { x.shift_right_arithmetic(amount) }
}
