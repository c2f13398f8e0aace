//! Checks of index arguments, and PyTorch's error messages for indices out of range.

use stablehlo::{DType, Value};

use crate::check::{Check, Counts};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// PyTorch's error for an index that is out of range in dimension `axis` of `x`.
pub(crate) fn out_of_bounds(kind: ErrorKind, x: Value<'_>, axis: usize) -> Error {
    let size = if x.rank() == 0 { 1 } else { x.dim(axis) };
    Error::new(kind, format!("index {} is out of bounds for dimension {axis} with size {size}", Check::NUMBER))
}

/// PyTorch's error of operators that do not name the index.
pub(crate) fn out_of_range() -> Error {
    Error::index("index out of range in self")
}

/// Checks that the indices of `take` and `put` are positions in `flat`.
pub(crate) fn check_flat<'b>(cx: &Cx<'b>, flat: Value<'b>) -> Result<()> {
    let (number, numel) = (Check::NUMBER, flat.numel());
    let error = Error::index(format!("out of range: tried to access index {number} on a tensor of {numel} elements."));
    cx.check_index(cx.tensor("index")?, flat, 0, Counts::FromBothEnds, error);
    Ok(())
}

/// Checks that the indices of advanced indexing are in range.
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
