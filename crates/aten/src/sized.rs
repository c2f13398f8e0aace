//! Calls some of whose sizes are inputs of their programs.
//!
//! The arguments are described at their capacities. A view of a storage is given in parts of the storage's value,
//! because strides at the actual sizes say nothing about a padded value.

use stablehlo::{Builder, DType, Extent, Factor, Refusal, Type, Value};

use crate::call::{Body, Call};
use crate::common::bounded_views::{self, run_from};
use crate::cx::{Arg, Cx};
use crate::error::{Error, Result};
use crate::inputs::{Inputs, ParamSource};
use crate::lower::{Lowered, Output, to_arg, written};
use crate::nodes::lower_nodes;
use crate::spec::{ArgSpec, Dim, ResultSpec, TensorSpec};
use crate::view::{contiguous_strides, memory_order, of_parts, parts_of, shown};

/// The sizes of a call that are inputs of its program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// The capacities of the inputs: valid lengths, and the starts of slices.
    pub capacities: Vec<i64>,
    /// The extents of the value of each storage, by dimension.
    pub storages: Vec<Vec<Extent>>,
    /// The view of each tensor argument, with lists flattened.
    pub views: Vec<SizedView>,
    /// The sizes of each result as far as they equal sizes of the arguments: first the written arguments, then the
    /// fresh results.
    pub results: Vec<Option<Vec<Dim>>>,
}

impl Sizes {
    /// Whether an argument or a result has a size that changes. Otherwise the call takes parts of values with padding, and
    /// any row can compute it.
    pub fn is_bounded(&self) -> bool {
        let changes = |dim: &Dim| !dim.sizes.is_empty();
        self.views.iter().any(|view| view.sizes().iter().any(changes))
            || self.results.iter().flatten().flatten().any(changes)
    }
}

/// A view of a storage's value.
#[derive(Clone, Debug, PartialEq)]
pub enum SizedView {
    /// In parts of the value.
    Divided(Division),
    /// In parts of the value, as elements of another type. Such a view is only read.
    Paired(Division, Paired),
    /// With these sizes, which are constants. The argument has the strides and the offset.
    Fixed(Vec<i64>),
}

/// How a view shows real numbers as complex ones, or complex ones as real ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paired {
    /// The last dimension of the division has two elements, which become one complex number.
    Complex,
    /// The division is of real and imaginary parts, which are a last dimension of the value.
    Parts,
}

impl Paired {
    fn sizes<T>(self, mut sizes: Vec<T>) -> Vec<T> {
        if self == Paired::Complex {
            sizes.pop();
        }
        sizes
    }

    fn read<'b>(self, base: Value<'b>, division: &Division) -> Value<'b> {
        match self {
            Paired::Complex => of_parts(division.read(base)),
            Paired::Parts => division.read(parts_of(base)),
        }
    }
}

/// A view in parts of a storage's value.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// The value's dimensions, split so that each part belongs to one dimension of the view at most.
    pub parts: Vec<Part>,
    pub dims: Vec<ViewDim>,
}

/// A part of the dimensions of a value, and what the view takes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The positions of the value, and their valid length.
    pub whole: Factor,
    pub start: Start,
    /// The positions of the view, and their valid length.
    pub taken: Factor,
}

/// The first position that a view takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    At(i64),
    /// A number among the sizes.
    Input(u32),
}

impl Start {
    fn value(self, b: &Builder) -> Value<'_> {
        match self {
            Start::At(start) => b.scalar(start, DType::I64),
            Start::Input(start) => b.size(start),
        }
    }
}

/// A dimension of a view.
#[derive(Clone, Debug, PartialEq)]
pub enum ViewDim {
    /// The product of parts, the outermost first. A dimension of size 1 has no part.
    Parts(Vec<usize>),
    /// One element, repeated.
    Repeated(Dim),
}

impl Part {
    pub fn is_whole(&self) -> bool {
        self.start == Start::At(0) && self.taken == self.whole
    }

    /// The elements of `value` along `axis` that the view takes. Where the capacity of a run reaches behind the value, the
    /// run is a later part of the last ones that are there. Room behind the value would be a copy of all of it.
    fn narrow<'b>(&self, value: Value<'b>, axis: usize) -> Value<'b> {
        if self.is_whole() {
            return value;
        }
        let (value, length) = (value.whole_along(axis), self.taken.capacity);
        let taken = match self.start {
            Start::At(start) => {
                let missing = (start + length - self.whole.capacity).max(0);
                value.pad_axis(axis, 0, 0, missing).slice_axis(axis, start, start + length)
            }
            Start::Input(start) if self.taken.size.is_none() => {
                run_from(value, axis, value.builder().size(start), length)
            }
            Start::Input(start) => {
                let value = value.pad_axis(axis, 0, 0, (length - self.whole.capacity).max(0));
                let start = value.builder().size(start);
                let first = start.min(value.dim(axis) - length);
                let room = run_from(value, axis, first, length).pad_axis(axis, 0, 0, length);
                run_from(room, axis, start - first, length)
            }
        };
        let mut extents = taken.extents();
        extents[axis] = extent_of(&[self.taken]);
        taken.without_extents().with_extents(extents)
    }
}

fn extent_of(factors: &[Factor]) -> Extent {
    if factors.iter().any(|factor| factor.size.is_some()) { Extent(factors.to_vec()) } else { Extent::default() }
}

impl SizedView {
    /// The sizes of the view at the capacities.
    pub fn capacities(&self) -> Vec<i64> {
        match self {
            SizedView::Divided(division) => division.capacities(),
            SizedView::Paired(division, paired) => paired.sizes(division.capacities()),
            SizedView::Fixed(sizes) => sizes.clone(),
        }
    }

    /// The sizes of the view as sizes of a result.
    pub fn sizes(&self) -> Vec<Dim> {
        match self {
            SizedView::Divided(division) => division.sizes(),
            SizedView::Paired(division, paired) => paired.sizes(division.sizes()),
            SizedView::Fixed(sizes) => sizes.iter().map(|&size| Dim::known(size)).collect(),
        }
    }
}

impl Division {
    fn capacities(&self) -> Vec<i64> {
        let size = |dim: &ViewDim| match dim {
            ViewDim::Parts(parts) => parts.iter().map(|&part| self.parts[part].taken.capacity).product(),
            ViewDim::Repeated(dim) => dim.capacity,
        };
        self.dims.iter().map(size).collect()
    }

    fn sizes(&self) -> Vec<Dim> {
        let size = |dim: &ViewDim| match dim {
            ViewDim::Repeated(dim) => dim.clone(),
            ViewDim::Parts(parts) => Dim::of(&parts.iter().map(|&part| self.parts[part].taken).collect::<Vec<_>>()),
        };
        self.dims.iter().map(size).collect()
    }

    /// The parts in the order of the view's dimensions, then those of which it takes one position.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = Vec::new();
        for dim in &self.dims {
            if let ViewDim::Parts(parts) = dim {
                order.extend(parts);
            }
        }
        let others: Vec<usize> = (0..self.parts.len()).filter(|part| !order.contains(part)).collect();
        order.extend(others);
        order
    }

    fn split(&self) -> Vec<i64> {
        self.parts.iter().map(|part| part.whole.capacity).collect()
    }

    /// The elements of a storage's value that the view shows.
    fn read<'b>(&self, base: Value<'b>) -> Value<'b> {
        let mut value = base.reshape(&self.split());
        for (axis, part) in self.parts.iter().enumerate() {
            value = part.narrow(value, axis);
        }
        let sizes = self.capacities();
        let is_repeated = |axis: &usize| matches!(self.dims[*axis], ViewDim::Repeated(_));
        let held: Vec<i64> = (0..sizes.len()).map(|axis| if is_repeated(&axis) { 1 } else { sizes[axis] }).collect();
        let shown = value.transpose(&self.order()).reshape(&held);
        if held == sizes {
            return shown;
        }
        let shown = shown.broadcast_in_dim(&sizes, &(0..sizes.len()).collect::<Vec<_>>());
        let mut extents = shown.extents();
        for (extent, dim) in extents.iter_mut().zip(&self.dims) {
            if let ViewDim::Repeated(dim) = dim {
                *extent = dim.extent(|size| base.builder().capacity(size));
            }
        }
        shown.without_extents().with_extents(extents)
    }

    /// The value of a storage after a write of `value` through the view. `old` is the value before. It may be absent
    /// if the view covers all of it.
    fn write<'b>(&self, old: Option<Value<'b>>, value: Value<'b>) -> Value<'b> {
        let b = value.builder();
        let order = self.order();
        let lengths: Vec<i64> = order.iter().map(|&part| self.parts[part].taken.capacity).collect();
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &part)| inverse[part] = place);
        let boxed = value.reshape(&lengths).transpose(&inverse);
        let expected: Vec<Extent> = self.parts.iter().map(|part| extent_of(&[part.taken])).collect();
        if boxed.extents().iter().zip(&expected).any(|(have, want)| !have.is_whole() && have != want) {
            b.refuse_bounded("a write of another length");
        }
        let whole: Vec<Extent> = self.parts.iter().map(|part| extent_of(&[part.whole])).collect();
        if self.parts.iter().all(Part::is_whole) {
            return boxed.without_extents().with_extents(whole);
        }
        let Some(old) = old else {
            b.refuse_bounded("a write to a part of a storage without a value");
            return boxed;
        };
        let mut room = old.reshape(&self.split()).without_extents();
        let mut boxed = boxed.without_extents();
        let (mut starts, mut shifts) = (Vec::with_capacity(self.parts.len()), Vec::with_capacity(self.parts.len()));
        for (axis, part) in self.parts.iter().enumerate() {
            let length = part.taken.capacity;
            room = room.pad_axis(axis, 0, 0, (length - part.whole.capacity).max(0));
            let last = room.dim(axis) - length;
            let (start, shift) = match part.start {
                Start::At(start) if start <= last => (b.scalar(start, DType::I64), None),
                Start::Input(start) if part.taken.size.is_none() => (b.size(start), None),
                // As in `Part::narrow`.
                start => {
                    let start = start.value(b);
                    let shift = start - start.min(last);
                    boxed = run_from(boxed.pad_axis(axis, 0, length, 0), axis, -shift + length, length);
                    (start.min(last), Some(shift))
                }
            };
            starts.push(start);
            shifts.push(shift);
        }
        // Positions that are not of the run keep their old elements.
        let kept = room.dynamic_slice(&starts, &boxed.dims());
        for (axis, part) in self.parts.iter().enumerate().filter(|(_, part)| !part.is_whole()) {
            if let Some(size) = part.taken.size {
                let length = part.taken.capacity;
                let places = b.iota(DType::I64, &[length], 0);
                let is_valid = match shifts[axis] {
                    Some(shift) => places.ge(shift) & places.lt(shift + b.size(size)),
                    None => places.lt(b.size(size).broadcast_to(&[length])),
                };
                boxed = is_valid.broadcast_in_dim(&boxed.dims(), &[axis]).select(boxed, kept);
            }
        }
        let mut written = room.dynamic_update_slice(boxed, &starts);
        for (axis, part) in self.parts.iter().enumerate() {
            written = written.slice_axis(axis, 0, part.whole.capacity);
        }
        written.with_extents(whole)
    }
}

/// Lowers a call whose arguments are given at their capacities.
///
/// # Errors
/// [`crate::ErrorKind::NotImplemented`] or another error if the call needs a program for each set of sizes.
pub fn lower_sized(call: &Call, sizes: &Sizes) -> Result<Lowered> {
    let Body::Row(row) = &call.body else { return Err(Error::not_implemented("a decomposition")) };
    if !row.bounded && sizes.is_bounded() {
        return Err(Error::not_implemented(format!("{} does not support bounded dimensions", call.operator)));
    }
    let builder = Builder::new(call.precision, call.target);
    let inputs = Inputs::new(&builder, &call.storages, call.is_checked);
    if sizes.is_bounded() {
        inputs.draw_exactly();
    }
    for (number, &capacity) in (0..).zip(&sizes.capacities) {
        builder.add_size(inputs.param(ParamSource::Size(number), Type::new(DType::I64, &[])), capacity);
    }
    let base = |storage: usize| {
        let value = inputs.base(storage)?;
        Some(if value.is_bounded() { value } else { value.with_extents(sizes.storages[storage].clone()) })
    };
    let (mut scalars, mut tensors) = (0, 0);
    let mut read = |spec: &TensorSpec| {
        let view = &sizes.views[tensors];
        tensors += 1;
        let value = match (base(spec.storage), view) {
            (Some(base), SizedView::Divided(division)) => division.read(base),
            (Some(base), SizedView::Paired(division, paired)) => paired.read(base, division),
            _ => return Arg::Tensor(spec.clone()),
        };
        Arg::Value(shown(value, spec))
    };
    let args = call.names.iter().zip(&call.args);
    let args = args.map(|(name, arg)| (name.as_str(), read_all(to_arg(arg, &mut scalars), &mut read))).collect();
    let mut cx = Cx {
        inputs: &inputs,
        lower_nodes,
        operator: &call.operator,
        default_dtype: call.default_dtype,
        args,
        mutated: &call.mutated,
        results: None,
        result_dims: &sizes.results,
        counts: Default::default(),
        strides: Default::default(),
    };
    let mut lowered = row.lower(&cx);
    if lowered.is_err()
        && matches!(builder.refusal(), Some(Refusal::Bounded(_)))
        && let Some(args) = bounded_views::compacted(&cx)
    {
        builder.reset_refusal(None);
        inputs.forget_draws();
        let given = std::mem::replace(&mut cx.args, args);
        lowered = row.lower(&cx);
        // Results with the form of the arguments need no pass in the next operator.
        let restored = |value| bounded_views::restored(&cx, &given, value);
        lowered = lowered.map(|values| values.into_iter().map(restored).collect());
    }
    let values = lowered?;
    if inputs.draw().is_none() && inputs.sources().contains(&ParamSource::RandomState) && sizes.is_bounded() {
        return Err(Error::not_implemented("random numbers, which depend on all sizes"));
    }
    let known = sizes.capacities.len() as u32;
    let (mut returned, mut outputs) = (Vec::new(), Vec::new());
    let targets = written_views(call, sizes);
    let counts = cx.counts.borrow();
    let results = match &call.results {
        Some(results) => results.clone(),
        None if counts.is_empty() => Vec::new(),
        None => values.iter().enumerate().map(|(i, &value)| Some(largest_result(&cx, i, value))).collect(),
    };
    if values.len() < targets.len() || results.len() != values.len() {
        return Err(Error::not_implemented("results of unknown sizes"));
    }
    if counts.iter().any(|(result, ..)| values[*result].is_bounded()) {
        return Err(Error::not_implemented("a result whose size depends on the data and on other sizes"));
    }
    let mut bases: Vec<(usize, Value<'_>)> = Vec::new();
    for (i, (target, view)) in targets.iter().enumerate() {
        let expected = sizes.results.get(i).and_then(|dims| dims.as_deref());
        let value = fitted(values[i], expected, known).convert(target.dtype);
        let place = bases.iter().position(|(storage, _)| *storage == target.storage);
        let before = place.map(|place| bases[place].1);
        if before.is_some_and(|value| Some(value.ty()) != call.storages[target.storage].base) {
            return Err(Error::not_implemented("writes of several element types"));
        }
        let new = match view {
            SizedView::Fixed(sizes) => {
                if value.dims() != *sizes || value.is_bounded() {
                    return Err(Error::not_implemented("a write of another shape"));
                }
                written(&inputs, target, value, before)
            }
            SizedView::Paired(..) => return Err(Error::not_implemented("a write to parts of complex numbers")),
            SizedView::Divided(view) => {
                let is_repeated = view.dims.iter().any(|dim| matches!(dim, ViewDim::Repeated(_)));
                if value.dims() != view.capacities() || is_repeated {
                    return Err(Error::not_implemented("a write of another shape"));
                }
                let is_whole = view.parts.iter().all(Part::is_whole);
                let old = before.or_else(|| if is_whole { None } else { base(target.storage) });
                let new = view.write(old, value);
                let ty = call.storages[target.storage].base.as_ref();
                new.reshape(&ty.map_or_else(|| new.dims(), |ty| ty.dims.clone()))
            }
        };
        match place {
            Some(place) => bases[place].1 = new,
            None => bases.push((target.storage, new)),
        }
    }
    let mut updates = Vec::new();
    for (storage, value) in bases {
        if inputs.is_base(storage, value) {
            continue;
        }
        updates.push((outputs.len(), value.extents()));
        outputs.push(Output::Updated { storage, base: value.ty() });
        returned.push(value);
    }
    for i in targets.len()..values.len() {
        let Some(spec) = &results[i] else {
            outputs.push(Output::Absent);
            continue;
        };
        let expected = sizes.results.get(i).and_then(|dims| dims.as_deref());
        let value = fitted(values[i], expected, known).convert(spec.dtype);
        if value.rank() != spec.sizes.len() {
            return Err(Error::not_implemented("a result of another rank"));
        }
        let order = memory_order(&spec.sizes, &spec.strides).unwrap_or_else(|| (0..value.rank()).collect());
        let stored = value.transpose(&order);
        let dims = value.dims();
        outputs.push(Output::Fresh {
            base: stored.ty(),
            dtype: value.dtype(),
            strides: dense_strides(&dims, &order),
            sizes: dims,
            extents: if value.is_bounded() { value.extents() } else { Vec::new() },
        });
        returned.push(stored);
    }
    // A row may compute with sizes of its own, but the host knows only those of the call.
    let is_known = |size: &u32| (*size as usize) < sizes.capacities.len();
    if returned.iter().any(|value| value.extents().iter().any(|extent| !extent.sizes().iter().all(is_known))) {
        return Err(Error::not_implemented("a size that only the program knows"));
    }
    for (result, axis, count) in counts.iter() {
        outputs.push(Output::Count { fresh: result - targets.len(), axis: *axis });
        returned.push(count.convert(DType::I64));
    }
    for (number, check) in inputs.checks() {
        outputs.push(Output::Check(check));
        returned.push(number);
    }
    if let Some(refusal) = builder.refusal() {
        return Err(Error::not_implemented(format!("{refusal:?}")));
    }
    let function = builder.finish(&returned).map_err(|error| Error::not_implemented(error.to_string()))?;
    Ok(Lowered {
        function,
        params: inputs.sources(),
        number_checks: inputs.number_checks(),
        outputs,
        updates,
        random_blocks: inputs.random_blocks(),
        draw: inputs.draw(),
        follows_precision: builder.follows_precision(),
    })
}

/// A result whose size depends on the data, at its largest size.
fn largest_result(cx: &Cx<'_>, i: usize, value: Value<'_>) -> ResultSpec {
    let sizes = value.dims();
    let strides = cx.strides.borrow().iter().find(|(result, _)| *result == i).map(|found| found.1.clone());
    let strides = strides.unwrap_or_else(|| contiguous_strides(&sizes));
    ResultSpec { dtype: value.dtype(), sizes, strides }
}

fn dense_strides(dims: &[i64], order: &[usize]) -> Vec<i64> {
    let (mut strides, mut inner) = (vec![1; dims.len()], 1);
    for &axis in order.iter().rev() {
        strides[axis] = inner;
        inner *= dims[axis].max(1);
    }
    strides
}

/// A result with the extents of PyTorch's sizes in the dimensions that the row has not bounded, or has bounded by a size
/// of its own. The first `known` sizes are inputs.
fn fitted<'b>(value: Value<'b>, expected: Option<&[Dim]>, known: u32) -> Value<'b> {
    let Some(dims) = expected.filter(|dims| dims.len() == value.rank()) else { return value };
    let mut value = value;
    for (axis, dim) in dims.iter().enumerate() {
        let [size] = dim.sizes[..] else { continue };
        let b = value.builder();
        // A size that the row computes is PyTorch's.
        let is_own = value.extent(axis).is_prefix() && value.extent(axis).sizes().iter().any(|&own| own >= known);
        if is_own {
            let missing = (dim.capacity - value.dim(axis)).max(0);
            value = value.whole_along(axis).pad_axis(axis, 0, 0, missing).slice_axis(axis, 0, dim.capacity);
        }
        if value.extent(axis).is_whole() && value.dim(axis) == dim.capacity {
            let mut extents = value.extents();
            extents[axis] = dim.extent(|_| b.capacity(size));
            value = value.without_extents().with_extents(extents);
        }
    }
    value
}

/// The written tensors and their views, in the order of [`Call::written_tensors`].
fn written_views<'a>(call: &'a Call, sizes: &'a Sizes) -> Vec<(&'a TensorSpec, &'a SizedView)> {
    fn collect<'a>(
        arg: &'a ArgSpec,
        views: &mut std::slice::Iter<'a, SizedView>,
        into: &mut Vec<(&'a TensorSpec, &'a SizedView)>,
    ) {
        match arg {
            ArgSpec::Tensor(tensor) => into.extend(views.next().map(|view| (tensor, view))),
            ArgSpec::List(items) => items.iter().for_each(|item| collect(item, views, into)),
            _ => {}
        }
    }
    let mut views = sizes.views.iter();
    let of_args: Vec<Vec<_>> = call
        .args
        .iter()
        .map(|arg| {
            let mut of_arg = Vec::new();
            collect(arg, &mut views, &mut of_arg);
            of_arg
        })
        .collect();
    call.mutated.iter().flat_map(|&i| of_args[i].clone()).collect()
}

fn read_all<'b>(arg: Arg<'b>, read: &mut impl FnMut(&TensorSpec) -> Arg<'b>) -> Arg<'b> {
    match arg {
        Arg::Tensor(spec) => read(&spec),
        Arg::List(items) => Arg::List(items.into_iter().map(|item| read_all(item, read)).collect()),
        other => other,
    }
}
