//! Windows as columns (im2col), and its adjoint (col2im).

use stablehlo::{DType, Extent, Factor, Number, Value};

use crate::common::bounded_views;
use crate::common::pooling::fill_padding;
use crate::common::windows::Windows;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, one};
use crate::spec::Dim;

pub(crate) const ROWS: &[Row] = &[one(&["im2col"], im2col).bounded(), one(&["col2im"], col2im).bounded()];

/// [..., channels, height, width] -> [..., channels · window, windows].
fn im2col<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    if let [height, width] = cx.ints("padding")?[..]
        && height.min(width) < 0
    {
        return Err(Error::runtime(format!(
            "padding should be non-negative, but got pad_height: {height} pad_width: {width}"
        )));
    }
    let windows = Windows::of_pool(cx, &x.dims(), 2)?;
    let place = x.rank() - 2;
    let extended = windows.extend(fill_padding(x, 2, 0), Number::Int(0));
    let columns: Vec<Value<'b>> =
        windows.taps().into_iter().map(|tap| windows.inputs_at_tap(extended, &tap).unsqueeze(place)).collect();
    let mut dims = x.dims();
    dims[place - 1] *= columns.len() as i64;
    dims.truncate(place);
    let split = cx.b().concatenate(&columns, place).reshape(&[&dims[..], &windows.outputs].concat());
    let sizes = (0..2).map(|i| (x.extent(place + i), x.size(place + i, DType::I64)));
    let split = split.with_extents([&split.extents()[..place], &numbers_of_windows(cx, &windows, sizes)].concat());
    // The other sizes are those of the image and the kernel.
    let number = cx.result_dims(0).and_then(|dims| dims.last()).filter(|number| !number.sizes.is_empty());
    let flat = [&dims[..], &[windows.outputs.iter().product()]].concat();
    let sizes = split.reshaped_to(&flat).map(|extents| extents[place].sizes());
    match number {
        Some(number) if sizes.as_ref() != Some(&number.sizes) => {
            let extent = number.extent(|size| cx.b().capacity(size));
            let extents = [&split.extents()[..place], &[extent]].concat();
            Ok(bounded_views::reshape_valid(cx, split, &[&dims[..], &[number.capacity]].concat(), extents))
        }
        _ => Ok(split.reshape(&flat)),
    }
}

/// The adjoint of [`im2col`]: adds all values of each element.
fn col2im<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let columns = cx.tensor("self")?;
    let sizes = cx.dims("output_size")?;
    let windows = Windows::of_pool(cx, &Dim::capacities(&sizes), 2)?;
    let taps = windows.taps();
    let place = columns.rank() - 1;
    let columns = split_windows(cx, columns, &windows, &sizes)?;
    let mut dims = columns.dims();
    dims.splice(place - 1..place, [dims[place - 1] / taps.len() as i64, taps.len() as i64]);
    let columns = columns.reshape(&dims);
    let wide = columns.convert(columns.dtype().opmath());
    let outputs = taps
        .iter()
        .enumerate()
        .map(|(i, tap)| windows.outputs_at_tap(windows.dilate(wide.select_axis(place, i as i64), Number::Int(0)), tap));
    let sum = outputs.reduce(|sum, one| sum + one).unwrap_or(wide).convert(columns.dtype());
    let extents = sizes.iter().map(|dim| dim.extent(|size| cx.b().capacity(size))).collect::<Vec<_>>();
    Ok(sum.with_extents([&sum.extents()[..place], &extents].concat()))
}

/// Columns with the number of windows split into those of each dimension, with zeros behind the valid ones. `sizes` are
/// those of the image.
fn split_windows<'b>(cx: &Cx<'b>, columns: Value<'b>, windows: &Windows, sizes: &[Dim]) -> Result<Value<'b>> {
    let place = columns.rank() - 1;
    let dims = [&columns.dims()[..place], &windows.outputs].concat();
    let given = sizes.iter().map(|dim| (dim.extent(|size| cx.b().capacity(size)), cx.size_of(dim)));
    let numbers = numbers_of_windows(cx, windows, given);
    if numbers.iter().all(Extent::is_whole) {
        if columns.is_bounded_along(&[place]) {
            return Err(Error::not_implemented("a number of windows that changes without the size of the image"));
        }
        return Ok(columns.reshape(&dims));
    }
    let extents = [&columns.extents()[..place], &numbers].concat();
    let split = match columns.reshaped_to(&dims) {
        Some(own) if own == extents => columns.reshape(&dims),
        _ => bounded_views::reshape_valid(cx, columns, &dims, extents),
    };
    Ok(split.zero_filled(place..place + 2, "windows over merged dimensions"))
}

/// How many windows each dimension has, from its extent and its size.
fn numbers_of_windows<'b>(
    cx: &Cx<'b>,
    windows: &Windows,
    sizes: impl Iterator<Item = (Extent, Value<'b>)>,
) -> Vec<Extent> {
    let number = |(i, (extent, size)): (usize, (Extent, Value<'b>))| {
        let outside = 2 * windows.padding[i] - windows.reach(i);
        if extent.is_whole() || (outside, windows.strides[i]) == (0, 1) {
            return extent;
        }
        let capacity = windows.outputs[i];
        let number = (size + (outside - 1)) / windows.strides[i] + 1;
        Extent(vec![Factor { capacity, size: Some(cx.b().add_size(number, capacity)) }])
    };
    sizes.enumerate().map(number).collect()
}
