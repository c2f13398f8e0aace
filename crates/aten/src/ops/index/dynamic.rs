//! Operators whose result size depends on the data. The result has the largest possible size, and a count gives the
//! number of valid elements. Elements after that are undefined.

use stablehlo::{DType, DTypes, Value};

use crate::common::chosen::{Chosen, segment_of_each};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::{Combine, Places, at_least_1d, rank_in_mask, take_flat, valid_elements, valid_mask};
use crate::row::{Row, many, one};
use crate::strides::contiguous_strides;

pub(crate) const ROWS: &[Row] = &[
    one(&["nonzero"], |cx| {
        let x = cx.tensor("self")?;
        let mask = x.convert(DType::Bool).zero_filled(0..x.rank(), "positions in merged dimensions");
        let chosen = Chosen::new(mask.flatten());
        cx.set_count(0, chosen.count);
        // As PyTorch's kernels have it: the coordinates of a dimension lie beside each other.
        cx.set_strides(0, vec![1, x.numel().max(1)]);
        Ok(table(cx, x.numel(), &chosen.coordinates(&x.dims())))
    })
    .bounded(),
    one(&["nonzero_static"], nonzero_static),
    one(&["masked_select"], |cx| {
        if cx.ty("mask")?.dtype != DType::Bool {
            return Err(Error::runtime("masked_select: expected BoolTensor for mask"));
        }
        let (x, mask) = cx.tensor("self")?.broadcast_with(cx.tensor("mask")?);
        let mask = valid_mask(mask, x, 0);
        let chosen = Chosen::new(mask.flatten());
        let elements = x.without_extents().flatten();
        cx.set_count(0, chosen.count);
        Ok(chosen.pack(elements, elements.splat_like(0)))
    })
    .bounded(),
    many(&["_unique"], |cx| Ok(sorted_groups(cx, cx.bool("return_inverse")?, false)?[..2].to_vec())).bounded(),
    many(&["_unique2"], |cx| sorted_groups(cx, cx.bool("return_inverse")?, cx.bool("return_counts")?))
        .takes(&["self"], DTypes::REAL)
        .bounded(),
    many(&["unique_dim"], |cx| {
        let x = cx.tensor("self")?;
        let axis = cx.axis_arg("dim", x.rank())?;
        groups_along(cx, x, axis, true)
    })
    .bounded(),
    many(&["unique_dim_consecutive"], |cx| {
        let x = cx.tensor("self")?;
        groups_along(cx, x, cx.axis_arg("dim", x.rank())?, false)
    })
    .bounded(),
    many(&["unique_consecutive"], |cx| {
        let x = cx.tensor("self")?;
        if !cx.is_none("dim") {
            return groups_along(cx, x, cx.axis_arg("dim", x.rank())?, false);
        }
        let flat = Flat::of(x);
        let groups = Groups::new(differs(flat.elements), flat.order, flat.number);
        cx.set_count(0, groups.chosen.count);
        let inverse = groups.inverse_or_none(cx.bool("return_inverse")?, x);
        let counts = groups.counts_or_none(cx, cx.bool("return_counts")?);
        Ok(vec![groups.chosen.pack(flat.elements, flat.elements), inverse, counts])
    })
    .takes(&["self"], DTypes::REAL)
    .bounded(),
    one(&["repeat_interleave.Tensor"], repeat_interleave),
];

// ---- packing -------------------------------------------------------------------------------------

/// Coordinates as the columns of an int64 matrix with `rows` rows.
fn table<'b>(cx: &Cx<'b>, rows: i64, coordinates: &[Value<'b>]) -> Value<'b> {
    if coordinates.is_empty() {
        return cx.b().splat(0, DType::I64, &[rows, 0]);
    }
    let columns: Vec<Value<'b>> = coordinates.iter().map(|c| c.convert(DType::I64).unsqueeze(1)).collect();
    cx.b().concatenate(&columns, 1)
}

fn nonzero_static<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let size = cx.int("size")?;
    if x.rank() == 0 {
        return Ok(table(cx, size, &[]));
    }
    let chosen = Chosen::new(x.convert(DType::Bool).flatten());
    let found = table(cx, x.numel(), &chosen.coordinates(&x.dims()));
    let kept = found.slice_axis(0, 0, size.min(x.numel())).pad_axis(0, 0, 0, (size - x.numel()).max(0));
    let real = cx.b().iota(DType::I64, &[size, 1], 0).lt(chosen.count);
    Ok(real.select(kept, cx.int("fill_value")?))
}

// ---- unique --------------------------------------------------------------------------------------

/// The elements of a tensor. Those of one with padding are packed: the valid elements come first.
struct Flat<'b> {
    elements: Value<'b>,
    /// The place of each element in the tensor, and the number of valid elements. `None` without padding.
    order: Option<Value<'b>>,
    number: Option<Value<'b>>,
}

impl<'b> Flat<'b> {
    fn of(x: Value<'b>) -> Flat<'b> {
        let flat = x.without_extents().flatten();
        if !x.is_bounded() {
            return Flat { elements: flat, order: None, number: None };
        }
        let valid = Chosen::new(valid_elements(x).flatten());
        let place = x.builder().iota(DType::of_counts(2 * flat.numel()), &flat.dims(), 0);
        let (order, number) = (Some(valid.pack(place, place + flat.numel())), Some(valid.count));
        Flat { elements: valid.pack(flat, flat), order, number }
    }
}

/// Groups of adjacent equal rows.
struct Groups<'b> {
    /// The first row of each group.
    chosen: Chosen<'b>,
    /// The group of each row.
    ids: Value<'b>,
    /// The index of each row before sorting.
    order: Option<Value<'b>>,
    /// The number of rows, 0-d, if there is padding behind them.
    number: Option<Value<'b>>,
}

impl<'b> Groups<'b> {
    fn new(starts: Value<'b>, order: Option<Value<'b>>, number: Option<Value<'b>>) -> Groups<'b> {
        let row = starts.builder().iota(DType::I64, &starts.dims(), 0);
        let starts = number.map_or(starts, |number| starts & row.lt(number.broadcast_to(&starts.dims())));
        Groups { chosen: Chosen::new(starts), ids: rank_in_mask(starts), order, number }
    }

    /// The group of each row, in the order before sorting.
    fn inverse(&self) -> Value<'b> {
        let ids = self.ids.convert(DType::I64);
        match self.order {
            Some(order) => Places::flat(ids.numel(), order).unique().write(ids, ids, Combine::Replace),
            None => ids,
        }
    }

    /// The group of each element of `x`, or nothing.
    fn inverse_or_none(&self, wanted: bool, x: Value<'b>) -> Value<'b> {
        match wanted {
            true => self.inverse().reshape(&x.dims()).bounded_like(x),
            false => x.builder().splat(0, DType::I64, &[0]),
        }
    }

    /// The number of rows of each group: the distance to the start of the next group.
    fn counts(&self) -> Value<'b> {
        let starts = self.chosen.positions().convert(DType::I64);
        let size = starts.numel();
        if size == 0 {
            return starts;
        }
        let next = starts.slice_axis(0, 1, size).pad_axis(0, size, 0, 1);
        self.number.map_or(next, |number| next.min(number.broadcast_to(&next.dims()))) - starts
    }

    fn counts_or_none(&self, cx: &Cx<'b>, wanted: bool) -> Value<'b> {
        if !wanted {
            return cx.b().splat(0, DType::I64, &[0]);
        }
        cx.set_count(2, self.chosen.count);
        self.counts()
    }
}

/// Whether each row differs from the row before it. True for the first row.
fn differs(rows: Value<'_>) -> Value<'_> {
    let size = rows.dim(0);
    let b = rows.builder();
    if size == 0 {
        return b.splat(false, DType::Bool, &[0]);
    }
    let mut different = rows.slice_axis(0, 1, size).ne(rows.slice_axis(0, 0, size - 1));
    if rows.rank() == 2 {
        different = different.reduce_any(&[1]);
    }
    different.pad_axis(0, true, 1, 0)
}

/// The distinct elements in ascending order. NaNs are distinct from each other.
fn sorted_groups<'b>(cx: &Cx<'b>, return_inverse: bool, return_counts: bool) -> Result<Vec<Value<'b>>> {
    let (b, x) = (cx.b(), cx.tensor("self")?);
    let flat = x.without_extents().flatten();
    let positions = b.iota(DType::of_counts(flat.numel()), &flat.dims(), 0);
    let (sorted, number) = match x.is_bounded() {
        false => (b.sort(&[flat, positions], 0, true, |a, b| a[0].sorts_before(b[0], false)), None),
        true => {
            let padding = !valid_elements(x).flatten();
            let sorted = b.sort(&[padding, flat, positions], 0, true, |x, y| {
                (!x[0] & y[0]) | (x[0].eq(y[0]) & x[1].sorts_before(y[1], false))
            });
            (sorted[1..].to_vec(), Some((!padding).convert(DType::I64).reduce_sum(&[0])))
        }
    };
    let groups = Groups::new(differs(sorted[0]), Some(sorted[1]), number);
    cx.set_count(0, groups.chosen.count);
    let inverse = groups.inverse_or_none(return_inverse, x);
    Ok(vec![groups.chosen.pack(sorted[0], sorted[0]), inverse, groups.counts_or_none(cx, return_counts)])
}

/// The slices along a dimension as the rows of a matrix.
fn rows_of(x: Value<'_>, axis: usize) -> Value<'_> {
    let x = at_least_1d(x).move_axis(axis, 0);
    let size = x.dim(0);
    let width: i64 = x.dims()[1..].iter().product();
    x.reshape(&[size, width])
}

/// The lexicographic order of the rows of a matrix: stable sorts by each column, from the last to the first.
fn lexicographic_order(rows: Value<'_>) -> Value<'_> {
    let b = rows.builder();
    let (size, width) = (rows.dim(0), rows.dim(1));
    let order = b.iota(DType::of_counts(size), &[size], 0);
    if rows.numel() == 0 {
        return order;
    }
    let column = b.scalar(width - 1, DType::I32);
    b.while_loop(
        &[column, order, rows],
        |state| state[0].ge(0),
        |state| {
            let (column, order, rows) = (state[0], state[1], state[2]);
            let zero = column.splat_like(0);
            let keys = take_flat(rows.dynamic_slice(&[zero, column], &[size, 1]).flatten(), order);
            let sorted = b.sort(&[keys, order], 0, true, |x, y| x[0].sorts_before(y[0], false));
            vec![column - 1, sorted[1], rows]
        },
    )[1]
}

/// The distinct slices along a dimension, with inverse and counts. Slices that are not sorted are compared with the one
/// before.
fn groups_along<'b>(cx: &Cx<'b>, x: Value<'b>, axis: usize, is_sorted: bool) -> Result<Vec<Value<'b>>> {
    if x.rank() == 0 {
        return Err(Error::index("Dimension specified as 0 but tensor has no dimensions"));
    }
    x.require_prefix(axis, "distinct slices along merged dimensions");
    let others = (0..x.rank()).filter(|&other| other != axis);
    let number = x.is_bounded_along(&[axis]).then(|| x.size(axis, DType::I64));
    let filled = x.zero_filled(others.clone(), "distinct slices of merged dimensions").without_extents();
    let moved = filled.move_axis(axis, 0);
    let mut rows = rows_of(moved, 0);
    let order = is_sorted.then(|| lexicographic_order(rows)).map(|order| match number {
        Some(number) => {
            let is_padding = order.ge(number.convert(order.dtype()).broadcast_to(&order.dims()));
            cx.b().sort(&[is_padding, order], 0, true, |x, y| !x[0] & y[0])[1]
        }
        None => order,
    });
    if let Some(order) = order {
        rows = Places::slices(&rows.dims(), 0, order).read(rows);
    }
    let groups = Groups::new(differs(rows), order, number);
    cx.set_count_along(0, axis, groups.chosen.count);
    cx.set_count(2, groups.chosen.count);
    // As PyTorch's kernels have it: an element along the axis lies in one piece.
    let mut strides = contiguous_strides(&moved.dims());
    let own = strides.remove(0);
    strides.insert(axis, own);
    cx.set_strides(0, strides);
    let distinct = groups.chosen.pack(rows, rows).reshape(&moved.dims()).move_axis(0, axis);
    let distinct = others.fold(distinct, |distinct, other| distinct.with_extent(other, x.extent(other)));
    Ok(vec![distinct, groups.inverse().with_extent(0, x.extent(axis)), groups.counts()])
}

// ---- repeats -------------------------------------------------------------------------------------

/// Repeats index `i` `repeats[i]` times. Without `output_size`, no bound of the length is known here.
fn repeat_interleave<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let repeats = cx.tensor("repeats")?;
    let Some(length) = cx.int_or_none("output_size") else {
        return Err(crate::error::Error::not_implemented(
            "repeat_interleave without output_size has no lowering: the size of its result depends on the data",
        ));
    };
    let b = cx.b();
    if repeats.numel() == 0 || length == 0 {
        return Ok(b.splat(0, repeats.dtype(), &[length]));
    }
    let ends = crate::places::running_sum(repeats);
    let total = ends.slice_axis(0, repeats.numel() - 1, repeats.numel()).reshape(&[]);
    let error = crate::error::Error::runtime("allocated size does not match required size");
    cx.check_that(total.eq(b.scalar(length, total.dtype())), total, error);
    // Each index starts where the previous one ends.
    Ok(segment_of_each(ends - repeats, length).convert(repeats.dtype()))
}
