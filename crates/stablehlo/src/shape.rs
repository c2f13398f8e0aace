//! Operations that move elements.

use crate::builder::{Type, Value, array};
use crate::dtype::{DType, Number};
use crate::{Builder, Target};

/// The number of positions 0, `step`, 2 · `step`, … below `length`.
pub fn count_by(length: i64, step: i64) -> i64 {
    length / step + i64::from(length % step != 0)
}

impl Builder {
    /// The numbers 0, 1, … along `axis`.
    pub fn iota(&self, dtype: DType, dims: &[i64], axis: usize) -> Value<'_> {
        self.op("stablehlo.iota", &[], &format!("iota_dimension = {axis} : i64"), Type::new(dtype, dims))
    }

    /// Concatenates values along `axis`. A single value is returned unchanged.
    pub fn concatenate<'b>(&'b self, values: &[Value<'b>], axis: usize) -> Value<'b> {
        let Some(first) = values.first() else {
            return self.fail("concatenate of nothing", Type::new(DType::F32, &[0]));
        };
        if values.len() == 1 {
            return *first;
        }
        let mut ty = first.ty();
        ty.dims[axis] = 0;
        for value in values {
            let other = value.ty();
            let agrees = other.dtype == ty.dtype
                && other.dims.len() == ty.dims.len()
                && (0..ty.dims.len()).all(|i| i == axis || other.dims[i] == ty.dims[i]);
            if !agrees {
                return self.fail(format!("concatenate of {values:?} along {axis}"), first.ty());
            }
            ty.dims[axis] += other.dims[axis];
        }
        let extents = self.merged(values);
        if values.iter().any(|value| value.is_bounded_along(&[axis])) {
            self.refuse_bounded("concatenate along a bounded dimension");
        }
        self.emit("stablehlo.concatenate", values, &format!("dimension = {axis} : i64"), ty).with_extents(extents)
    }
}

impl<'b> Value<'b> {
    pub fn reshape(self, dims: &[i64]) -> Value<'b> {
        let ty = self.ty();
        if ty.dims == dims {
            return self;
        }
        let to = Type::new(ty.dtype, dims);
        if to.numel() != ty.numel() {
            return self.builder.fail(format!("reshape of {ty} to {to}"), to);
        }
        let extents = self.reshaped_extents(dims);
        let result = self.builder.emit("stablehlo.reshape", &[self], "", to).with_extents(extents);
        self.builder.reshapes.borrow_mut().insert(result.id, self.id);
        result
    }

    /// The operand of the reshape that made this value.
    pub(crate) fn reshaped_from(self) -> Option<Value<'b>> {
        let id = *self.builder.reshapes.borrow().get(&self.id)?;
        Some(Value { builder: self.builder, id })
    }

    pub fn flatten(self) -> Value<'b> {
        self.reshape(&[self.numel()])
    }

    /// Adds a dimension of size 1 before `axis`.
    pub fn unsqueeze(self, axis: usize) -> Value<'b> {
        let mut dims = self.dims();
        dims.insert(axis, 1);
        self.reshape(&dims)
    }

    /// Removes a dimension of size 1.
    pub fn squeeze(self, axis: usize) -> Value<'b> {
        let mut dims = self.dims();
        dims.remove(axis);
        self.reshape(&dims)
    }

    /// `stablehlo.broadcast_in_dim`: dimension `i` of this value becomes `axes[i]` of the result.
    pub fn broadcast_in_dim(self, dims: &[i64], axes: &[usize]) -> Value<'b> {
        let from = self.dims();
        if from == dims && axes.iter().copied().eq(0..dims.len()) {
            return self;
        }
        let to = Type::new(self.dtype(), dims);
        let fits = axes.len() == from.len()
            && axes.iter().zip(&from).all(|(&axis, &size)| axis < dims.len() && (size == dims[axis] || size == 1));
        if !fits {
            return self.builder.fail(format!("broadcast of {self:?} to {to} along {axes:?}"), to);
        }
        let places: Vec<Option<usize>> = (0..dims.len()).map(|i| axes.iter().position(|&axis| axis == i)).collect();
        let extents = self.moved_extents(&places);
        let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
        let attributes = format!("broadcast_dimensions = {}", array(&axes));
        let value = self.builder.emit("stablehlo.broadcast_in_dim", &[self], &attributes, to).with_extents(extents);
        let mut uniforms = self.builder.uniforms.borrow_mut();
        if let Some(element) = uniforms.get(&self.id).copied() {
            uniforms.insert(value.id, element);
        }
        value
    }

    /// NumPy-style broadcast: trailing dimensions are aligned.
    pub fn broadcast_to(self, dims: &[i64]) -> Value<'b> {
        let rank = self.rank();
        if rank > dims.len() {
            let to = Type::new(self.dtype(), dims);
            return self.builder.fail(format!("broadcast of {self:?} to {to}"), to);
        }
        let axes: Vec<usize> = (dims.len() - rank..dims.len()).collect();
        self.broadcast_in_dim(dims, &axes)
    }

    /// Dimension `i` of the result is dimension `permutation[i]` of this value. A transpose that undoes the one before it is
    /// left out.
    pub fn transpose(self, permutation: &[usize]) -> Value<'b> {
        if permutation.iter().copied().eq(0..self.rank()) {
            return self;
        }
        if let Some((source, before)) = self.transposed_from()
            && permutation.iter().map(|&axis| before[axis]).eq(0..self.rank())
        {
            return source;
        }
        let from = self.dims();
        let dims: Vec<i64> = permutation.iter().map(|&p| from[p]).collect();
        let axes: Vec<i64> = permutation.iter().map(|&p| p as i64).collect();
        let attributes = format!("permutation = {}", array(&axes));
        let places: Vec<Option<usize>> = permutation.iter().map(|&p| Some(p)).collect();
        let extents = self.moved_extents(&places);
        let ty = Type::new(self.dtype(), &dims);
        let result = self.builder.emit("stablehlo.transpose", &[self], &attributes, ty).with_extents(extents);
        self.builder.transposes.borrow_mut().insert(result.id, (self.id, permutation.to_vec()));
        result
    }

    /// The operand and the permutation of the transpose that made this value.
    pub(crate) fn transposed_from(self) -> Option<(Value<'b>, Vec<usize>)> {
        let (id, permutation) = self.builder.transposes.borrow().get(&self.id).cloned()?;
        Some((Value { builder: self.builder, id }, permutation))
    }

    pub fn swap_axes(self, a: usize, b: usize) -> Value<'b> {
        let mut permutation: Vec<usize> = (0..self.rank()).collect();
        permutation.swap(a, b);
        self.transpose(&permutation)
    }

    /// Moves a dimension to another position. The order of the others is kept.
    pub fn move_axis(self, from: usize, to: usize) -> Value<'b> {
        let mut permutation: Vec<usize> = (0..self.rank()).filter(|&i| i != from).collect();
        permutation.insert(to, from);
        self.transpose(&permutation)
    }

    /// `stablehlo.slice`: elements `starts[i], starts[i] + steps[i], …` below `limits[i]`.
    pub fn slice(self, starts: &[i64], limits: &[i64], steps: &[i64]) -> Value<'b> {
        let from = self.dims();
        let whole = starts.iter().all(|&s| s == 0) && limits == from && steps.iter().all(|&s| s == 1);
        if whole {
            return self;
        }
        let valid = starts.len() == from.len()
            && (0..from.len())
                .all(|i| 0 <= starts[i] && starts[i] <= limits[i] && limits[i] <= from[i] && steps[i] > 0);
        if !valid {
            return self.builder.fail(format!("slice of {self:?} at {starts:?}..{limits:?} by {steps:?}"), self.ty());
        }
        let dims: Vec<i64> = (0..from.len()).map(|i| count_by(limits[i] - starts[i], steps[i])).collect();
        let attributes =
            format!("start_indices = {}, limit_indices = {}, strides = {}", array(starts), array(limits), array(steps));
        let extents = self.extents_if("a slice", |i| dims[i] == from[i]);
        self.builder.emit("stablehlo.slice", &[self], &attributes, Type::new(self.dtype(), &dims)).with_extents(extents)
    }

    /// Elements `start..limit` of one dimension.
    pub fn slice_axis(self, axis: usize, start: i64, limit: i64) -> Value<'b> {
        self.slice_axis_by(axis, start, limit, 1)
    }

    pub fn slice_axis_by(self, axis: usize, start: i64, limit: i64, step: i64) -> Value<'b> {
        let mut limits = self.dims();
        let mut starts = vec![0; limits.len()];
        let mut steps = vec![1; limits.len()];
        starts[axis] = start;
        limits[axis] = limit;
        steps[axis] = step;
        self.slice(&starts, &limits, &steps)
    }

    /// One element of a dimension. The dimension is removed.
    pub fn select_axis(self, axis: usize, index: i64) -> Value<'b> {
        self.slice_axis(axis, index, index + 1).squeeze(axis)
    }

    /// `stablehlo.pad`. Negative `low` and `high` remove elements.
    pub fn pad(self, fill: impl Into<Number>, low: &[i64], high: &[i64], interior: &[i64]) -> Value<'b> {
        let fill = self.builder.scalar(fill, self.dtype());
        self.pad_with(fill, low, high, interior)
    }

    /// [`Value::pad`] with a 0-d value.
    pub fn pad_with(self, fill: Value<'b>, low: &[i64], high: &[i64], interior: &[i64]) -> Value<'b> {
        if [low, high, interior].iter().all(|v| v.iter().all(|&x| x == 0)) {
            return self;
        }
        let from = self.dims();
        let dims: Vec<i64> =
            (0..from.len()).map(|i| from[i] + low[i] + high[i] + (from[i] - 1).max(0) * interior[i]).collect();
        if dims.iter().any(|&d| d < 0) {
            return self.builder.fail(format!("pad of {self:?} by {low:?}, {high:?}"), self.ty());
        }
        let attributes = format!(
            "edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
            array(low),
            array(high),
            array(interior)
        );
        let extents = self.extents_if("padding", |i| low[i] == 0 && high[i] == 0 && interior[i] == 0);
        let ty = Type::new(self.dtype(), &dims);
        self.builder.emit("stablehlo.pad", &[self, fill], &attributes, ty).with_extents(extents)
    }

    pub fn pad_axis(self, axis: usize, fill: impl Into<Number>, low: i64, high: i64) -> Value<'b> {
        let zeros = vec![0; self.rank()];
        let (mut lows, mut highs) = (zeros.clone(), zeros.clone());
        lows[axis] = low;
        highs[axis] = high;
        self.pad(fill, &lows, &highs, &zeros)
    }

    /// `stablehlo.optimization_barrier`: XLA does not fuse operations before it with operations after it.
    pub fn barrier(self) -> Value<'b> {
        self.builder.elementwise("stablehlo.optimization_barrier", &[self], "", self.ty())
    }

    pub fn reverse(self, axes: &[usize]) -> Value<'b> {
        if axes.is_empty() {
            return self;
        }
        let extents = self.extents_if("a reversal", |i| !axes.contains(&i));
        let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
        let attributes = format!("dimensions = {}", array(&axes));
        self.builder.emit("stablehlo.reverse", &[self], &attributes, self.ty()).with_extents(extents)
    }

    /// Starts in a type that holds the sizes of this value, because XLA compares them.
    fn starts_in(self, starts: &[Value<'b>]) -> Vec<Value<'b>> {
        let is_wide = self.dims().into_iter().any(|dim| DType::of_counts(dim) == DType::I64);
        starts.iter().map(|&start| if is_wide { start.convert(DType::I64) } else { start }).collect()
    }

    /// `stablehlo.dynamic_slice` with 0-d integer starts.
    pub fn dynamic_slice(self, starts: &[Value<'b>], sizes: &[i64]) -> Value<'b> {
        let mut operands = vec![self];
        operands.extend(self.starts_in(starts));
        let attributes = format!("slice_sizes = {}", array(sizes));
        let extents = self.extents_if("a slice", |i| self.dim(i) == sizes[i]);
        let ty = Type::new(self.dtype(), sizes);
        self.builder.emit("stablehlo.dynamic_slice", &operands, &attributes, ty).with_extents(extents)
    }

    /// The value itself, to be written to a part of another value.
    ///
    /// XLA's compiler for the CPU writes in place, and may still read from there what it computes the update from: it does
    /// not see that a reshape has the memory of its operand. So an update is computed before the write. In a region it is
    /// not: the compiler makes one kernel of a small loop, in which there are no barriers.
    pub(crate) fn before_write(self) -> Value<'b> {
        let b = self.builder;
        let is_known = b.uniforms.borrow().contains_key(&self.id);
        if b.target == Target::Cpu && !is_known && !b.is_in_region() { self.barrier() } else { self }
    }

    /// `stablehlo.dynamic_update_slice`: this value with `update` written at `starts`.
    pub fn dynamic_update_slice(self, update: Value<'b>, starts: &[Value<'b>]) -> Value<'b> {
        let mut operands = vec![self, update.before_write()];
        operands.extend(self.starts_in(starts));
        let same = |i: usize| self.dim(i) == update.dim(i);
        update.extents_if("an update", same);
        let extents = (0..self.rank()).map(|i| if same(i) { self.common_extent(i, update, i) } else { self.extent(i) });
        let extents: Vec<_> = extents.collect();
        (0..self.rank()).filter(|&i| !same(i)).for_each(|i| self.require_prefix(i, "an update of merged dimensions"));
        self.builder.emit("stablehlo.dynamic_update_slice", &operands, "", self.ty()).with_extents(extents)
    }
}
