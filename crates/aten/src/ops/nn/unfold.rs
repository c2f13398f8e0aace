//! Windows as columns (im2col), and its adjoint (col2im).

use stablehlo::{Number, Value};

use crate::common::windows::Windows;
use crate::cx::Cx;
use crate::error::Result;
use crate::row::{Row, one};

pub(crate) const ROWS: &[Row] = &[one(&["im2col"], im2col), one(&["col2im"], col2im)];

/// [..., channels, height, width] -> [..., channels · window, windows].
fn im2col<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let windows = Windows::of_pool(cx, &x.dims(), 2)?;
    let place = x.rank() - 2;
    let extended = windows.extend(x, Number::Int(0));
    let columns: Vec<Value<'b>> =
        windows.taps().into_iter().map(|tap| windows.inputs_at_tap(extended, &tap).unsqueeze(place)).collect();
    let mut dims = x.dims();
    dims[place - 1] *= columns.len() as i64;
    dims.truncate(place);
    dims.push(windows.outputs.iter().product());
    Ok(cx.b().concatenate(&columns, place).reshape(&dims))
}

/// The adjoint of [`im2col`]: adds all values of each element.
fn col2im<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let columns = cx.tensor("self")?;
    let windows = Windows::of_pool(cx, &cx.ints("output_size")?, 2)?;
    let taps = windows.taps();
    let place = columns.rank() - 1;
    let mut dims = columns.dims();
    dims[place - 1] /= taps.len() as i64;
    dims[place] = taps.len() as i64;
    dims.extend_from_slice(&windows.outputs);
    let columns = columns.reshape(&dims);
    let wide = columns.convert(columns.dtype().opmath());
    let outputs = taps
        .iter()
        .enumerate()
        .map(|(i, tap)| windows.outputs_at_tap(windows.dilate(wide.select_axis(place, i as i64), Number::Int(0)), tap));
    Ok(outputs.reduce(|sum, one| sum + one).unwrap_or(wide).convert(columns.dtype()))
}
