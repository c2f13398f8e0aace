//! Checks of index arguments, and PyTorch's error messages for indices out of range.

use stablehlo::{DType, Value, broadcast_dims};

use crate::check::{Check, Counts};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// PyTorch's error for an index that is out of range in dimension `axis` of `x`.
pub(crate) fn out_of_bounds(kind: ErrorKind, x: Value<'_>, axis: usize) -> Error {
    let size = if x.rank() == 0 { "1".to_owned() } else { size_text(x, &[axis]) };
    Error::new(kind, format!("index {} is out of bounds for dimension {axis} with size {size}", Check::NUMBER))
}

/// The number of elements along these dimensions for a message, or the placeholder for it if it changes.
pub(crate) fn size_text(x: Value<'_>, axes: &[usize]) -> String {
    match x.is_bounded_along(axes) {
        true => Check::SIZE.to_owned(),
        false => axes.iter().map(|&axis| x.dim(axis)).product::<i64>().to_string(),
    }
}

/// PyTorch's error of operators that do not name the index.
pub(crate) fn out_of_range() -> Error {
    Error::index("index out of range in self")
}

/// Checks that the indices of `take` and `put` are positions among the elements of `x`.
pub(crate) fn check_flat<'b>(cx: &Cx<'b>, index: Value<'b>, x: Value<'b>) -> Result<()> {
    if x.numel() == 0 && index.numel() != 0 && !index.is_bounded() {
        return Err(Error::index("index is out of range of a tensor without elements"));
    }
    let axes: Vec<usize> = (0..x.rank()).collect();
    let (number, numel) = (Check::NUMBER, size_text(x, &axes));
    let error = Error::index(format!("out of range: tried to access index {number} on a tensor of {numel} elements."));
    let count = x.count(&axes, DType::I64);
    cx.check_range(index.convert(DType::I64), -count, count, error);
    Ok(())
}

/// Whether indices into dimension `axis` of `x` are looked at. Some operators look at none where `x` has no elements, unless
/// the dimension itself has none.
pub(crate) fn looks_at_indices(x: Value<'_>, axis: usize) -> bool {
    x.numel() != 0 || x.dim(axis) == 0
}

/// Checks that the indices of advanced indexing are in range.
pub(crate) fn check_indices(cx: &Cx<'_>) -> Result<()> {
    let x = cx.tensor("self")?;
    let indices = cx.tensors_or_none("indices")?;
    let is_index = |index: &Value<'_>| matches!(index.dtype(), DType::I64 | DType::I32 | DType::U8 | DType::Bool);
    if !indices.iter().flatten().all(is_index) {
        return Err(Error::index("tensors used as indices must be long, int, byte or bool tensors"));
    }
    if selects_nothing(&indices) {
        return Ok(());
    }
    for (axis, index) in first_axes(&indices).into_iter().zip(indices) {
        if let Some(index) = index.filter(|&index| !is_mask(index) && axis < x.rank() && looks_at_indices(x, axis)) {
            cx.check_index(index, x, axis, Counts::FromBothEnds, out_of_bounds(ErrorKind::Index, x, axis))?;
        }
    }
    Ok(())
}

/// Whether the broadcast indices have no elements. PyTorch then looks at none of the indices, also where one has elements.
fn selects_nothing(indices: &[Option<Value<'_>>]) -> bool {
    let dims = |index: Value<'_>| if is_mask(index) { vec![index.numel().min(1)] } else { index.dims() };
    let shape = indices.iter().copied().flatten().try_fold(vec![], |all, index| broadcast_dims(&all, &dims(index)));
    shape.is_some_and(|shape| shape.contains(&0))
}

/// Checks that the numbers of elements that masks select broadcast with each other, with the other indices, and with the
/// values to write.
pub(crate) fn check_mask_counts<'b>(cx: &Cx<'b>, values: Option<Value<'b>>) -> Result<()> {
    let x = cx.tensor("self")?;
    let indices = cx.tensors_or_none("indices")?;
    let given = || indices.iter().copied().flatten();
    let masks: Vec<Value<'b>> = given().filter(|&index| is_mask(index)).collect();
    let Some((&first, others)) = masks.split_first() else { return Ok(()) };

    // The masks' elements are the last dimension of the broadcast indices.
    let sizes = given().filter(|&index| !is_mask(index)).map(Value::dims);
    let Some(shape) = sizes.into_iter().try_fold(vec![1], |all, dims| broadcast_dims(&all, &dims)) else {
        return Ok(()); // the row refuses it
    };
    let (length, shape) = (shape[shape.len() - 1], &shape[..shape.len() - 1]);
    if length != 1 {
        let (length, other) = match changing_length(given(), length) {
            Some(length) => (length, "that of another index".to_owned()),
            None => (cx.b().scalar(length, DType::I64), format!("[{length}]")),
        };
        for count in masks.into_iter().map(count_true) {
            cx.check_that(count.eq(1) | count.eq(length), count, not_together(&other));
        }
        return Ok(());
    }
    let (before, behind) = around_indexed(x, &indices);
    let dims = values.map(Value::dims).unwrap_or_default();
    let place = dims.len().checked_sub(behind.len() + 1).filter(|&place| dims[place] != 1);
    if others.is_empty() && place.is_none() {
        return Ok(());
    }
    let mut joint = count_true(first);
    for count in others.iter().copied().map(count_true) {
        let holds = count.eq(1) | joint.eq(1) | count.eq(joint);
        cx.check_that(holds, count, not_together("that of another mask"));
        joint = joint.eq(1).select(count, joint);
    }
    if let (Some(place), Some(values)) = (place, values) {
        // The message has all other sizes as constants.
        let changes = |axes: Vec<usize>, value: Value<'b>| value.is_bounded_along(&axes);
        if changes((0..dims.len()).filter(|&axis| axis != place).collect(), values)
            || changes(axes_without_index(x, &indices), x)
            || given().any(|index| !is_mask(index) && index.is_bounded())
        {
            cx.b().refuse_bounded("a mask and values whose other sizes change");
        }
        let text = |sizes: &[i64]| sizes.iter().map(i64::to_string).collect::<Vec<_>>();
        let result = [text(&before), text(shape), vec![Check::NUMBER.to_owned()], text(&behind)].concat();
        let mut of_values = text(&dims);
        if values.is_bounded_along(&[place]) {
            of_values[place] = Check::SIZE.to_owned();
        }
        let error = format!(
            "shape mismatch: value tensor of shape [{}] cannot be broadcast to indexing result of shape [{}]",
            of_values.join(", "),
            result.join(", ")
        );
        let length = values.size(place, DType::I64);
        cx.check_with_size(joint.eq(length), joint, length, Error::runtime(error));
    }
    Ok(())
}

/// The valid length of the last dimension of the indices that are no masks, if it changes (0-d int64). Its capacity is
/// `length`.
pub(crate) fn changing_length<'b>(indices: impl Iterator<Item = Value<'b>>, length: i64) -> Option<Value<'b>> {
    let mut numbers = indices.filter(|&index| !is_mask(index) && index.dims().last() == Some(&length));
    let index = numbers.find(|index| index.is_bounded_along(&[index.rank() - 1]))?;
    Some(index.size(index.rank() - 1, DType::I64))
}

/// The dimension of each index, which is the first one of a mask.
pub(crate) fn first_axes(indices: &[Option<Value<'_>>]) -> Vec<usize> {
    let mut end = 0;
    let first = |index: &Option<Value<'_>>| {
        let axis = end;
        end += index.filter(|&index| is_mask(index)).map_or(1, Value::rank);
        axis
    };
    indices.iter().map(first).collect()
}

/// Whether each dimension of `x` has an index.
fn is_indexed(x: Value<'_>, indices: &[Option<Value<'_>>]) -> Vec<bool> {
    let ranks = indices.iter().map(|index| index.map_or((1, false), |i| (if is_mask(i) { i.rank() } else { 1 }, true)));
    let mut is_indexed: Vec<bool> = ranks.flat_map(|(rank, given)| std::iter::repeat_n(given, rank)).collect();
    is_indexed.resize(x.rank(), false);
    is_indexed
}

fn axes_without_index(x: Value<'_>, indices: &[Option<Value<'_>>]) -> Vec<usize> {
    let given = is_indexed(x, indices).into_iter().enumerate();
    given.filter_map(|(axis, given)| (!given).then_some(axis)).collect()
}

/// The sizes of a result before and behind the dimensions of the broadcast indices.
fn around_indexed(x: Value<'_>, indices: &[Option<Value<'_>>]) -> (Vec<i64>, Vec<i64>) {
    let is_indexed = is_indexed(x, indices);
    let first = is_indexed.iter().position(|&each| each).unwrap_or(0);
    let together = is_indexed.iter().skip(first).skip_while(|&&each| each).all(|&each| !each);
    let position = if together { first } else { 0 };
    let kept: Vec<i64> = axes_without_index(x, indices).into_iter().map(|axis| x.dim(axis)).collect();
    (kept[..position].to_vec(), kept[position..].to_vec())
}

/// The number of true elements of a mask; 0-d int64.
pub(crate) fn count_true(mask: Value<'_>) -> Value<'_> {
    let axes: Vec<usize> = (0..mask.rank()).collect();
    mask.convert(DType::Bool).convert(DType::I64).reduce_sum(&axes)
}

fn not_together(other: &str) -> Error {
    Error::index(format!(
        "shape mismatch: indexing tensors could not be broadcast together with shapes [{}], {other}",
        Check::NUMBER
    ))
}

pub(crate) fn is_mask(index: Value<'_>) -> bool {
    matches!(index.dtype(), DType::Bool | DType::U8)
}
