//! Reductions, windows and sorting.

use crate::Builder;
use crate::bounds::Extent;
use crate::builder::{Target, Type, Value, array};
use crate::dtype::{DType, Number};
use crate::structured::Window;

/// The most elements of a reduction that XLA's CPU compiler does not split.
const BLOCK: i64 = 32;

impl Builder {
    /// `stablehlo.reduce` of several operands of one shape over `axes`, which are removed. `combine` gets the
    /// accumulators and then the elements, as 0-d values.
    pub fn reduce<'b>(
        &'b self,
        operands: &[Value<'b>],
        initial: &[Value<'b>],
        axes: &[usize],
        combine: impl FnOnce(&[Value<'b>], &[Value<'b>]) -> Vec<Value<'b>>,
    ) -> Vec<Value<'b>> {
        let count = operands.len();
        let extents = self.merged(operands);
        let operands: Vec<Value<'b>> = operands
            .iter()
            .zip(initial)
            .map(|(operand, initial)| match &extents {
                Some(extents) => operand.masked_by(extents, axes, *initial),
                None => *operand,
            })
            .collect();
        let scalars: Vec<Type> = operands.iter().chain(&operands).map(|v| Type::new(v.dtype(), &[])).collect();
        let region = self.region(&scalars, |args| combine(&args[..count], &args[count..]));
        let results = operands
            .iter()
            .map(|v| {
                let kept = v.dims().into_iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| d);
                Type { dtype: v.dtype(), dims: kept.collect() }
            })
            .collect();
        let kept: Vec<Extent> =
            extents.into_iter().flatten().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, e)| e).collect();
        let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
        let all: Vec<Value<'b>> = operands.iter().chain(initial).copied().collect();
        let attributes = format!("dimensions = {}", array(&axes));
        let results = self.emit_with_regions("stablehlo.reduce", &all, &[region], &attributes, results);
        results.into_iter().map(|result| result.with_extents(kept.clone())).collect()
    }

    /// `stablehlo.sort` of several operands of one shape along `axis`. `less` compares two rows (the elements of the
    /// first, then of the second) and returns a 0-d boolean.
    pub fn sort<'b>(
        &'b self,
        operands: &[Value<'b>],
        axis: usize,
        stable: bool,
        less: impl FnOnce(&[Value<'b>], &[Value<'b>]) -> Value<'b>,
    ) -> Vec<Value<'b>> {
        let count = operands.len();
        // The block's arguments alternate: left of operand 0, right of operand 0, left of operand 1, …
        let scalars: Vec<Type> =
            operands.iter().flat_map(|v| [Type::new(v.dtype(), &[]), Type::new(v.dtype(), &[])]).collect();
        let region = self.region(&scalars, |args| {
            let left: Vec<Value<'b>> = (0..count).map(|i| args[2 * i]).collect();
            let right: Vec<Value<'b>> = (0..count).map(|i| args[2 * i + 1]).collect();
            vec![less(&left, &right)]
        });
        let attributes = format!("dimension = {axis} : i64, is_stable = {stable}");
        let types = operands.iter().map(|v| v.ty()).collect();
        let extents = self.merged(operands);
        if operands.iter().any(|operand| operand.is_bounded_along(&[axis])) {
            self.refuse_bounded("a sort along a bounded dimension");
        }
        let results = self.emit_with_regions("stablehlo.sort", operands, &[region], &attributes, types);
        results.into_iter().map(|result| result.with_extents(extents.clone())).collect()
    }

    /// `stablehlo.while`: applies `body` to `state` while `condition` holds. The regions can only use their
    /// arguments.
    pub fn while_loop<'b>(
        &'b self,
        state: &[Value<'b>],
        condition: impl FnOnce(&[Value<'b>]) -> Value<'b>,
        body: impl FnOnce(&[Value<'b>]) -> Vec<Value<'b>>,
    ) -> Vec<Value<'b>> {
        let types: Vec<Type> = state.iter().map(|v| v.ty()).collect();
        let condition = self.region(&types, |args| vec![condition(args)]);
        let body = self.region(&types, body);
        self.op_with_regions("stablehlo.while", state, &[condition, body], "", types)
    }
}

impl<'b> Value<'b> {
    fn reduce_one(
        self,
        axes: &[usize],
        initial: Number,
        combine: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>,
    ) -> Value<'b> {
        if axes.is_empty() {
            return self;
        }
        let initial = self.builder.scalar(initial, self.dtype());
        self.builder.reduce(&[self], &[initial], axes, |a, x| vec![combine(a[0], x[0])])[0]
    }

    /// This value with its last dimension as two, and the second of them, where sums over that one come first. Padding
    /// along `axes` is zero.
    ///
    /// XLA's CPU compiler splits a sum of more than [`BLOCK`] elements, and stores what it sums. Sums of so few are not
    /// split: their summands are computed where they are added. This is many times faster where the summands are converted
    /// or computed. The sums over the other dimensions and over few blocks are faster as they are.
    fn in_blocks(self, axes: &[usize]) -> Option<(Value<'b>, usize)> {
        let b = self.builder;
        if b.target != Target::Cpu || b.is_in_region() {
            return None;
        }
        let last = self.rank().checked_sub(1).filter(|last| axes.contains(last))?;
        let mut dims = self.dims();
        let block = (8..=BLOCK).rev().find(|block| dims[last] % block == 0)?;
        dims.splice(last.., [dims[last] / block, block]);
        if axes.iter().all(|&axis| dims[axis] <= BLOCK) {
            return None;
        }
        let whole = match self.is_bounded() {
            true => self.masked(axes, b.scalar(0, self.dtype())).without_extents(),
            false => self,
        };
        Some((whole.reshape(&dims), last + 1))
    }

    /// The sum over `axes`, in this value's type. Convert first if that type is too small.
    pub fn reduce_sum(self, axes: &[usize]) -> Value<'b> {
        let sum = |x: Value<'b>, axes: &[usize]| x.reduce_one(axes, Number::Int(0), |a, x| a + x);
        match self.in_blocks(axes) {
            // XLA would join two sums without a barrier.
            Some((blocks, axis)) => {
                let kept = self.extents().into_iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
                let kept: Vec<Extent> = kept.map(|(_, extent)| extent).collect();
                sum(sum(blocks, &[axis]).barrier(), axes).with_extents(kept)
            }
            None => sum(self, axes),
        }
    }

    pub fn reduce_prod(self, axes: &[usize]) -> Value<'b> {
        self.reduce_one(axes, Number::Int(1), |a, x| a * x)
    }

    pub fn reduce_xor(self, axes: &[usize]) -> Value<'b> {
        self.reduce_one(axes, Number::Int(0), |a, x| a ^ x)
    }

    /// [`Value::max`] as the combination of a reduction. For floats on a CPU this is a select: XLA's compiler
    /// vectorizes it, unlike a maximum that propagates NaN, and it is many times faster. libtpu's compiler crashes on
    /// it.
    pub fn larger(self, other: Value<'b>) -> Value<'b> {
        if self.reduces_by_selection() {
            (other.gt(self) | other.is_nan()).select(other, self)
        } else {
            self.max(other)
        }
    }

    /// [`Value::larger`] for a minimum.
    pub fn smaller(self, other: Value<'b>) -> Value<'b> {
        if self.reduces_by_selection() {
            (other.lt(self) | other.is_nan()).select(other, self)
        } else {
            self.min(other)
        }
    }

    /// This value in a type that a CPU compares: it would convert floats of 16 bits at each comparison.
    fn comparable(self) -> Value<'b> {
        let is_narrow = self.reduces_by_selection() && self.dtype().size_bytes() < 4;
        if is_narrow { self.convert(DType::F32) } else { self }
    }

    fn reduces_by_selection(self) -> bool {
        self.builder.target == Target::Cpu && self.dtype().is_float()
    }

    /// The largest element; NaN if any element is NaN; minus infinity (or the lowest integer) if there are none.
    pub fn reduce_max(self, axes: &[usize]) -> Value<'b> {
        let wide = self.comparable();
        wide.reduce_one(axes, wide.dtype().max_identity(), |a, x| a.larger(x)).convert(self.dtype())
    }

    pub fn reduce_min(self, axes: &[usize]) -> Value<'b> {
        let wide = self.comparable();
        wide.reduce_one(axes, wide.dtype().min_identity(), |a, x| a.smaller(x)).convert(self.dtype())
    }

    /// For booleans, or the bits of integers.
    pub fn reduce_any(self, axes: &[usize]) -> Value<'b> {
        self.reduce_one(axes, Number::Bool(false), |a, x| a | x)
    }

    /// For booleans.
    pub fn reduce_all(self, axes: &[usize]) -> Value<'b> {
        self.reduce_one(axes, Number::Bool(true), |a, x| a & x)
    }

    /// Restores dimensions of size 1 at `axes` (positions in the result, ascending).
    pub fn keep_dims(self, axes: &[usize]) -> Value<'b> {
        let mut dims = self.dims();
        for &axis in axes {
            dims.insert(axis, 1);
        }
        self.reshape(&dims)
    }

    /// `stablehlo.reduce_window` over all dimensions. The lists of the window have this value's rank.
    pub fn reduce_window(
        self,
        window: &Window,
        initial: Number,
        combine: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>,
    ) -> Value<'b> {
        let initial = self.builder.scalar(initial, self.dtype());
        self.builder.reduce_window(&[self], &[initial], window, |a, x| vec![combine(a[0], x[0])])[0]
    }

    /// The running sum (or another associative combination) along `axis`. `initial` is its identity.
    pub fn scan(
        self,
        axis: usize,
        initial: Number,
        combine: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>,
    ) -> Value<'b> {
        let size = self.dim(axis);
        if size < 2 {
            return self;
        }
        // Padding is after the valid elements, and a running sum only reads earlier elements.
        self.require_prefix(axis, "a running sum along merged dimensions");
        let extents = self.extents();
        // XLA recognises a window from the first element on as a scan and computes it in blocks.
        let mut window = Window::unit(self.rank());
        window.sizes[axis] = size;
        window.padding[axis] = (size - 1, 0);
        let neutral = self.builder.scalar(initial, self.dtype());
        let masked = self.masked(&[axis], neutral).without_extents();
        masked.reduce_window(&window, initial, combine).with_extents(extents)
    }

    /// `chlo.top_k`: the `k` largest elements of the last dimension in descending order, and their int32 positions.
    /// Floats are compared by their bits: NaN is the largest element if its sign bit is clear, the smallest if it is
    /// set.
    pub fn top_k(self, k: i64) -> (Value<'b>, Value<'b>) {
        let mut ty = self.ty();
        match ty.dims.last_mut() {
            Some(last) if 0 < k && k <= *last => *last = k,
            _ => {
                let failed = self.builder.fail(format!("top_k of {self:?} with {k}"), ty.clone());
                return (failed, self.builder.fail("", Type::new(DType::I32, &ty.dims)));
            }
        }
        let types = vec![ty.clone(), Type::new(DType::I32, &ty.dims)];
        let extents = self.extents_if("the largest", |axis| axis + 1 < ty.dims.len());
        let results = self.builder.emit_with_regions("chlo.top_k", &[self], &[], &format!("k = {k} : i64"), types);
        (results[0].with_extents(extents.clone()), results[1].with_extents(extents))
    }
}

impl<'b> Value<'b> {
    /// Whether this element sorts before `other`, 0-d. NaN is the largest element, as in PyTorch.
    pub fn sorts_before(self, other: Value<'b>, descending: bool) -> Value<'b> {
        let (a, b) = if descending { (other, self) } else { (self, other) };
        if a.dtype() == DType::Bool {
            return !a & b;
        }
        a.lt(b) | (b.is_nan() & !a.is_nan())
    }
}
