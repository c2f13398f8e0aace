//! Reading by index, and code that reading and writing by index share.
//!
//! For an index out of range, PyTorch's CPU raises an error and its CUDA kernels assert. In a program, a read returns
//! the nearest element, a write is dropped, and a check reports the index ([`crate::check`]).

use stablehlo::{DType, Value};

use super::scatter::anywhere;
use crate::check::Counts;
use crate::common::chosen::Chosen;
use crate::common::index_check::{
    changing_length, check_flat, check_indices, check_mask_counts, count_true, first_axes, is_mask, out_of_bounds,
    out_of_range,
};
use crate::common::pooling::at_capacities;
use crate::cx::{Arg, Cx};
use crate::error::{Error, ErrorKind, Result, scalar_type_name};
use crate::places::{self, Combine, Places, at_least_1d, corner, narrow, rank_in_mask, valid_mask, wrap};
use crate::row::{Row, one};
use crate::strides::{contiguous_strides, iterator_strides};

pub(crate) const ROWS: &[Row] = &[
    one(&["index.Tensor"], |cx| {
        check_indices(cx)?;
        check_mask_counts(cx, None)?;
        index(cx)
    })
    .bounded(),
    one(&["_unsafe_index.Tensor"], index).bounded(),
    one(&["index_put", "_index_put_impl", "_index_put_impl_"], |cx| {
        if cx.is_none("unsafe") || !cx.bool("unsafe")? {
            check_indices(cx)?;
            check_mask_counts(cx, Some(cx.tensor("values")?))?;
        }
        index_put(cx)
    })
    .bounded(),
    one(&["_unsafe_index_put"], index_put).bounded(),
    one(&["index_select"], index_select).bounded(),
    one(&["gather"], gather).bounded(),
    one(&["take"], |cx| {
        let x = cx.tensor("self")?;
        let flat = x.without_extents().flatten();
        Ok(Places::flat(flat.numel(), flat_index(cx, x)?).read(flat))
    })
    .bounded(),
    one(&["put", "put_"], |cx| {
        let (x, source) = (cx.tensor("self")?, cx.tensor("source")?);
        check_put(x, cx.tensor("index")?, source)?;
        let flat = x.without_extents().flatten();
        let (index, source) = (flat_index(cx, x)?.flatten(), source.flatten());
        let combine = if cx.bool("accumulate")? { Combine::Add } else { Combine::Replace };
        let written = Places::flat(flat.numel(), index).write(flat, source, combine);
        Ok(written.reshape(&x.dims()).with_extents(x.extents()))
    })
    .bounded(),
];

/// Refuses what PyTorch's kernel of `put` refuses.
fn check_put(x: Value<'_>, index: Value<'_>, source: Value<'_>) -> Result<()> {
    if index.dtype() != DType::I64 {
        let found = scalar_type_name(index.dtype());
        return Err(Error::runtime(format!("put_(): Expected a long tensor for index, but got {found}")));
    }
    if x.dtype() != source.dtype() {
        let [own, other] = [x.dtype(), source.dtype()].map(scalar_type_name);
        return Err(Error::runtime(format!(
            "put_(): self and source expected to have the same dtype, but got self.dtype = {own} and source.dtype = {other}"
        )));
    }
    let (given, wanted) = (source.numel(), index.numel());
    if given != wanted && !source.is_bounded() && !index.is_bounded() {
        return Err(Error::index(format!(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = {given}, \
             index.numel() = {wanted}"
        )));
    }
    Ok(())
}

/// The argument `index` of `take` and `put`, from the start of the flat `x` at its capacities. Indices count from both ends.
fn flat_index<'b>(cx: &Cx<'b>, x: Value<'b>) -> Result<Value<'b>> {
    let index = cx.tensor("index")?;
    check_flat(cx, index, x)?;
    if !x.is_bounded() {
        return Ok(wrap(index, x.numel()));
    }
    let axes: Vec<usize> = (0..x.rank()).collect();
    axes.iter().for_each(|&axis| x.require_prefix(axis, "a position in merged dimensions"));
    let from_start = index.lt(0).select(index + x.count(&axes, index.dtype()), index);
    Ok(at_capacities(narrow(from_start, x.numel()), x, x.rank()))
}

// ---- rows ----------------------------------------------------------------------------------------

fn index_select<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let axis = cx.axis_arg("dim", x.rank())?;
    let index = cx.tensor("index")?;
    if index.rank() > 1 {
        return Err(Error::index("index_select(): Index is supposed to be a vector"));
    }
    let index = index.flatten();
    if !matches!(index.dtype(), DType::I32 | DType::I64) {
        return Err(Error::runtime("index_select(): Expected dtype int32 or int64 for index"));
    }
    cx.check_index(index, x, axis, Counts::FromStart, out_of_range())?;
    if x.rank() == 0 {
        return match index.numel() {
            1 => Ok(x),
            n => {
                let error = format!("index_select(): Index to scalar can have only 1 value, got {n} value(s)");
                Err(Error::runtime(error))
            }
        };
    }
    Ok(Places::slices(&x.dims(), axis, narrow(index, x.dim(axis))).among_valid(x).read(x))
}

fn gather<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let index = cx.tensor("index")?;
    let axis = cx.axis_arg("dim", x.rank())?;
    cx.check_index(index, x, axis, Counts::FromStart, out_of_bounds(ErrorKind::Runtime, x, axis))?;
    let (x, places) = (at_least_1d(x), at_least_1d(index));
    let part = corner(x, axis, &places.dims());
    Ok(Places::along(axis, narrow(places, x.dim(axis))).among_valid(part).read(part).reshape(&index.dims()))
}

// ---- advanced indexing ---------------------------------------------------------------------------

/// PyTorch's `x[indices]`. Index tensors broadcast together. A mask is equivalent to the positions of its true
/// elements.
struct Advanced<'b> {
    places: Places<'b>,
    /// The dimension of the result whose size depends on masks, and the number of selected elements.
    count: Option<(usize, Value<'b>)>,
    /// Dimensions of the operand that have an index, and the index of each, all of one shape.
    indexed: Vec<usize>,
    /// Those of them that a mask covers.
    masked: Vec<usize>,
    parts: Vec<Value<'b>>,
    /// Where the dimensions of the index stand in the result.
    position: usize,
}

/// The number of elements that masks select, if other indices or the values to write give it.
struct Length<'b> {
    capacity: i64,
    /// 0-d, int64.
    valid: Value<'b>,
}

/// An index for one dimension.
enum Selector<'b> {
    Index(Value<'b>),
    /// One coordinate of the true elements of the `mask`-th mask, out of range after their count.
    Coordinate {
        values: Value<'b>,
        mask: usize,
    },
}

struct Selectors<'b> {
    /// One for each leading dimension of the operand.
    by_dim: Vec<Option<Selector<'b>>>,
    /// The number of elements that each mask selects.
    counts: Vec<Value<'b>>,
}

impl<'b> Selectors<'b> {
    fn new(operand: &[i64], indices: &[Option<Value<'b>>]) -> Result<Selectors<'b>> {
        let mut selectors = Selectors { by_dim: Vec::new(), counts: Vec::new() };
        for (place, index) in indices.iter().enumerate() {
            let dim = selectors.by_dim.len();
            match *index {
                None => selectors.by_dim.push(None),
                Some(mask) if is_mask(mask) => {
                    check_mask(operand, dim, mask, place)?;
                    let chosen = Chosen::new(mask.convert(DType::Bool).flatten());
                    let number = selectors.counts.len();
                    selectors.counts.push(chosen.count);
                    let coordinates = chosen.coordinates(&mask.dims()).into_iter();
                    selectors
                        .by_dim
                        .extend(coordinates.map(|values| Some(Selector::Coordinate { values, mask: number })));
                }
                Some(index) => {
                    let size = operand.get(dim).copied().unwrap_or(1);
                    selectors.by_dim.push(Some(Selector::Index(wrap(index, size))));
                }
            }
        }
        if selectors.by_dim.len() > operand.len() {
            return Err(Error::index(format!("too many indices for tensor of dimension {}", operand.len())));
        }
        Ok(selectors)
    }
}

fn check_mask(operand: &[i64], dim: usize, mask: Value<'_>, place: usize) -> Result<()> {
    let sizes = mask.dims();
    if sizes.is_empty() || operand.get(dim..dim + sizes.len()) != Some(sizes.as_slice()) {
        return Err(Error::index(format!(
            "The shape of the mask {sizes:?} at index {place} does not match the shape of the indexed tensor \
             {operand:?} at index {dim}"
        )));
    }
    Ok(())
}

impl<'b> Advanced<'b> {
    /// `None` if there are no indices. `known_length` gives the number of elements that the masks select, if it is
    /// known; its argument is the number of dimensions after the masks' dimension.
    fn new(
        operand: &[i64],
        indices: &[Option<Value<'b>>],
        known_length: impl FnOnce(usize) -> Option<Length<'b>>,
    ) -> Result<Option<Advanced<'b>>> {
        let Selectors { by_dim, counts } = Selectors::new(operand, indices)?;
        let indexed: Vec<usize> = (0..by_dim.len()).filter(|&i| by_dim[i].is_some()).collect();
        let (Some(&first), Some(&last)) = (indexed.first(), indexed.last()) else {
            return Ok(None);
        };
        let adjacent = last - first + 1 == indexed.len();
        let position = if adjacent { first } else { 0 };
        let behind = operand.len() - indexed.len() - position;

        let mut shape: Vec<i64> = Vec::new();
        let mut longest = 1;
        for selector in by_dim.iter().flatten() {
            match selector {
                Selector::Index(index) => shape = broadcast(&shape, &index.dims())?,
                Selector::Coordinate { values, .. } => longest = longest.max(values.numel()),
            }
        }
        let of_indices = |capacity: i64| {
            let changing = changing_length(indices.iter().copied().flatten(), capacity);
            let valid = changing.or_else(|| counts.first().map(|count| count.splat_like(capacity)))?;
            Some(Length { capacity, valid })
        };
        let of_indices = shape.last().copied().filter(|&size| size != 1).and_then(of_indices);
        let known = of_indices.or_else(|| (!counts.is_empty()).then(|| known_length(behind)).flatten());
        let length = known.as_ref().map_or(longest, |known| known.capacity);
        // A mask that selects one element broadcasts with the others.
        let joint = counts.iter().copied().reduce(|a, b| a.eq(1).select(b, a));
        let mut count = None;
        if let Some(joint) = joint {
            shape = broadcast(&shape, &[length])?;
            count = known.is_none().then_some((position + shape.len() - 1, joint));
        }
        let valid = known.as_ref().map(|known| known.valid).or(joint);
        let broadcasts = counts.len() > 1 || known.is_some();
        let parts: Vec<Value<'b>> = by_dim
            .iter()
            .flatten()
            .map(|selector| match *selector {
                Selector::Index(index) => index.broadcast_to(&shape),
                Selector::Coordinate { values, mask } => {
                    let fitted = fit(values, length);
                    if !broadcasts || length == 0 {
                        return fitted.broadcast_to(&shape);
                    }
                    let (count, first) = (counts[mask], fitted.slice_axis(0, 0, 1).broadcast_to(&[length]));
                    // With another number of elements, a check fails, and nothing is written.
                    let nowhere = fitted.splat_like(fitted.dtype().highest());
                    let fitted = valid.map_or(fitted, |valid| count.eq(valid).select(fitted, nowhere));
                    count.eq(1).select(first, fitted).broadcast_to(&shape)
                }
            })
            .collect();
        let is_of_mask = |&axis: &usize| matches!(by_dim[axis], Some(Selector::Coordinate { .. }));
        let masked: Vec<usize> = indexed.iter().copied().filter(is_of_mask).collect();
        let places = Places::windows(operand, &indexed, stack(&parts), shape.len(), position).at_positions(&masked);
        Ok(Some(Advanced { places, count, indexed, masked, parts, position }))
    }

    /// The strides of the elements that are read from an operand of the given strides.
    fn strides(&self, operand: &[i64]) -> Vec<i64> {
        let (shape, index) = (self.places.shape(), self.parts[0].dims());
        let mut of_operand: Vec<i64> =
            (0..operand.len()).filter(|axis| !self.indexed.contains(axis)).map(|axis| operand[axis]).collect();
        of_operand.splice(self.position..self.position, vec![0; index.len()]);
        let mut of_index = vec![0; shape.len()];
        of_index[self.position..self.position + index.len()].copy_from_slice(&contiguous_strides(&index));
        iterator_strides(shape, &[of_operand, of_index])
    }

    /// The places of a small write as rows, if a dimension without an index stands before one that has an index.
    ///
    /// XLA's scatter moves indexed dimensions to the front, which copies the whole operand before and after the write.
    /// With an index for each dimension up to the last indexed one, nothing moves, and a donated operand is written
    /// in place. Each row is one step of a loop, so this form is for writes that are small beside the operand.
    fn rows(&self, operand: Value<'b>) -> Option<Rows<'b>> {
        let last = *self.indexed.last()?;
        let between: Vec<usize> = (0..last).filter(|axis| !self.indexed.contains(axis)).collect();
        if between.is_empty() || operand.is_bounded_along(&between) {
            return None;
        }
        let dims = operand.dims();
        let index = self.parts[0].dims();
        let mut shape = index.clone();
        shape.extend(between.iter().map(|&axis| dims[axis]));
        let rows: i64 = shape.iter().product();
        if rows.saturating_mul(ELEMENTS_PER_ROW) > operand.numel() {
            return None;
        }
        let b = operand.builder();
        let mut given = self.parts.iter();
        let components: Vec<Value<'b>> = (0..=last)
            .map(|axis| match between.iter().position(|&each| each == axis) {
                Some(place) => b.iota(DType::I32, &shape, index.len() + place),
                None => {
                    let part = given.next().expect("an index for each indexed dimension");
                    let axes: Vec<usize> = (0..index.len()).collect();
                    part.broadcast_in_dim(&shape, &axes)
                }
            })
            .collect();
        let indexed: Vec<usize> = (0..=last).collect();
        let places = Places::windows(&dims, &indexed, stack(&components), shape.len(), 0).at_positions(&self.masked);
        // The dimensions of the index first, then those between, then the rest.
        let (from, to) = (self.position, self.position + index.len());
        let mut order: Vec<usize> = (from..to).collect();
        order.extend((0..self.places.shape().len()).filter(|axis| !(from..to).contains(axis)));
        Some(Rows { places, order })
    }
}

/// How many elements of the operand are copied in the time in which a row is written.
const ELEMENTS_PER_ROW: i64 = 32;

/// Places with an index for each leading dimension, and the order of the updates' dimensions for them.
struct Rows<'b> {
    places: Places<'b>,
    order: Vec<usize>,
}

impl<'b> Rows<'b> {
    fn write(self, operand: Value<'b>, updates: Value<'b>, combine: Combine) -> Value<'b> {
        self.places.among_valid(operand).write(operand, updates.transpose(&self.order), combine)
    }
}

/// Index vectors from their components. A single component is not stacked.
fn stack<'b>(components: &[Value<'b>]) -> Value<'b> {
    if let [single] = components {
        return *single;
    }
    let wide = components.iter().any(|part| part.dtype() == DType::I64);
    let dtype = if wide { DType::I64 } else { DType::I32 };
    let rank = components[0].rank();
    let columns: Vec<Value<'b>> = components.iter().map(|part| part.convert(dtype).unsqueeze(rank)).collect();
    components[0].builder().concatenate(&columns, rank)
}

/// A vector of `length`: truncated, or padded with indices that are out of range.
fn fit(coordinate: Value<'_>, length: i64) -> Value<'_> {
    let size = coordinate.numel();
    if size >= length {
        coordinate.slice_axis(0, 0, length)
    } else {
        coordinate.pad_axis(0, coordinate.dtype().highest(), 0, length - size)
    }
}

fn broadcast(a: &[i64], b: &[i64]) -> Result<Vec<i64>> {
    stablehlo::broadcast_dims(a, b).ok_or_else(|| {
        Error::index(format!(
            "shape mismatch: indexing tensors could not be broadcast together with shapes {a:?}, {b:?}"
        ))
    })
}

fn index<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let indices = from_start(x, cx.tensors_or_none("indices")?);
    let Some(advanced) = Advanced::new(&x.dims(), &indices, |_| None)? else {
        return Ok(x);
    };
    if let Some((axis, count)) = advanced.count {
        cx.set_count_along(0, axis, count);
        if let Arg::Tensor(spec) = cx.arg("self") {
            cx.set_strides(0, advanced.strides(&spec.strides));
        }
    }
    Ok(advanced.places.among_valid(x).read(x))
}

/// Makes negative indices non-negative in bounded dimensions: they count from the end of the valid elements. Masks select
/// none of the padding.
fn from_start<'b>(x: Value<'b>, mut indices: Vec<Option<Value<'b>>>) -> Vec<Option<Value<'b>>> {
    for (axis, place) in first_axes(&indices).into_iter().zip(&mut indices) {
        let Some(index) = place else { continue };
        if is_mask(*index) {
            if axis + index.rank() <= x.rank() && (x.is_bounded() || index.is_bounded()) {
                *place = Some(valid_mask(*index, x, axis));
            }
        } else if axis < x.rank() && x.is_bounded_along(&[axis]) {
            *place = Some(places::from_start(*index, x, axis));
        }
    }
    indices
}

fn index_put<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let shown = cx.tensor("self")?;
    let values = cx.fitting("values", shown.dtype())?;
    let combine = if cx.bool("accumulate")? { Combine::Add } else { Combine::Replace };
    let mut indices = from_start(shown, cx.tensors_or_none("indices")?);
    if let Some((axis, mask)) = single_mask(&indices)
        && combine == Combine::Replace
        && values.numel() == 1
        && values.rank() + mask.rank() <= shown.rank() + 1
    {
        check_mask(&shown.dims(), axis, mask, axis)?;
        let filled = anywhere(cx, broadcast_mask(mask.convert(DType::Bool), axis, &shown.dims()));
        return Ok(filled.select(values.reshape(&[]).broadcast_to(&shown.dims()), shown));
    }
    let given = cx.ty("values")?.dtype;
    if given != shown.dtype() {
        let [destination, source] = [shown.dtype(), given].map(scalar_type_name);
        return Err(Error::runtime(format!(
            "Index put requires the source and destination dtypes match, got {destination} for the destination and \
             {source} for the source."
        )));
    }
    // PyTorch writes to expanded tensors as well: all positions along such a dimension are the same memory.
    let mut x = shown;
    for axis in cx.overlapping_axes("self") {
        if indices.iter().flatten().any(|index| is_mask(*index)) {
            return Err(Error::runtime(OVERLAP));
        }
        if let Some(Some(index)) = indices.get_mut(axis) {
            *index = index.splat_like(0);
            x = x.slice_axis(axis, 0, 1);
        }
    }
    Ok(put(x, &indices, values, combine)?.broadcast_to(&shown.dims()))
}

const OVERLAP: &str = "unsupported operation: more than one element of the written-to tensor refers to a single memory \
                       location. Please clone() the tensor before performing the operation.";

/// The only index, and its dimension, if it is a mask.
fn single_mask<'b>(indices: &[Option<Value<'b>>]) -> Option<(usize, Value<'b>)> {
    let mut given = indices.iter().enumerate().filter_map(|(i, index)| index.map(|index| (i, index)));
    let only = given.next().filter(|_| given.next().is_none());
    only.filter(|(_, index)| is_mask(*index))
}

fn put<'b>(x: Value<'b>, indices: &[Option<Value<'b>>], values: Value<'b>, combine: Combine) -> Result<Value<'b>> {
    if let Some((axis, mask)) = single_mask(indices) {
        check_mask(&x.dims(), axis, mask, axis)?;
        let mask = mask.convert(DType::Bool);
        let new = spread_over_mask(&x.dims(), axis, mask, values);
        let mask = mask_that_fits(&x.dims(), axis, mask, values);
        return Ok(broadcast_mask(mask, axis, &x.dims()).select(combine.apply(x, new), x));
    }
    let values_length = |behind: usize| {
        let axis = values.rank().checked_sub(behind + 1).filter(|&axis| values.dim(axis) != 1)?;
        Some(Length { capacity: values.dim(axis), valid: values.size(axis, DType::I64) })
    };
    let Some(advanced) = Advanced::new(&x.dims(), indices, values_length)? else {
        return Ok(combine.apply(x, values.broadcast_to(&x.dims())));
    };
    let mut updates = values.broadcast_to(advanced.places.shape());
    if !advanced.masked.is_empty() && !advanced.parts[0].is_bounded_along(&[advanced.parts[0].rank() - 1]) {
        // Behind the masks' elements the indices are out of range.
        updates = updates.whole_along(advanced.position + advanced.parts[0].rank() - 1);
    }
    Ok(match advanced.rows(x) {
        Some(rows) => rows.write(x, updates, combine),
        None => advanced.places.among_valid(x).write(x, updates, combine),
    })
}

/// A mask over the dimensions of `sizes` from `axis` on, broadcast to `sizes`.
fn broadcast_mask<'b>(mask: Value<'b>, axis: usize, sizes: &[i64]) -> Value<'b> {
    let axes: Vec<usize> = (axis..axis + mask.rank()).collect();
    mask.broadcast_in_dim(sizes, &axes)
}

/// The dimension of `values` for the elements that a mask selects, if they have it. The mask covers dimensions of `sizes`
/// from `axis` on.
fn place_of_selected(sizes: &[i64], axis: usize, mask: Value<'_>, values: Value<'_>) -> Option<usize> {
    let behind = sizes.len() - axis - mask.rank();
    values.rank().checked_sub(behind + 1)
}

/// The mask, or nothing of it if it selects another number of elements than the values have. A check then fails.
fn mask_that_fits<'b>(sizes: &[i64], axis: usize, mask: Value<'b>, values: Value<'b>) -> Value<'b> {
    match place_of_selected(sizes, axis, mask, values).filter(|&place| values.dim(place) != 1) {
        Some(place) => mask & count_true(mask).eq(values.size(place, DType::I64)).broadcast_to(&mask.dims()),
        None => mask,
    }
}

/// Moves values to the true elements of a mask that covers dimensions of `sizes` from `axis` on. Values that do not
/// depend on the element broadcast. Others are gathered by the element's rank among the true elements, which is
/// faster than a scatter by position.
fn spread_over_mask<'b>(sizes: &[i64], axis: usize, mask: Value<'b>, values: Value<'b>) -> Value<'b> {
    let Some(place) = place_of_selected(sizes, axis, mask, values) else {
        return values.broadcast_to(sizes);
    };
    let dims = values.dims();
    let spread = if dims[place] == 1 {
        let mut dims = dims;
        dims.splice(place..place + 1, vec![1; mask.rank()]);
        values.reshape(&dims)
    } else {
        Places::slices(&dims, place, rank_in_mask(mask)).among_valid(values).read(values)
    };
    spread.broadcast_to(sizes)
}
