//! Reading and writing elements of a value by index.

use stablehlo::{DType, Gather, Number, Scatter, Value};

use crate::radix::Radix;

/// How an update combines with the existing element.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    Replace,
    Add,
    Multiply,
    Max,
    Min,
}

impl Combine {
    /// The number that leaves each element of a type as it is when they are combined. [`Combine::Replace`] has no such
    /// number, and gets 0.
    pub fn identity(self, dtype: DType) -> Number {
        match self {
            Combine::Replace | Combine::Add => Number::Int(0),
            Combine::Multiply => Number::Int(1),
            Combine::Max => dtype.max_identity(),
            Combine::Min => dtype.min_identity(),
        }
    }

    pub fn apply<'b>(self, old: Value<'b>, new: Value<'b>) -> Value<'b> {
        match self {
            Combine::Replace => new,
            Combine::Add => old + new,
            Combine::Multiply => old * new,
            Combine::Max => old.max(new),
            Combine::Min => old.min(new),
        }
    }
}

/// The elements of a value that an operator reads or writes by index. One description for `gather` and `scatter`,
/// whose attributes mirror each other.
pub(crate) struct Places<'b> {
    indices: Value<'b>,
    /// The dimension of `indices` that holds an index vector; the rank of `indices` if indices are single numbers.
    vector: usize,
    /// The shape of the gathered elements and of the updates.
    shape: Vec<i64>,
    /// Dimensions of `shape` that cover a whole dimension of the operand.
    window: Vec<usize>,
    /// Dimensions of the operand that the indices select from.
    indexed: Vec<usize>,
    /// The indexed dimensions that `shape` does not have.
    collapsed: Vec<usize>,
    /// Dimensions that the operand, the indices and `shape` share.
    batch: Vec<usize>,
    slice_sizes: Vec<i64>,
    unique: bool,
    /// Dimensions of the operand with padding between valid positions. The indices are positions in the padded value.
    opened: Vec<usize>,
    /// Indexed dimensions whose indices are positions in the padded value from the start.
    positions: Vec<usize>,
}

impl<'b> Places<'b> {
    /// Slices of the operand, selected by index in its dimensions `indexed` (ascending). Dimension `vector` of
    /// `indices` has one number for each of them; `vector` is the rank of `indices` if there is one indexed
    /// dimension. The dimensions of the indices are inserted at `position` among the operand's other dimensions.
    pub fn windows(
        operand: &[i64],
        indexed: &[usize],
        indices: Value<'b>,
        vector: usize,
        position: usize,
    ) -> Places<'b> {
        let mut shape: Vec<i64> = (0..operand.len()).filter(|i| !indexed.contains(i)).map(|i| operand[i]).collect();
        shape.splice(position..position, indices.dims().into_iter().take(vector));
        Places {
            indices,
            vector,
            window: (0..shape.len()).filter(|&i| i < position || i >= position + vector).collect(),
            shape,
            indexed: indexed.to_vec(),
            collapsed: indexed.to_vec(),
            batch: Vec::new(),
            slice_sizes: (0..operand.len()).map(|i| if indexed.contains(&i) { 1 } else { operand[i] }).collect(),
            unique: false,
            opened: Vec::new(),
            positions: Vec::new(),
        }
    }

    /// Whole slices along dimension `axis`. The index may have any rank.
    pub fn slices(operand: &[i64], axis: usize, index: Value<'b>) -> Places<'b> {
        Places::windows(operand, &[axis], index, index.rank(), axis)
    }

    /// Runs of `length` elements along dimension `axis`, one from each element of the vector `starts`. Dimension
    /// `axis` becomes two: the number of the run, and the element in the run.
    pub fn runs(operand: &[i64], axis: usize, starts: Value<'b>, length: i64) -> Places<'b> {
        let mut places = Places::slices(operand, axis, starts);
        places.shape.insert(axis + 1, length);
        places.window = (0..places.shape.len()).filter(|&i| i != axis).collect();
        places.collapsed = Vec::new();
        places.slice_sizes[axis] = length;
        places
    }

    /// Elements of a flat operand.
    pub fn flat(numel: i64, index: Value<'b>) -> Places<'b> {
        Places::slices(&[numel], 0, index)
    }

    /// One element along `axis` for each element of `index`. Its other sizes are the operand's.
    pub fn along(axis: usize, index: Value<'b>) -> Places<'b> {
        Places {
            indices: index,
            vector: index.rank(),
            shape: index.dims(),
            window: Vec::new(),
            indexed: vec![axis],
            collapsed: vec![axis],
            batch: (0..index.rank()).filter(|&i| i != axis).collect(),
            slice_sizes: vec![1; index.rank()],
            unique: false,
            opened: Vec::new(),
            positions: Vec::new(),
        }
    }

    /// Declares that no two updates have the same index.
    pub fn unique(mut self) -> Places<'b> {
        self.unique = true;
        self
    }

    /// Declares that the indices into these dimensions are positions in the padded value, as those of a mask's elements.
    pub fn at_positions(mut self, axes: &[usize]) -> Places<'b> {
        self.positions = axes.to_vec();
        self
    }

    /// The same elements where indices count the valid elements of `operand`, of which dimensions may have been merged.
    pub fn among_valid(mut self, operand: Value<'b>) -> Places<'b> {
        let is_merged = |axis: &usize| !operand.extent(*axis).is_prefix();
        self.opened = self.indexed.iter().copied().filter(is_merged).collect();
        if self.opened.is_empty() {
            return self;
        }
        let place = |index: Value<'b>, axis: usize| {
            let (dim, dtype) = (operand.dim(axis), index.dtype());
            let is_inside = index.ge(0) & index.lt(operand.size(axis, dtype).broadcast_to(&index.dims()));
            is_inside.select(Radix::of(&[dim], &[operand.extent(axis)]).padded(index), dim)
        };
        let counts = |axis: usize| self.opened.contains(&axis) && !self.positions.contains(&axis);
        if !self.indexed.iter().any(|&axis| counts(axis)) {
            return self;
        }
        if self.vector == self.indices.rank() {
            self.indices = place(self.indices, self.indexed[0]);
            return self;
        }
        let part = |(i, &axis): (usize, &usize)| {
            let part = self.indices.slice_axis(self.vector, i as i64, i as i64 + 1);
            if counts(axis) { place(part, axis) } else { part }
        };
        let parts: Vec<Value<'b>> = self.indexed.iter().enumerate().map(part).collect();
        self.indices = operand.builder().concatenate(&parts, self.vector);
        self
    }

    /// The operand, all of whose positions are valid in dimensions with indices of padded values.
    fn opened(&self, operand: Value<'b>) -> Value<'b> {
        self.opened.iter().fold(operand, |operand, &axis| operand.whole_along(axis))
    }

    /// The shape of the gathered elements and of the updates.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    pub fn read(&self, operand: Value<'b>) -> Value<'b> {
        if self.shape.contains(&0) || operand.numel() == 0 {
            return operand.builder().splat(0, operand.dtype(), &self.shape);
        }
        let record = Gather {
            offset_dims: numbers(&self.window),
            collapsed_slice_dims: numbers(&self.collapsed),
            operand_batching_dims: numbers(&self.batch),
            start_indices_batching_dims: numbers(&self.batch),
            start_index_map: numbers(&self.indexed),
            index_vector_dim: self.vector as i64,
            slice_sizes: self.slice_sizes.clone(),
            indices_are_sorted: false,
        };
        self.opened(operand).gather(self.indices, &record)
    }

    /// The operand with `updates` written. Sums and products of 16-bit floats accumulate in float32.
    pub fn write(&self, operand: Value<'b>, updates: Value<'b>, combine: Combine) -> Value<'b> {
        if updates.dims() != self.shape {
            operand.builder().refuse_bounded("updates whose number has another capacity than that of the indices");
        }
        if self.shape.contains(&0) || operand.numel() == 0 {
            return operand;
        }
        let record = Scatter {
            update_window_dims: numbers(&self.window),
            inserted_window_dims: numbers(&self.collapsed),
            input_batching_dims: numbers(&self.batch),
            scatter_indices_batching_dims: numbers(&self.batch),
            scatter_dims_to_operand_dims: numbers(&self.indexed),
            index_vector_dim: self.vector as i64,
            indices_are_sorted: false,
            unique_indices: self.unique,
        };
        let dtype = operand.dtype();
        let wide = if matches!(combine, Combine::Add | Combine::Multiply) { dtype.opmath() } else { dtype };
        let (operand, updates) = (operand.convert(wide), updates.convert(wide));
        let combine = |old, new| combine.apply(old, new);
        let written = self.opened(operand).scatter(self.indices, updates, &record, combine);
        let extents = |written: Value<'b>, &axis: &usize| written.with_extent(axis, operand.extent(axis));
        self.opened.iter().fold(written, extents).convert(dtype)
    }
}

fn numbers(dims: &[usize]) -> Vec<i64> {
    dims.iter().map(|&i| i as i64).collect()
}

/// Indices into a dimension of `size`, as int32 if that is large enough. Indices out of range stay out of range.
pub(crate) fn narrow<'b>(index: Value<'b>, size: i64) -> Value<'b> {
    let dtype = DType::of_counts(size);
    let may_overflow = index.dtype() == DType::I64 && dtype == DType::I32;
    if may_overflow { index.clamp(-1, size).convert(dtype) } else { index.convert(dtype) }
}

/// [`narrow`], where negative indices count from the end.
pub(crate) fn wrap<'b>(index: Value<'b>, size: i64) -> Value<'b> {
    narrow(index.lt(0).select(index + size, index), size)
}

/// Indices into dimension `axis` of `x`, where negative ones count from the end of the valid elements.
pub(crate) fn from_start<'b>(index: Value<'b>, x: Value<'b>, axis: usize) -> Value<'b> {
    index.lt(0).select(index + x.size(axis, index.dtype()), index)
}

/// A mask over dimensions of `x` from `axis` on, without padding: that of either is false, and the other elements keep their
/// order.
pub(crate) fn valid_mask<'b>(mask: Value<'b>, x: Value<'b>, axis: usize) -> Value<'b> {
    let (axes, none) = ((0..mask.rank()).collect::<Vec<_>>(), mask.builder().scalar(false, DType::Bool));
    let (own, all) = (mask.extents(), x.extents());
    let of_x = &all[axis..axis + mask.rank()];
    if own.iter().zip(of_x).any(|(own, of_x)| !own.is_whole() && !of_x.is_whole() && own != of_x) {
        mask.builder().refuse_bounded("a mask with other padding than the tensor");
    }
    let mask = mask.convert(DType::Bool).masked(&axes, none).without_extents();
    mask.with_extents(of_x.to_vec()).masked(&axes, none).without_extents()
}

/// A mask over `x` of its valid elements.
pub(crate) fn valid_elements(x: Value<'_>) -> Value<'_> {
    valid_mask(x.builder().splat(true, DType::Bool, &x.dims()), x, 0)
}

/// The value with at least one dimension.
pub(crate) fn at_least_1d(x: Value<'_>) -> Value<'_> {
    if x.rank() == 0 { x.reshape(&[1]) } else { x }
}

/// One element along `axis` for each element of `index`, whose other sizes may be smaller.
pub(crate) fn take_along<'b>(x: Value<'b>, axis: usize, index: Value<'b>) -> Value<'b> {
    Places::along(axis, narrow(index, x.dim(axis))).read(corner(x, axis, &index.dims()))
}

/// The leading part of `x` of the given sizes; all of dimension `axis`.
pub(crate) fn corner<'b>(x: Value<'b>, axis: usize, sizes: &[i64]) -> Value<'b> {
    let mut limits = x.dims();
    for (i, limit) in limits.iter_mut().enumerate() {
        if i != axis {
            *limit = sizes.get(i).map_or(*limit, |&size| size.min(*limit));
        }
    }
    x.slice(&vec![0; limits.len()], &limits, &vec![1; limits.len()])
}

/// Elements of a flat value at integer positions of any shape.
pub(crate) fn take_flat<'b>(flat: Value<'b>, positions: Value<'b>) -> Value<'b> {
    Places::flat(flat.numel(), positions).read(flat)
}

/// For each true element of a mask, the number of true elements before it.
pub(crate) fn rank_in_mask(mask: Value<'_>) -> Value<'_> {
    let dtype = DType::of_counts(mask.numel());
    (running_sum(mask.flatten().convert(dtype)) - 1).reshape(&mask.dims())
}

/// The running sum of a vector.
pub(crate) fn running_sum(x: Value<'_>) -> Value<'_> {
    x.scan(0, Number::Int(0), |a, b| a + b)
}
