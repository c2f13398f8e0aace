//! Factory functions.
//!
//! Eager PyTorch composes most of them from `empty` and `fill_`. The rows serve graphs, and save the second operator
//! in eager mode.

use stablehlo::{DType, DTypes, Number, Type, Value, count_by};

use crate::common::bounded_views;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::number_check::Fit;
use crate::row::{Row, one};
use crate::spec::Dim;

pub(crate) const ROWS: &[Row] = &[
    one(&["fill.Scalar"], |cx| filled(cx, "value", &cx.ty("self")?)).bounded(),
    // The value converts as in a copy. A 0-d CPU tensor is a number here.
    one(&["fill.Tensor"], |cx| {
        let ty = cx.ty("self")?;
        Ok(uniform(cx, cx.operand("value", ty.dtype)?.broadcast_to(&ty.dims)))
    })
    .bounded(),
    one(&["zero", "zeros", "zeros_like", "new_zeros"], |cx| splat(cx, 0)).bounded(),
    one(&["ones", "ones_like", "new_ones"], |cx| splat(cx, 1)).bounded(),
    one(&["full", "full_like", "new_full"], |cx| {
        filled(cx, "fill_value", &cx.result_type(cx.promoted(&["fill_value"])?)?)
    })
    .bounded(),
    // A constant that a graph captured.
    one(&["torchtpu::constant"], |cx| {
        let ty = cx.result_type(DType::F32)?;
        Ok(match cx.floats_or_none("data") {
            Some(data) => cx.b().constant(&data, ty.dtype, &ty.dims),
            None => cx.b().constant(&cx.ints("data")?, ty.dtype, &ty.dims),
        })
    }),
    one(&["scalar_tensor"], |cx| {
        let ty = cx.result_type(DType::F32)?;
        filled(cx, "s", &ty)
    })
    .bounded(),
    one(&["eye", "eye.m", "eye.out", "eye.m_out"], |cx| {
        let n = cx.dim("n")?;
        let m = if cx.is_none("m") { n.clone() } else { cx.dim("m")? };
        let ty = Type { dims: vec![n.capacity, m.capacity], ..cx.result_type(DType::F32)? };
        let (row, column) = (positions(cx, &n).unsqueeze(1), positions(cx, &m).unsqueeze(0));
        Ok(row.broadcast_to(&ty.dims).eq(column.broadcast_to(&ty.dims)).convert(ty.dtype))
    })
    .bounded(),
    // The numbers decide the size of the result, so they are constants of the program. Integers that give the same size
    // share a program.
    one(&["arange", "arange.start", "arange.start_step", "arange.start_out"], |cx| progression(cx, false))
        .bounded()
        .varies(STEPS, |n, _| match *n {
            [start, end, step] => length(start, end, step).map(|length| vec![length]),
            [start, end] => length(start, end, 1).map(|length| vec![length]),
            _ => None,
        })
        .baked(STEPS),
    one(&["range", "range.step", "range.out"], |cx| progression(cx, true)).baked(STEPS),
    // PyTorch's composite implementations write into the tensor that they allocate.
    one(LINSPACE, |cx| {
        let dtype = cx.result_type(DType::F32)?.dtype;
        Ok(shaped(cx, spaced(cx, dtype)?.convert(dtype)))
    })
    .bounded(),
    one(LOGSPACE, |cx| {
        let dtype = cx.result_type(DType::F32)?.dtype;
        let exponent = spaced(cx, dtype)?;
        Ok(shaped(cx, cx.scalar("base", exponent.dtype())?.pow(exponent).convert(dtype)))
    })
    .bounded(),
];

const LINSPACE: &[&str] =
    &["linspace", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor", "linspace.out"];
const LOGSPACE: &[&str] =
    &["logspace", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor", "logspace.out"];
const STEPS: &[&str] = &["start", "end", "step"];

fn splat<'b>(cx: &Cx<'b>, number: i64) -> Result<Value<'b>> {
    let ty = cx.result_type(DType::F32)?;
    Ok(uniform(cx, cx.b().splat(number, ty.dtype, &ty.dims)))
}

/// A tensor of one number. The number must fit. As on the CPU, it need not fit into a small float type for a single
/// element, nor into complex32 for several: it becomes infinite.
fn filled<'b>(cx: &Cx<'b>, name: &str, ty: &Type) -> Result<Value<'b>> {
    let fits = match (ty.dtype, ty.numel()) {
        (DType::C32, 2..) => DType::C64,
        (dtype, 1) if dtype.is_float() && dtype.size_bytes() < 4 => DType::F64,
        (dtype, _) => dtype,
    };
    cx.check_number(name, fits, Fit::Converts)?;
    Ok(uniform(cx, cx.operand(name, ty.dtype)?.broadcast_to(&ty.dims)))
}

fn uniform<'b>(cx: &Cx<'b>, result: Value<'b>) -> Value<'b> {
    cx.uniform(result, 0..result.rank())
}

/// The number of integers from `start` up to `end`, if they are 32-bit numbers, for which PyTorch's count in float64 is
/// exact.
fn length(start: i64, end: i64, step: i64) -> Option<i64> {
    if step == 0 || [start, end, step].iter().any(|&n| i32::try_from(n).is_err()) {
        return None;
    }
    let distance = if step > 0 { end - start } else { start - end };
    (distance > 0).then(|| count_by(distance, step.abs()))
}

/// `start + i · step`, up to `end`. `end` itself is only included if `end_included`.
fn progression<'b>(cx: &Cx<'b>, end_included: bool) -> Result<Value<'b>> {
    if let Some([length]) = cx.result_dims(0)
        && !length.sizes.is_empty()
    {
        return bounded_progression(cx, length);
    }
    if cx.is_input("start") {
        return progression_of_inputs(cx);
    }
    let number = |name, otherwise| if cx.is_none(name) { Ok(Number::Int(otherwise)) } else { cx.number(name) };
    let (start, end, step) = (number("start", 0)?, cx.number("end")?, number("step", 1)?);
    let whole = [start, end, step].iter().all(|n| !matches!(n, Number::Float(_) | Number::Complex(..)));
    let mut ty = cx.result_type(if whole && !end_included { DType::I64 } else { DType::F32 })?;
    if cx.result(0).is_none() {
        let steps = (end.to_f64() - start.to_f64()) / step.to_f64();
        ty.dims = vec![if end_included { steps.floor() as i64 + 1 } else { steps.ceil() as i64 }.max(0)];
    }
    cx.check_dtype(ty.dtype, DTypes::REAL_NUMBERS)?;
    for name in STEPS.iter().filter(|_| ty.dtype.is_integer()) {
        cx.check_number(name, DType::I64, Fit::Converts)?;
    }
    let length = ty.numel();
    if !whole && !ty.dtype.is_integer() {
        // In float64, as in PyTorch: the error of the step would accumulate along the result.
        let index = cx.b().iota(DType::F64, &[length], 0);
        return Ok(shaped(cx, (index * step.to_f64() + start.to_f64()).convert(ty.dtype)));
    }
    let (start, step) = (start.to_i64(), step.to_i64());
    let last = i128::from(start) + i128::from(step) * i128::from(length);
    let narrow = i32::try_from(start).is_ok() && i32::try_from(last).is_ok();
    let index = cx.b().iota(if narrow { DType::I32 } else { DType::I64 }, &[length], 0);
    Ok(shaped(cx, (index * step + start).convert(ty.dtype)))
}

/// [`progression`] of integers that are inputs of the program.
fn progression_of_inputs<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let ty = cx.result_type(DType::I64)?;
    cx.check_dtype(ty.dtype, DTypes::REAL_NUMBERS)?;
    let index = cx.b().iota(DType::I64, &[ty.numel()], 0);
    let scaled = cx.scalar_or_none("step", DType::I64)?.map_or(index, |step| index * step);
    let sequence = scaled + cx.scalar("start", DType::I64)?;
    Ok(shaped(cx, sequence.convert(ty.dtype)))
}

/// A sequence in the shape of the call's result: an `out=` argument with as many elements keeps its shape.
fn shaped<'b>(cx: &Cx<'b>, sequence: Value<'b>) -> Value<'b> {
    match cx.result(0) {
        Some(result) if result.sizes.iter().product::<i64>() == sequence.numel() => sequence.reshape(&result.sizes),
        _ => sequence,
    }
}

/// [`progression`] of integers with a bounded length, which PyTorch gives.
fn bounded_progression<'b>(cx: &Cx<'b>, length: &Dim) -> Result<Value<'b>> {
    let whole =
        |name: &str| cx.is_input(name) || cx.known_number(name).is_none_or(|number| matches!(number, Number::Int(_)));
    if !["start", "end", "step"].into_iter().all(whole) {
        return Err(Error::not_implemented("a progression of fractions with a bounded length"));
    }
    let dtype = cx.dtype_or_none("dtype").unwrap_or(DType::I64);
    let number = |name| if cx.is_none(name) { Ok(None) } else { cx.scalar(name, DType::I64).map(Some) };
    let index = positions(cx, length);
    let scaled = number("step")?.map_or(index, |step| index * step);
    Ok(number("start")?.map_or(scaled, |start| scaled + start).convert(dtype))
}

/// The valid positions along a dimension: a vector of int64. A merged dimension has padding between them.
fn positions<'b>(cx: &Cx<'b>, dim: &Dim) -> Value<'b> {
    let extent = dim.extent(|size| cx.b().capacity(size));
    match extent.0.len() {
        0 | 1 => cx.b().iota(DType::I64, &[dim.capacity], 0),
        _ => bounded_views::valid_positions(cx, &[dim.capacity], std::slice::from_ref(&extent)).with_extent(0, extent),
    }
}

/// `steps` evenly spaced numbers from `start` to `end`, in the type in which `dtype` is computed. Counts from the
/// nearer end, so that both ends are exact.
fn spaced<'b>(cx: &Cx<'b>, dtype: DType) -> Result<Value<'b>> {
    let steps = cx.dim("steps")?;
    // For integers, the ends are integers but the distance is fractional.
    let work = if dtype.is_integer() { DType::F64 } else { dtype.opmath() };
    let end_of = |name| -> Result<Value<'b>> {
        let whole = if dtype.is_integer() { dtype } else { work };
        Ok(cx.scalar(name, whole)?.convert(work))
    };
    let (start, end) = (end_of("start")?, end_of("end")?);
    let index = positions(cx, &steps).convert(DType::I32);
    let count = cx.size_of(&steps).convert(DType::I32);
    // The barrier keeps XLA from multiplying by the rounded reciprocal of a constant.
    let intervals = (count - 1).max(1).convert(work).barrier();
    let distance = (end - start) / intervals;
    let from_end = -index + (count - 1);
    let near_start =
        index.lt(count / 2).select(index.convert(work) * distance + start, -(from_end.convert(work) * distance) + end);
    // With one step, the result is the start.
    Ok(if steps.capacity == 1 { start.broadcast_to(&[1]) } else { near_start })
}
