//! Pooling and its gradients.

use stablehlo::{DType, DTypes, Extent, Value};

use crate::check::Check;
use crate::common::pooling::{
    bounded_self, fill_padding, input_positions, largest, require_pairs, sum_of_outputs, sum_of_windows, unpooled,
    valid_positions,
};
use crate::common::windows::Windows;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::{Combine, Places};
use crate::row::{Row, many, one};
use crate::spec::Dim;

const AVERAGED: DTypes = DTypes::FLOATS.or(DTypes::of(&[DType::I64]));

pub(crate) const ROWS: &[Row] = &[
    many(&["max_pool2d_with_indices"], |cx| max_pool(cx, 2)).bounded(),
    many(&["max_pool3d_with_indices"], |cx| max_pool(cx, 3)).bounded(),
    one(&["max_pool2d_with_indices_backward"], |cx| max_pool_backward(cx, 2)).bounded(),
    one(&["max_pool3d_with_indices_backward"], |cx| max_pool_backward(cx, 3)).bounded(),
    one(&["max_unpool2d"], |cx| max_unpool(cx, 2)).bounded(),
    one(&["max_unpool3d"], |cx| max_unpool(cx, 3)).bounded(),
    one(&["avg_pool2d"], |cx| avg_pool(cx, 2)).takes(&["self"], AVERAGED).bounded(),
    one(&["avg_pool3d"], |cx| avg_pool(cx, 3)).takes(&["self"], AVERAGED).bounded(),
    one(&["avg_pool2d_backward"], |cx| avg_pool_backward(cx, 2)).bounded(),
    one(&["avg_pool3d_backward"], |cx| avg_pool_backward(cx, 3)).bounded(),
];

// ---- maximum ---------------------------------------------------------------------------------

/// The windows for a gradient of the pooling of `self`.
fn windows_of_gradient<'b>(cx: &Cx<'b>, grad: Value<'b>, spatial: usize) -> Result<Windows> {
    let mut windows = Windows::of_pool(cx, &cx.ty("self")?.dims, spatial)?;
    windows.outputs = grad.dims().split_off(grad.rank() - spatial);
    Ok(windows)
}

fn max_pool<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Vec<Value<'b>>> {
    let x = cx.tensor("self")?;
    let windows = Windows::of_pool(cx, &x.dims(), spatial)?;
    let filled = fill_padding(x, spatial, x.dtype().max_identity());
    let (largest, index) = largest(filled, &windows, valid_positions(x, spatial));
    Ok(vec![cx.resized_like(0, largest, x), cx.resized_like(1, index.convert(DType::I64), x)])
}

fn max_pool_backward<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Value<'b>> {
    let grad = cx.tensor("grad_output")?;
    let windows = windows_of_gradient(cx, grad, spatial)?;
    let x = bounded_self(cx)?;
    if x.is_some() && !windows.is_small() {
        return Err(Error::not_implemented("large windows over bounded dimensions"));
    }
    let position = input_positions(cx, &windows, x);
    let index = fill_padding(cx.tensor("indices")?, spatial, -1);
    Ok(unpooled(fill_padding(grad, spatial, 0), index, &windows, position))
}

/// Puts each element at its index in a plane of zeros.
fn max_unpool<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Value<'b>> {
    let (x, index, sizes) = (cx.tensor("self")?, cx.tensor("indices")?, cx.dims("output_size")?);
    require_pairs(x, index);
    let extents: Vec<Extent> = sizes.iter().map(|dim| dim.extent(|size| cx.b().capacity(size))).collect();
    let extents = [&x.extents()[..x.rank() - spatial], &extents].concat();
    let capacities = Dim::capacities(&sizes);
    let mut dims = x.dims();
    let (count, plane) = (dims.split_off(dims.len() - spatial).iter().product(), capacities.iter().product());
    let planes: i64 = dims.iter().product();
    let is_known = sizes.iter().all(|dim| dim.sizes.is_empty());
    let volume = match is_known {
        true => format!("are of size {}", capacities.iter().map(i64::to_string).collect::<Vec<_>>().join("x")),
        false => format!("have {} elements", Check::SIZE),
    };
    let message = format!("Found an invalid max index: {} (output volumes {volume})", Check::NUMBER);
    let elements = sizes.iter().fold(cx.b().scalar(1, DType::I64), |product, dim| product * cx.size_of(dim));
    let all = 0..index.rank();
    let valid = index.filled(all.clone(), |index| index.builder().scalar(0, index.dtype()), "merged dimensions");
    cx.check_range(valid, elements.splat_like(0), elements, Error::runtime(message));
    let index = index.filled(all, |index| index.builder().scalar(-1, index.dtype()), "merged dimensions");
    let place = if is_known { index } else { in_capacities(cx, index, &sizes) };
    let flat = |v: Value<'b>| v.reshape(&[planes, count]);
    let zeros = cx.b().splat(0, x.dtype(), &[planes, plane]);
    let written = Places::along(1, flat(place)).write(zeros, flat(x.without_extents()), Combine::Replace);
    Ok(written.reshape(&[dims, capacities].concat()).with_extents(extents))
}

/// Places in planes of the capacities of `sizes`, from those in planes of the valid elements. Negative ones stay so.
fn in_capacities<'b>(cx: &Cx<'b>, index: Value<'b>, sizes: &[Dim]) -> Value<'b> {
    let (mut rest, mut place, mut stride) = (index, index.splat_like(0), 1);
    for dim in sizes.iter().skip(1).rev() {
        let size = cx.size_of(dim).broadcast_to(&index.dims());
        place = place + rest % size * stride;
        (rest, stride) = (rest / size, stride * dim.capacity);
    }
    index.lt(0).select(index, place + rest * stride)
}

// ---- mean ------------------------------------------------------------------------------------

fn avg_pool<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let windows = Windows::of_pool(cx, &x.dims(), spatial)?;
    let sum = sum_of_windows(fill_padding(x, spatial, 0).convert(x.dtype().opmath()), &windows);
    Ok(cx.resized_like(0, divided(cx, sum, &windows, Some(x))?.convert(x.dtype()), x))
}

fn avg_pool_backward<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Value<'b>> {
    let grad = cx.tensor("grad_output")?;
    let windows = windows_of_gradient(cx, grad, spatial)?;
    let share =
        divided(cx, fill_padding(grad, spatial, 0).convert(grad.dtype().opmath()), &windows, bounded_self(cx)?)?;
    Ok(sum_of_outputs(share, &windows).convert(grad.dtype()))
}

/// Sums over windows, divided by the number of elements that count. `x` is the input if its sizes are bounded.
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
            // In the padding of a bounded dimension there are windows without elements.
            let counted = ((start + kernel).min(end) - start.max(first)).max(1);
            divisor * counted.convert(sum.dtype())
        };
    }
    Ok(sum / divisor)
}
