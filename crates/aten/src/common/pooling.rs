//! Maxima and sums over windows, and their gradients.

use stablehlo::{Builder, DType, Number, Value};

use crate::common::windows::Windows;
use crate::cx::Cx;
use crate::error::Result;
use crate::places::{Combine, Places};

/// The row-major position of each element in a plane of these sizes.
pub(crate) fn positions<'b>(b: &'b Builder, sizes: &[i64]) -> Value<'b> {
    let count = sizes.iter().product();
    b.iota(DType::of_counts(count), &[count], 0).reshape(sizes)
}

/// [`positions`] in the planes of a tensor whose last dimensions may be bounded.
pub(crate) fn valid_positions<'b>(x: Value<'b>, spatial: usize) -> Value<'b> {
    let (b, leading) = (x.builder(), x.rank() - spatial);
    let sizes = &x.dims()[leading..];
    if (leading + 1..x.rank()).all(|axis| !x.is_bounded_along(&[axis])) {
        return positions(b, sizes);
    }
    let dtype = DType::of_counts(sizes.iter().product());
    (0..spatial).fold(b.splat(0, dtype, sizes), |position, i| {
        let size = x.size(leading + i, dtype).broadcast_to(sizes);
        position * size + b.iota(dtype, sizes, i)
    })
}

/// The positions at the capacities of `x`, from those in the planes of its valid elements.
pub(crate) fn at_capacities<'b>(position: Value<'b>, x: Value<'b>, spatial: usize) -> Value<'b> {
    let leading = x.rank() - spatial;
    let (mut rest, mut found, mut stride) = (position, position.splat_like(0), 1);
    for axis in (leading + 1..x.rank()).rev() {
        let size = x.size(axis, DType::I32);
        found = found + rest % size * stride;
        rest = rest / size;
        stride *= x.dim(axis);
    }
    found + rest * stride
}

/// The input positions for the gradient of a pooling. `x` is the pooling's input if its sizes are bounded.
pub(crate) fn input_positions<'b>(cx: &Cx<'b>, windows: &Windows, x: Option<Value<'b>>) -> Value<'b> {
    match x {
        Some(x) => valid_positions(x, windows.spatial()),
        None => positions(cx.b(), &windows.inputs),
    }
}

/// Fills the padding of the spatial dimensions with a number.
pub(crate) fn fill_padding<'b>(x: Value<'b>, spatial: usize, fill: impl Into<Number>) -> Value<'b> {
    let (fill, axes) = (fill.into(), x.rank() - spatial..x.rank());
    x.filled(axes, |x| x.builder().scalar(fill, x.dtype()), "a window over merged dimensions")
}

/// The input of the pooling whose gradient is computed, if its sizes are bounded.
pub(crate) fn bounded_self<'b>(cx: &Cx<'b>) -> Result<Option<Value<'b>>> {
    let is_bounded = cx.result_dims(0).is_some_and(|dims| dims.iter().any(|dim| !dim.sizes.is_empty()));
    if is_bounded { Ok(Some(cx.tensor("self")?)) } else { Ok(None) }
}

/// The largest element of each window and its position: the first of equal elements, the last NaN.
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
    let extended = windows.extend(x, x.dtype().max_identity());
    let places = windows.extend(position, Number::Int(-1));
    let padded = windows.padding.iter().any(|&p| p > 0);
    let all = windows
        .taps()
        .into_iter()
        .map(|tap| (windows.inputs_at_tap(extended, &tap), windows.inputs_at_tap(places, &tap)));
    let best = all.reduce(|(value, place), (candidate, there)| {
        let mut better = candidate.gt(value) | candidate.is_nan();
        if padded {
            // Minus infinity in the input wins over the window's padding.
            better = better | (place.lt(0) & there.ge(0));
        }
        (better.select(candidate, value), better.select(there, place))
    });
    let (value, place) = best.unwrap_or((x, position));
    (value, place.broadcast_to(&value.dims()))
}

/// [`largest`] of two elements with their positions, independent of their order.
pub(crate) fn larger<'b>(a: (Value<'b>, Value<'b>), b: (Value<'b>, Value<'b>)) -> Vec<Value<'b>> {
    let (a_nan, b_nan) = (a.0.is_nan(), b.0.is_nan());
    let by_value = a.0.gt(b.0) | (a.0.eq(b.0) & a.1.lt(b.1));
    let a_wins = (a_nan & (!b_nan | a.1.gt(b.1))) | (!a_nan & !b_nan & by_value);
    vec![a_wins.select(a.0, b.0), a_wins.select(a.1, b.1)]
}

/// For each input element, the sum of the gradients of the windows whose maximum it was.
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
    let (grad, index) = (windows.dilate(grad, Number::Int(0)), windows.dilate(index, Number::Int(-1)));
    let chosen = windows
        .taps()
        .into_iter()
        .map(|tap| windows.outputs_at_tap(index, &tap).eq(position).select(windows.outputs_at_tap(grad, &tap), 0));
    chosen.reduce(|sum, one| sum + one).unwrap_or(grad).convert(dtype)
}

/// Refuses an index whose padding is at other places than that of its values.
pub(crate) fn require_pairs<'b>(values: Value<'b>, index: Value<'b>) {
    if values.dims() == index.dims() {
        values.require_same_padding(index, 0..values.rank());
    } else {
        values.builder().refuse_bounded("indices with other padding than their values");
    }
}

/// Adds `values` at the positions `index` of planes of zeros of these sizes.
pub(crate) fn scattered<'b>(values: Value<'b>, index: Value<'b>, sizes: &[i64]) -> Value<'b> {
    require_pairs(values, index);
    let mut dims = values.dims();
    let last = dims.split_off(dims.len() - sizes.len());
    let flat = |v: Value<'b>| v.reshape(&[dims.iter().product(), last.iter().product()]);
    let zeros = values.builder().splat(0, values.dtype(), &[dims.iter().product(), sizes.iter().product()]);
    let sums = Places::along(1, flat(index)).write(zeros, flat(values), Combine::Add);
    sums.reshape(&[dims.as_slice(), sizes].concat())
}

/// The sum of the elements of each window.
pub(crate) fn sum_of_windows<'b>(x: Value<'b>, windows: &Windows) -> Value<'b> {
    if windows.are_tiles() {
        windows.split(x).reduce_sum(&windows.split_axes(x))
    } else if windows.is_small() {
        let extended = windows.extend(x, Number::Int(0));
        let inputs = windows.taps().into_iter().map(|tap| windows.inputs_at_tap(extended, &tap));
        inputs.reduce(|sum, one| sum + one).unwrap_or(x)
    } else {
        x.reduce_window(&windows.window(x.rank()), Number::Int(0), |a, b| a + b)
    }
}

/// The adjoint of [`sum_of_windows`]: for each input element, the sum of the outputs whose windows contain it.
pub(crate) fn sum_of_outputs<'b>(y: Value<'b>, windows: &Windows) -> Value<'b> {
    if windows.are_tiles() {
        return windows.repeated(y).reshape(&windows.input_dims(y));
    }
    let spread = windows.dilate(y, Number::Int(0));
    if windows.is_small() {
        let outputs = windows.taps().into_iter().map(|tap| windows.outputs_at_tap(spread, &tap));
        return outputs.reduce(|sum, one| sum + one).unwrap_or(spread);
    }
    let mut window = windows.window(y.rank());
    window.strides.fill(1);
    window.padding.fill((0, 0));
    spread.reduce_window(&window, Number::Int(0), |a, b| a + b)
}
