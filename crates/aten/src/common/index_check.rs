//! What operators ask of indices, and PyTorch's words for those that are out of range.

use stablehlo::{DType, Value};

use crate::check::{Check, Counts};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// PyTorch's words for an index that dimension `axis` of `x` does not have.
pub(crate) fn out_of_bounds(kind: ErrorKind, x: Value<'_>, axis: usize) -> Error {
    let size = if x.rank() == 0 { 1 } else { x.dim(axis) };
    Error::new(kind, format!("index {} is out of bounds for dimension {axis} with size {size}", Check::NUMBER))
}

/// Its words where an operator does not name the index.
pub(crate) fn out_of_range() -> Error {
    Error::index("index out of range in self")
}

/// Asks that the indices of `take` and `put` be places in `flat`.
pub(crate) fn check_flat<'b>(cx: &Cx<'b>, flat: Value<'b>) -> Result<()> {
    let (number, numel) = (Check::NUMBER, flat.numel());
    let error = Error::index(format!("out of range: tried to access index {number} on a tensor of {numel} elements."));
    cx.check_index(cx.tensor("index")?, flat, 0, Counts::FromBothEnds, error);
    Ok(())
}

/// Asks that the indices of advanced indexing be places in their dimensions.
pub(crate) fn check_indices(cx: &Cx<'_>) -> Result<()> {
    let x = cx.tensor("self")?;
    let mut axis = 0;
    for index in cx.tensors_or_none("indices")? {
        match index {
            Some(mask) if is_mask(mask) => axis += mask.rank(),
            Some(index) if axis < x.rank() => {
                cx.check_index(index, x, axis, Counts::FromBothEnds, out_of_bounds(ErrorKind::Index, x, axis));
                axis += 1;
            }
            _ => axis += 1,
        }
    }
    Ok(())
}

pub(crate) fn is_mask(index: Value<'_>) -> bool {
    matches!(index.dtype(), DType::Bool | DType::U8)
}
