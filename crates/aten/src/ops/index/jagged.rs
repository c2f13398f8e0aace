//! Conversion between jagged rows (rows of different lengths, concatenated) and rows padded to one length.

use stablehlo::{DType, Value};

use crate::check::Check;
use crate::common::chosen::segment_of_each;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::{Places, narrow};
use crate::row::{Row, one};

pub(crate) const ROWS: &[Row] =
    &[one(&["_jagged_to_padded_dense_forward"], padded), one(&["_padded_dense_to_jagged_forward"], packed)];

/// The starts and the ends of the rows.
fn rows<'b>(cx: &Cx<'b>) -> Result<(Value<'b>, Value<'b>)> {
    let [offsets] = cx.tensors("offsets")?[..] else {
        return Err(Error::not_implemented("only a single jagged dimension is supported"));
    };
    if offsets.rank() != 1 || offsets.dim(0) == 0 {
        return Err(Error::runtime(format!("expected 1D offsets, but got offsets.dim() == {}", offsets.rank())));
    }
    let offsets = offsets.convert(DType::I64);
    let last = offsets.dim(0) - 1;
    Ok((offsets.slice_axis(0, 0, last), offsets.slice_axis(0, 1, last + 1)))
}

/// Pads rows to [rows, max_length, ...]. Longer rows are truncated.
fn padded<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let values = cx.tensor("values")?;
    let (starts, ends) = rows(cx)?;
    let [longest] = cx.ints("max_lengths")?[..] else {
        return Err(Error::runtime("expected one maximum length"));
    };
    let (b, size) = (cx.b(), values.dim(0));
    let dims = [&[starts.dim(0), longest], &values.dims()[1..]].concat();
    let fill = cx.scalar("padding_value", values.dtype())?.broadcast_to(&dims);
    if size == 0 {
        return Ok(fill);
    }
    let places = starts.unsqueeze(1) + b.iota(DType::I64, &dims[..2], 1);
    let is_real = places.lt(ends.unsqueeze(1));
    let found = Places::slices(&values.dims(), 0, narrow(places.clamp(0, size - 1), size)).read(values);
    let is_real = is_real.broadcast_in_dim(&dims, &[0, 1]);
    Ok(is_real.select(found, fill))
}

/// Concatenates the rows of `dense`. Without `total_L` the number of elements depends on the data.
fn packed<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let dense = cx.tensor("dense")?;
    if dense.rank() < 2 {
        return Err(Error::runtime(format!(
            "expected padded dim to be >= 2, but got padded.dim() == {}",
            dense.rank()
        )));
    }
    let (starts, ends) = rows(cx)?;
    let (count, longest) = (dense.dim(0), dense.dim(1));
    if starts.dim(0) != count {
        return Err(Error::runtime(format!(
            "expected {} offsets for {count} rows, got {}",
            count + 1,
            starts.dim(0) + 1
        )));
    }
    let b = cx.b();
    let total = if count == 0 { b.scalar(0, DType::I64) } else { ends.select_axis(0, count - 1) };
    let given = cx.int_or_none("total_L");
    let length = given.unwrap_or(count * longest);
    let (low, high) = match given {
        Some(length) => (length, length),
        None => (0, length),
    };
    cx.check_range(
        total,
        b.scalar(low, DType::I64),
        b.scalar(high + 1, DType::I64),
        Error::runtime(format!("final offset should match total_L value, got {}", Check::NUMBER)),
    );
    if given.is_none() {
        cx.set_count(0, total);
    }
    let elements = &dense.dims()[2..];
    let dims = [&[length], elements].concat();
    if length == 0 || dense.numel() == 0 {
        return Ok(b.splat(0, dense.dtype(), &dims));
    }
    let row = segment_of_each(starts, length);
    let within = b.iota(DType::I64, &[length], 0) - Places::slices(&[count], 0, row).read(starts);
    let flat = dense.reshape(&[&[count * longest], elements].concat());
    let places = row.convert(DType::I64) * longest + within.clamp(0, longest - 1);
    Ok(Places::slices(&flat.dims(), 0, narrow(places, count * longest)).read(flat))
}
