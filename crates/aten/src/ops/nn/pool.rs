//! Pooling and its gradients.

use stablehlo::{Builder, DType, DTypes, Number, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::ops::index::indexing::{Combine, Places};
use crate::ops::nn::window::Windows;
use crate::table::{Row, many, one};

const AVERAGED: DTypes = DTypes::FLOATS.or(DTypes::of(&[DType::I64]));

pub(crate) const ROWS: &[Row] = &[
    many(&["max_pool2d_with_indices"], |cx| max_pool(cx, 2)).bounded(),
    many(&["max_pool3d_with_indices"], |cx| max_pool(cx, 3)),
    one(&["max_pool2d_with_indices_backward"], |cx| max_pool_backward(cx, 2)).bounded(),
    one(&["max_pool3d_with_indices_backward"], |cx| max_pool_backward(cx, 3)),
    one(&["avg_pool2d"], |cx| avg_pool(cx, 2)).takes(&["self"], AVERAGED).bounded(),
    one(&["avg_pool3d"], |cx| avg_pool(cx, 3)).takes(&["self"], AVERAGED),
    one(&["avg_pool2d_backward"], |cx| avg_pool_backward(cx, 2)).bounded(),
    one(&["avg_pool3d_backward"], |cx| avg_pool_backward(cx, 3)),
];

// ---- the largest ---------------------------------------------------------------------------------

/// The position of each element in its plane, of the planes' sizes.
pub(crate) fn positions<'b>(b: &'b Builder, sizes: &[i64]) -> Value<'b> {
    b.iota(DType::I32, &[sizes.iter().product()], 0).reshape(sizes)
}

/// [`positions`] in the planes of a tensor whose last dimensions may be bounded.
pub(crate) fn real_positions<'b>(x: Value<'b>, spatial: usize) -> Value<'b> {
    let (b, leading) = (x.builder(), x.rank() - spatial);
    let sizes = &x.dims()[leading..];
    if (leading + 1..x.rank()).all(|axis| !x.is_bounded_along(&[axis])) {
        return positions(b, sizes);
    }
    (0..spatial).fold(b.splat(0, DType::I32, sizes), |position, i| {
        let size = x.size(leading + i, DType::I32).broadcast_to(sizes);
        position * size + b.iota(DType::I32, sizes, i)
    })
}

/// The positions in the input of the pooling that this is the gradient of, which is `x` where its sizes are bounded.
pub(crate) fn input_positions<'b>(cx: &Cx<'b>, windows: &Windows, x: Option<Value<'b>>) -> Value<'b> {
    match x {
        Some(x) => real_positions(x, windows.spatial()),
        None => positions(cx.b(), &windows.inputs),
    }
}

/// A tensor with a number behind what is real of the dimensions that windows pass over.
pub(crate) fn behind<'b>(x: Value<'b>, spatial: usize, fill: impl Into<Number>) -> Value<'b> {
    let (fill, axes) = (fill.into(), x.rank() - spatial..x.rank());
    x.filled(axes, |x| x.builder().scalar(fill, x.dtype()), "a window over merged dimensions")
}

/// The windows of a gradient of the pooling of `self`.
fn windows_of_gradient<'b>(cx: &Cx<'b>, grad: Value<'b>, spatial: usize) -> Result<Windows> {
    let mut windows = Windows::of_pool(cx, &cx.ty("self")?.dims, spatial)?;
    windows.outputs = grad.dims().split_off(grad.rank() - spatial);
    Ok(windows)
}

/// The input of the pooling that this is the gradient of, where its sizes are bounded.
pub(crate) fn bounded_self<'b>(cx: &Cx<'b>) -> Result<Option<Value<'b>>> {
    let is_bounded = cx.result_dims(0).is_some_and(|dims| dims.iter().any(|dim| !dim.sizes.is_empty()));
    if is_bounded { Ok(Some(cx.tensor("self")?)) } else { Ok(None) }
}

fn max_pool<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Vec<Value<'b>>> {
    let x = cx.tensor("self")?;
    let windows = Windows::of_pool(cx, &x.dims(), spatial)?;
    let filled = behind(x, spatial, x.dtype().max_identity());
    let (largest, index) = largest(filled, &windows, real_positions(x, spatial));
    Ok(vec![cx.resized(0, largest), cx.resized(1, index.convert(DType::I64))])
}

/// The largest element of each window and its position: of equal ones the first, of NaNs the last.
pub(crate) fn largest<'b>(x: Value<'b>, windows: &Windows, position: Value<'b>) -> (Value<'b>, Value<'b>) {
    let b = x.builder();
    let initial = [b.scalar(x.dtype().max_identity(), x.dtype()), b.scalar(i32::MAX, DType::I32)];
    let combine = |a: &[Value<'b>], b: &[Value<'b>]| larger((a[0], a[1]), (b[0], b[1]));
    if windows.are_tiles() {
        let split = windows.split(x);
        let position = windows.split(position).broadcast_to(&split.dims());
        let results = b.reduce(&[split, position], &initial, &windows.split_axes(x), combine);
        return (results[0], results[1]);
    }
    if !windows.is_small() {
        let position = position.broadcast_to(&x.dims());
        let results = b.reduce_window(&[x, position], &initial, &windows.window(x.rank()), combine);
        return (results[0], results[1]);
    }
    let surrounded = windows.surround(x, x.dtype().max_identity());
    let places = windows.surround(position, Number::Int(-1));
    let padded = windows.padding.iter().any(|&p| p > 0);
    let all = windows.taps().into_iter().map(|tap| (windows.seen(surrounded, &tap), windows.seen(places, &tap)));
    let best = all.reduce(|(value, place), (candidate, there)| {
        let mut better = candidate.gt(value) | candidate.is_nan();
        if padded {
            // Minus infinity is still larger than what surrounds the input.
            better = better | (place.lt(0) & there.ge(0));
        }
        (better.select(candidate, value), better.select(there, place))
    });
    let (value, place) = best.unwrap_or((x, position));
    (value, place.broadcast_to(&value.dims()))
}

/// [`largest`] of two elements with their positions, in any order.
pub(crate) fn larger<'b>(a: (Value<'b>, Value<'b>), b: (Value<'b>, Value<'b>)) -> Vec<Value<'b>> {
    let (a_nan, b_nan) = (a.0.is_nan(), b.0.is_nan());
    let by_value = a.0.gt(b.0) | (a.0.eq(b.0) & a.1.lt(b.1));
    let a_wins = (a_nan & (!b_nan | a.1.gt(b.1))) | (!a_nan & !b_nan & by_value);
    vec![a_wins.select(a.0, b.0), a_wins.select(a.1, b.1)]
}

fn max_pool_backward<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Value<'b>> {
    let grad = cx.tensor("grad_output")?;
    let windows = windows_of_gradient(cx, grad, spatial)?;
    let x = bounded_self(cx)?;
    if x.is_some() && !windows.is_small() {
        return Err(Error::not_implemented("large windows over bounded dimensions"));
    }
    let position = input_positions(cx, &windows, x);
    let index = behind(cx.tensor("indices")?, spatial, -1);
    Ok(unpooled(behind(grad, spatial, 0), index, &windows, position))
}

/// The sum, at each input element, of the gradients of the windows that chose it.
pub(crate) fn unpooled<'b>(grad: Value<'b>, index: Value<'b>, windows: &Windows, position: Value<'b>) -> Value<'b> {
    let dtype = grad.dtype();
    let (grad, index) = (grad.convert(dtype.opmath()), index.convert(DType::I32));
    if windows.are_tiles() {
        let chosen = windows.repeated(index).eq(windows.split(position));
        let dims = windows.input_dims(grad);
        return chosen.select(windows.repeated(grad), 0).reshape(&dims).convert(dtype);
    }
    if !windows.is_small() {
        return scattered(grad, index, &windows.inputs).convert(dtype);
    }
    let (grad, index) = (windows.spread(grad, Number::Int(0)), windows.spread(index, Number::Int(-1)));
    let chosen = windows
        .taps()
        .into_iter()
        .map(|tap| windows.seeing(index, &tap).eq(position).select(windows.seeing(grad, &tap), 0));
    chosen.reduce(|sum, one| sum + one).unwrap_or(grad).convert(dtype)
}

/// Adds `values` at the positions `index` of zero planes of these sizes.
pub(crate) fn scattered<'b>(values: Value<'b>, index: Value<'b>, sizes: &[i64]) -> Value<'b> {
    let mut dims = values.dims();
    let last = dims.split_off(dims.len() - sizes.len());
    let flat = |v: Value<'b>| v.reshape(&[dims.iter().product(), last.iter().product()]);
    let zeros = values.builder().splat(0, values.dtype(), &[dims.iter().product(), sizes.iter().product()]);
    let sums = Places::along(1, flat(index)).write(zeros, flat(values), Combine::Add);
    sums.reshape(&[dims.as_slice(), sizes].concat())
}

// ---- the mean ------------------------------------------------------------------------------------

fn avg_pool<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let windows = Windows::of_pool(cx, &x.dims(), spatial)?;
    let sum = sum_of_windows(behind(x, spatial, 0).convert(x.dtype().opmath()), &windows);
    Ok(cx.resized(0, divided(cx, sum, &windows, Some(x))?.convert(x.dtype())))
}

fn avg_pool_backward<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Value<'b>> {
    let grad = cx.tensor("grad_output")?;
    let windows = windows_of_gradient(cx, grad, spatial)?;
    let share = divided(cx, behind(grad, spatial, 0).convert(grad.dtype().opmath()), &windows, bounded_self(cx)?)?;
    Ok(sum_of_outputs(share, &windows).convert(grad.dtype()))
}

/// The sum of each window's elements.
pub(crate) fn sum_of_windows<'b>(x: Value<'b>, windows: &Windows) -> Value<'b> {
    if windows.are_tiles() {
        windows.split(x).reduce_sum(&windows.split_axes(x))
    } else if windows.is_small() {
        let surrounded = windows.surround(x, Number::Int(0));
        let seen = windows.taps().into_iter().map(|tap| windows.seen(surrounded, &tap));
        seen.reduce(|sum, one| sum + one).unwrap_or(x)
    } else {
        x.reduce_window(&windows.window(x.rank()), Number::Int(0), |a, b| a + b)
    }
}

/// The adjoint of [`sum_of_windows`]: for each input element, the sum of the outputs that see it.
pub(crate) fn sum_of_outputs<'b>(y: Value<'b>, windows: &Windows) -> Value<'b> {
    if windows.are_tiles() {
        return windows.repeated(y).reshape(&windows.input_dims(y));
    }
    let spread = windows.spread(y, Number::Int(0));
    if windows.is_small() {
        let seeing = windows.taps().into_iter().map(|tap| windows.seeing(spread, &tap));
        return seeing.reduce(|sum, one| sum + one).unwrap_or(spread);
    }
    let mut window = windows.window(y.rank());
    window.strides.fill(1);
    window.padding.fill((0, 0));
    spread.reduce_window(&window, Number::Int(0), |a, b| a + b)
}

/// Sums over windows of `x`, where its sizes matter, divided by how many elements count.
fn divided<'b>(cx: &Cx<'b>, sum: Value<'b>, windows: &Windows, x: Option<Value<'b>>) -> Result<Value<'b>> {
    if let Some(divisor) = cx.int_or_none("divisor_override") {
        return Ok(sum / divisor);
    }
    let include_padding = cx.bool("count_include_pad")?;
    let mut divisor = cx.b().scalar(1, sum.dtype());
    for i in 0..windows.spatial() {
        let (kernel, stride, padding) = (windows.kernel[i], windows.strides[i], windows.padding[i]);
        let outside = if include_padding { padding } else { 0 };
        let (first, end) = (-outside, windows.inputs[i] + outside);
        let bounded = x.map(|x| (x, x.rank() - windows.spatial() + i)).filter(|(x, axis)| x.is_bounded_along(&[*axis]));
        let all_within = match bounded {
            Some(_) => first <= -padding && !cx.bool("ceil_mode")?,
            None => first <= -padding && (windows.outputs[i] - 1) * stride - padding + kernel <= end,
        };
        divisor = if all_within {
            divisor * kernel
        } else {
            let mut dims = vec![1; windows.spatial()];
            dims[i] = windows.outputs[i];
            let start = cx.b().iota(DType::I32, &dims, i) * stride - padding;
            let end = match bounded {
                Some((x, axis)) => (x.size(axis, DType::I32) + outside).broadcast_to(&dims),
                None => start.splat_like(end),
            };
            // Behind what is real there are windows that see nothing.
            let counted = ((start + kernel).min(end) - start.max(first)).max(1);
            divisor * counted.convert(sum.dtype())
        };
    }
    Ok(sum / divisor)
}
