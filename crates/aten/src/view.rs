//! Reads and writes of strided views of N-d values.
//!
//! A storage holds a dense row-major value. A tensor is sizes, strides and an offset over it. Reads and writes become
//! slices of the value where the strides allow it, which is nearly always: a flat buffer would force a TPU to change
//! the layout.

use stablehlo::{DType, Type, Value, count_by};

use crate::places::{Combine, Places};
use crate::spec::TensorSpec;
use crate::strides::{contiguous_strides, memory_order};

/// A view in which each dimension steps through one dimension of the base, a different one for each.
struct Slices {
    /// Of the base.
    dims: Vec<i64>,
    starts: Vec<i64>,
    limits: Vec<i64>,
    steps: Vec<i64>,
    /// For each dimension of the view, the dimension of the base that it steps through. `None` for broadcast and
    /// size-1 dimensions.
    axes: Vec<Option<usize>>,
}

impl Slices {
    fn find(base: &[i64], spec: &TensorSpec) -> Option<Slices> {
        let strides = contiguous_strides(base);
        let starts: Vec<i64> =
            (0..base.len()).map(|j| if base[j] <= 1 { 0 } else { spec.offset / strides[j] % base[j] }).collect();
        let reached: i64 = starts.iter().zip(&strides).map(|(start, stride)| start * stride).sum();
        if reached != spec.offset {
            return None;
        }
        let mut slices = Slices {
            dims: base.to_vec(),
            limits: starts.iter().map(|s| s + 1).collect(),
            starts,
            steps: vec![1; base.len()],
            axes: vec![None; spec.sizes.len()],
        };
        for (i, (&size, &stride)) in spec.sizes.iter().zip(&spec.strides).enumerate() {
            if size == 1 || stride == 0 {
                continue;
            }
            let j = (0..base.len()).find(|&j| {
                base[j] > 1
                    && stride % strides[j] == 0
                    && slices.starts[j] + (size - 1) * (stride / strides[j]) < base[j]
                    && !slices.axes.contains(&Some(j))
            })?;
            slices.steps[j] = stride / strides[j];
            slices.limits[j] = slices.starts[j] + (size - 1) * slices.steps[j] + 1;
            slices.axes[i] = Some(j);
        }
        Some(slices)
    }

    /// The dimensions of the base that the view steps through, in the base's order.
    fn walked(&self) -> Vec<usize> {
        let mut walked: Vec<usize> = self.axes.iter().flatten().copied().collect();
        walked.sort_unstable();
        walked
    }

    /// `starts` for an offset that is an input of the program.
    fn starts_at<'b>(&self, offset: Value<'b>) -> Vec<Value<'b>> {
        let strides = contiguous_strides(&self.dims);
        (0..self.dims.len()).map(|j| offset / strides[j] % self.dims[j].max(1)).collect()
    }

    /// The length that the view covers in each dimension of the base, steps included.
    fn spans(&self) -> Vec<i64> {
        self.starts.iter().zip(&self.limits).map(|(start, limit)| limit - start).collect()
    }

    fn read<'b>(&self, base: Value<'b>, sizes: &[i64], offset: Option<Value<'b>>) -> Value<'b> {
        let cut = match offset {
            Some(offset) => {
                let spans = self.spans();
                let whole = base.dynamic_slice(&self.starts_at(offset), &spans);
                whole.slice(&vec![0; spans.len()], &spans, &self.steps)
            }
            None => base.slice(&self.starts, &self.limits, &self.steps),
        };
        let walked = self.walked();
        let extents: Vec<i64> = walked.iter().map(|&j| cut.dim(j)).collect();
        from_walked(cut.reshape(&extents), &self.axes, &walked, sizes)
    }

    fn write<'b>(&self, base: Value<'b>, value: Value<'b>, offset: Option<Value<'b>>) -> Value<'b> {
        let extents: Vec<i64> =
            (0..self.dims.len()).map(|j| count_by(self.limits[j] - self.starts[j], self.steps[j])).collect();
        let boxed = to_walked(value, &self.axes, &self.walked()).reshape(&extents);
        let b = base.builder();
        if extents == self.dims {
            return boxed;
        }
        let starts = match offset {
            Some(offset) => self.starts_at(offset),
            None => {
                let dtype = DType::of_counts(self.dims.iter().copied().max().unwrap_or(0));
                self.starts.iter().map(|&start| b.scalar(start, dtype)).collect()
            }
        };
        if self.steps.iter().all(|&step| step == 1) {
            return base.dynamic_update_slice(boxed, &starts);
        }
        // The old elements between the steps are kept.
        let (none, interior) = (vec![0; extents.len()], self.steps.iter().map(|step| step - 1).collect::<Vec<_>>());
        let spread = |v: Value<'b>| v.pad(0, &none, &none, &interior);
        let old = base.dynamic_slice(&starts, &self.spans());
        let new = spread(b.splat(true, DType::Bool, &extents)).select(spread(boxed), old);
        base.dynamic_update_slice(new, &starts)
    }
}

/// Converts a value with the dimensions `walked` of the base to the view's `sizes`. `axes` gives the dimension of the
/// base for each dimension of the view.
fn from_walked<'b>(core: Value<'b>, axes: &[Option<usize>], walked: &[usize], sizes: &[i64]) -> Value<'b> {
    let view_dims: Vec<usize> = (0..sizes.len()).filter(|&i| axes[i].is_some()).collect();
    let order: Vec<usize> = view_dims.iter().filter_map(|&i| walked.iter().position(|&j| Some(j) == axes[i])).collect();
    core.transpose(&order).broadcast_in_dim(sizes, &view_dims)
}

/// The inverse of [`from_walked`]. Only the first element of a broadcast dimension is kept; PyTorch refuses to write
/// such views.
fn to_walked<'b>(value: Value<'b>, axes: &[Option<usize>], walked: &[usize]) -> Value<'b> {
    let sizes = value.dims();
    let view_dims: Vec<usize> = (0..sizes.len()).filter(|&i| axes[i].is_some()).collect();
    let limits: Vec<i64> = (0..sizes.len()).map(|i| if axes[i].is_some() { sizes[i] } else { 1 }).collect();
    let core_dims: Vec<i64> = view_dims.iter().map(|&i| sizes[i]).collect();
    let core = value.slice(&vec![0; sizes.len()], &limits, &vec![1; sizes.len()]).reshape(&core_dims);
    let order: Vec<usize> = walked.iter().filter_map(|&j| view_dims.iter().position(|&i| axes[i] == Some(j))).collect();
    core.transpose(&order)
}

/// A view that splits the flat base along its own strides. The largest stride splits it into rows, the next stride
/// splits each row, and so on. A diagonal is such a view: its stride is one more than a row.
struct Cuts {
    cuts: Vec<Cut>,
    /// The index of the view's elements in the rest after the last cut.
    last: i64,
    /// For each dimension of the view, its index in `cuts`.
    axes: Vec<Option<usize>>,
}

/// Rows of `stride` elements. The view has `size` of them, from row `start` on.
struct Cut {
    stride: i64,
    start: i64,
    size: i64,
}

impl Cuts {
    fn find(numel: i64, spec: &TensorSpec) -> Option<Cuts> {
        let mut walked: Vec<usize> =
            (0..spec.sizes.len()).filter(|&i| spec.sizes[i] > 1 && spec.strides[i] != 0).collect();
        walked.sort_by_key(|&i| std::cmp::Reverse(spec.strides[i]));
        let mut cuts = Cuts { cuts: Vec::new(), last: spec.offset, axes: vec![None; spec.sizes.len()] };
        let mut reach: i64 = walked.iter().map(|&i| (spec.sizes[i] - 1) * spec.strides[i]).sum();
        let mut length = numel;
        for (place, &i) in walked.iter().enumerate() {
            let (size, stride) = (spec.sizes[i], spec.strides[i]);
            // This stride and the smaller ones must stay within one row of the previous stride.
            if cuts.last + reach >= length {
                return None;
            }
            cuts.cuts.push(Cut { stride, start: cuts.last / stride, size });
            cuts.axes[i] = Some(place);
            cuts.last %= stride;
            reach -= (size - 1) * stride;
            length = stride;
        }
        (cuts.last < length).then_some(cuts)
    }

    fn walked(&self) -> Vec<usize> {
        (0..self.cuts.len()).collect()
    }

    fn read<'b>(&self, flat: Value<'b>, sizes: &[i64]) -> Value<'b> {
        let rows = self.cuts.iter().fold(flat, |rows, cut| cut.rows(rows));
        let core = rows.select_axis(self.cuts.len(), self.last);
        from_walked(core, &self.axes, &self.walked(), sizes)
    }

    fn write<'b>(&self, flat: Value<'b>, value: Value<'b>) -> Value<'b> {
        self.write_cuts(&self.cuts, flat, to_walked(value, &self.axes, &self.walked()))
    }

    /// `whole` after writing `core` below the given cuts of its last dimension.
    fn write_cuts<'b>(&self, cuts: &[Cut], whole: Value<'b>, core: Value<'b>) -> Value<'b> {
        let axis = whole.rank() - 1;
        let Some((cut, finer)) = cuts.split_first() else {
            return update_axis(whole, axis, self.last, core.unsqueeze(axis));
        };
        let old = cut.rows(whole);
        let new = self.write_cuts(finer, old, core);
        let (start, limit) = cut.extent(whole.dim(axis));
        let mut dims = whole.dims();
        dims[axis] = new.dim(axis) * new.dim(axis + 1);
        update_axis(whole, axis, start, new.reshape(&dims).slice_axis(axis, 0, limit - start))
    }
}

impl Cut {
    /// The start and end of the rows in a dimension of `length`. The last row may be incomplete.
    fn extent(&self, length: i64) -> (i64, i64) {
        (self.start * self.stride, ((self.start + self.size) * self.stride).min(length))
    }

    /// The last dimension split into rows.
    fn rows<'b>(&self, whole: Value<'b>) -> Value<'b> {
        let axis = whole.rank() - 1;
        let (start, limit) = self.extent(whole.dim(axis));
        let missing = self.size * self.stride - (limit - start);
        let mut dims = whole.dims();
        dims.splice(axis.., [self.size, self.stride]);
        whole.slice_axis(axis, start, limit).pad_axis(axis, 0, 0, missing).reshape(&dims)
    }
}

/// `whole` with `part` written at `start` along `axis`.
fn update_axis<'b>(whole: Value<'b>, axis: usize, start: i64, part: Value<'b>) -> Value<'b> {
    if part.dim(axis) == whole.dim(axis) {
        return part;
    }
    let b = whole.builder();
    let starts: Vec<Value<'b>> =
        (0..whole.rank()).map(|i| b.scalar(if i == axis { start } else { 0 }, DType::I64)).collect();
    whole.dynamic_update_slice(part, &starts)
}

/// The flat positions of a view's elements, with the view's shape.
fn positions<'b>(base: Value<'b>, spec: &TensorSpec) -> Value<'b> {
    let b = base.builder();
    let dtype = DType::of_counts(base.numel());
    let mut index = b.splat(spec.offset, dtype, &spec.sizes);
    for (i, &stride) in spec.strides.iter().enumerate() {
        if stride != 0 && spec.sizes[i] > 1 {
            index = index + b.iota(dtype, &spec.sizes, i) * stride;
        }
    }
    index
}

/// Reads a view whose elements overlap, such as sliding windows: runs along the smallest stride, starting at the
/// positions that the other strides give.
fn read_runs<'b>(flat: Value<'b>, spec: &TensorSpec) -> Value<'b> {
    let walked = (0..spec.sizes.len()).filter(|&i| spec.sizes[i] > 1 && spec.strides[i] != 0);
    let Some(inner) = walked.min_by_key(|&i| spec.strides[i]) else {
        return Places::flat(flat.numel(), positions(flat, spec)).read(flat);
    };
    let mut starts = spec.clone();
    let (size, stride) = (starts.sizes.remove(inner), starts.strides.remove(inner));
    let length = (size - 1) * stride + 1;
    let first = positions(flat, &starts).flatten();
    let runs = Places::runs(&[flat.numel()], 0, first, length).read(flat).slice_axis_by(1, 0, length, stride);
    let mut dims = starts.sizes;
    dims.push(size);
    runs.reshape(&dims).move_axis(dims.len() - 1, inner)
}

/// If the view covers each element of the base exactly once: the order of its dimensions.
fn covers(base: &Type, spec: &TensorSpec) -> Option<Vec<usize>> {
    let numel: i64 = spec.sizes.iter().product();
    if spec.offset != 0 || numel != base.numel() || spec.dtype != base.dtype {
        return None;
    }
    memory_order(&spec.sizes, &spec.strides)
}

fn invert(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    for (place, &i) in order.iter().enumerate() {
        inverse[i] = place;
    }
    inverse
}

fn permuted(sizes: &[i64], order: &[usize]) -> Vec<i64> {
    order.iter().map(|&i| sizes[i]).collect()
}

/// Views of the same sizes, strides and class share one program that takes the offset as an input.
pub struct OffsetClass {
    pub tokens: Vec<u64>,
    /// Whether a read costs as much as at a constant offset. The program reads the gaps of a view, too, if the view is no
    /// block of its storage's dimensions.
    pub is_cheap: bool,
}

/// The class of a view's offset. `None` if the program depends on the offset. A view at the start of its storage counts
/// only with `from_start`.
pub fn offset_class(base: &Type, spec: &TensorSpec, from_start: bool) -> Option<OffsetClass> {
    let is_fixed = spec.offset == 0 && (!from_start || covers(base, spec).is_some());
    if is_fixed || spec.sizes.contains(&0) {
        return None;
    }
    if let Some(slices) = Slices::find(&reinterpreted(base, spec.dtype).dims, spec) {
        let tokens = slices.axes.iter().map(|axis| axis.map_or(0, |j| j as u64 + 1)).collect();
        return Some(OffsetClass { tokens, is_cheap: true });
    }
    let has_gaps = |piece: &Piece| piece.length > spec.sizes.iter().product();
    Piece::of(spec).map(|piece| OffsetClass { tokens: vec![u64::MAX], is_cheap: !has_gaps(&piece) })
}

/// The memory from a view's first element to its last, and the cuts that make it the view.
struct Piece {
    length: i64,
    cuts: Cuts,
}

impl Piece {
    fn of(spec: &TensorSpec) -> Option<Piece> {
        let reach: i64 = spec.sizes.iter().zip(&spec.strides).map(|(size, stride)| (size - 1) * stride).sum();
        let cuts = Cuts::find(reach + 1, &TensorSpec { offset: 0, ..spec.clone() })?;
        Some(Piece { length: reach + 1, cuts })
    }

    fn read<'b>(&self, flat: Value<'b>, sizes: &[i64], offset: Value<'b>) -> Value<'b> {
        self.cuts.read(flat.dynamic_slice(&[offset], &[self.length]), sizes)
    }

    fn write<'b>(&self, flat: Value<'b>, value: Value<'b>, offset: Value<'b>) -> Value<'b> {
        let old = flat.dynamic_slice(&[offset], &[self.length]);
        flat.dynamic_update_slice(self.cuts.write(old, value), &[offset])
    }
}

/// The value of the view `spec` of `base`. `offset` is given if it is an input of the program.
pub fn read<'b>(base: Value<'b>, spec: &TensorSpec, offset: Option<Value<'b>>) -> Value<'b> {
    if spec.sizes.contains(&0) || base.numel() == 0 {
        return base.builder().splat(0, spec.dtype, &spec.sizes);
    }
    if let Some(order) = covers(&base.ty(), spec) {
        return base.reshape(&permuted(&spec.sizes, &order)).transpose(&invert(&order));
    }
    let base = reinterpret(base, spec.dtype);
    if let Some(slices) = Slices::find(&base.dims(), spec) {
        slices.read(base, &spec.sizes, offset)
    } else if let Some((piece, offset)) = Piece::of(spec).zip(offset) {
        piece.read(base.flatten(), &spec.sizes, offset)
    } else if let Some(cuts) = Cuts::find(base.numel(), spec) {
        cuts.read(base.flatten(), &spec.sizes)
    } else {
        read_runs(base.flatten(), spec)
    }
}

/// Applies a tensor's lazy conjugation and negation. Both are their own inverse, so this also gives the value to
/// store for the tensor to show `value`.
pub fn shown<'b>(value: Value<'b>, spec: &TensorSpec) -> Value<'b> {
    let value = if spec.is_conj { value.conjugate() } else { value };
    if spec.is_neg { -value } else { value }
}

/// `base` after writing `value` (of the view's sizes and dtype) through the view. `offset` is given if it is an input
/// of the program.
pub fn write<'b>(
    base: Option<Value<'b>>,
    nbytes: usize,
    spec: &TensorSpec,
    value: Value<'b>,
    offset: Option<Value<'b>>,
) -> Value<'b> {
    let b = value.builder();
    let flat = Type::new(spec.dtype, &[(nbytes / spec.dtype.size_bytes()) as i64]);
    let ty = base.map_or(flat, |v| v.ty());
    if let Some(order) = covers(&ty, spec) {
        return value.transpose(&order);
    }
    let base = base.unwrap_or_else(|| b.splat(0, ty.dtype, &ty.dims));
    if spec.sizes.contains(&0) || base.numel() == 0 {
        return base;
    }
    let typed = reinterpret(base, spec.dtype);
    let written = if let Some(slices) = Slices::find(&typed.dims(), spec) {
        slices.write(typed, value, offset)
    } else if let Some((piece, offset)) = Piece::of(spec).zip(offset) {
        piece.write(typed.flatten(), value, offset).reshape(&typed.dims())
    } else if let Some(cuts) = Cuts::find(typed.numel(), spec) {
        cuts.write(typed.flatten(), value).reshape(&typed.dims())
    } else {
        let places = Places::flat(typed.numel(), positions(typed, spec).flatten());
        places.write(typed.flatten(), value.flatten(), Combine::Replace).reshape(&typed.dims())
    };
    if written.dtype() == ty.dtype {
        return written;
    }
    // Bytes after the last whole element of the other type keep their old value.
    let back = reinterpret(written, ty.dtype).flatten();
    let (covered, numel) = (back.numel().min(base.numel()), base.numel());
    let whole =
        if covered == numel { back } else { b.concatenate(&[back, base.flatten().slice_axis(0, covered, numel)], 0) };
    whole.reshape(&ty.dims)
}

/// The form in which a storage holds a value. One element has no dimensions, so that programs do not depend on the number of
/// dimensions of the view that made it: `cat` of losses and of `loss.view(1)` is one program.
pub fn stored(value: Value<'_>) -> Value<'_> {
    if value.is_bounded() { value } else { value.reshape(&stored_type(&value.ty()).dims) }
}

/// The type of [`stored`] values.
pub fn stored_type(ty: &Type) -> Type {
    if ty.dims.iter().all(|&size| size == 1) { Type::new(ty.dtype, &[]) } else { ty.clone() }
}

/// Whether [`write`] needs the old value.
pub fn write_reads_base(base: Option<&Type>, nbytes: usize, spec: &TensorSpec) -> bool {
    match base {
        Some(ty) => covers(ty, spec).is_none(),
        None => nbytes == usize::MAX,
    }
}

/// Complex numbers as their real and imaginary parts, which are a new last dimension.
pub(crate) fn parts_of(x: Value<'_>) -> Value<'_> {
    let last = x.rank();
    x.builder().concatenate(&[x.real().unsqueeze(last), x.imag().unsqueeze(last)], last)
}

/// The complex numbers whose real and imaginary parts are the last dimension of `parts`.
pub(crate) fn of_parts(parts: Value<'_>) -> Value<'_> {
    let last = parts.rank().saturating_sub(1);
    parts.select_axis(last, 0).complex(parts.select_axis(last, 1))
}

/// The type of [`reinterpret`].
fn reinterpreted(base: &Type, dtype: DType) -> Type {
    if base.dtype == dtype {
        return base.clone();
    }
    let bytes = base.numel() * base.dtype.size_bytes() as i64;
    Type::new(dtype, &[bytes / dtype.size_bytes() as i64])
}

/// The same bytes as elements of another type. The result is flat unless the type is the same.
pub(crate) fn reinterpret(base: Value<'_>, dtype: DType) -> Value<'_> {
    let from = base.dtype();
    if from == dtype {
        return base;
    }
    let mut flat = base.flatten();
    // StableHLO has no bitcast of booleans and complex numbers: use bytes, and real and imaginary parts.
    if from == DType::Bool {
        flat = flat.convert(DType::U8);
    } else if from.is_complex() {
        flat = parts_of(flat).flatten();
    }
    match dtype {
        DType::Bool => reinterpret(flat, DType::U8).ne(0),
        _ if dtype.is_complex() => {
            let parts = reinterpret(flat, dtype.real());
            of_parts(parts.slice_axis(0, 0, parts.numel() / 2 * 2).reshape(&[parts.numel() / 2, 2]))
        }
        _ => {
            let (have, want) = (flat.dtype().size_bytes() as i64, dtype.size_bytes() as i64);
            if have < want {
                let ratio = want / have;
                let n = flat.numel() / ratio;
                flat = flat.slice_axis(0, 0, n * ratio).reshape(&[n, ratio]);
            }
            flat.bitcast(dtype).flatten()
        }
    }
}

#[cfg(test)]
mod tests;
