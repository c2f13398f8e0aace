//! Calls some of whose sizes are inputs of their programs.
//!
//! The arguments are described at their capacities. A view of a storage is given in parts of the storage's value,
//! because strides at the actual sizes say nothing about a padded value.

mod views;

use stablehlo::{Builder, DType, Extent, Refusal, Type, Value};

pub use self::views::{Division, Paired, Part, SizedView, Start, ViewDim, Windowed};
use crate::call::{Body, Call};
use crate::common::bounded_views;
use crate::cx::{Arg, Cx};
use crate::error::{Error, Result};
use crate::inputs::{Inputs, ParamSource};
use crate::lower::{Lowered, Output, to_arg, written};
use crate::nodes::lower_nodes;
use crate::row::Row;
use crate::spec::{ArgSpec, Dim, ResultSpec, TensorSpec};
use crate::strides::{contiguous_strides, dense_strides, memory_order};
use crate::view::{self, shown};

/// The sizes of each result. `None` for one that is left to the row.
pub type ResultSizes = Vec<Option<Vec<Dim>>>;

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
    pub results: ResultSizes,
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

/// Lowers a call whose arguments are given at their capacities.
///
/// # Errors
/// [`crate::ErrorKind::NotImplemented`] or another error if the call needs a program for each set of sizes.
pub fn lower_sized(call: &Call, sizes: &Sizes) -> Result<Lowered> {
    with_values(call, sizes, |cx, row, values| finish(call, sizes, cx, row, &values))
}

/// The sizes of the fresh results as the row computes them from those of the arguments. A size that no argument has is a new
/// one: the capacities of these are the second result, and are numbered behind those of `sizes`. Nothing is taken from
/// the actual sizes of the call but which dimensions are known, so that sizes that are equal by chance do not matter.
/// `capacity` chooses the capacity of a new size by its largest value, its result and its dimension.
///
/// # Errors
/// If the row has no new sizes, or asks for the sizes of its results, or cannot be lowered.
pub fn computed_results(
    call: &Call,
    sizes: &Sizes,
    capacity: impl Fn(i64, usize, usize) -> i64,
) -> Result<(ResultSizes, Vec<i64>)> {
    with_values(call, sizes, |cx, _, values| {
        let (known, actual) = (sizes.capacities.len() as u32, call.results.as_deref().unwrap_or_default());
        if cx.asks_dims.get() {
            return unknown("a row that asks for the sizes of its results");
        }
        if actual.len() != values.len() {
            return unknown("results of unknown sizes");
        }
        let computed = cx.computed.borrow();
        let (mut results, mut new) = (sizes.results.clone(), Vec::<((usize, Vec<u32>, i64), i64)>::new());
        results.resize(values.len(), None);
        for (i, value) in values.iter().enumerate() {
            let Some(spec) = actual[i].as_ref().filter(|_| results[i].is_none()) else { continue };
            if spec.sizes.len() != value.rank() {
                return unknown("a result of another rank");
            }
            let dim = |axis: usize| {
                let (extent, largest) = (value.extent(axis), value.dim(axis));
                let is_own = extent.sizes().iter().any(|&size| size >= known);
                let is_computed = extent.is_whole() && computed.contains(&(i, axis, largest));
                if !is_own && (!is_computed || spec.sizes[axis] == largest) {
                    return Ok(if extent.is_whole() { Dim::known(largest) } else { Dim::of(&extent.0) });
                }
                if !extent.is_prefix() {
                    return unknown("a size within merged dimensions");
                }
                let kind = (if is_own { usize::MAX } else { axis }, extent.sizes(), largest);
                let place = new.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
                    new.push((kind, capacity(largest, i, axis)));
                    new.len() - 1
                });
                Ok(Dim::new(new[place].1, vec![known + place as u32]))
            };
            results[i] = Some((0..value.rank()).map(dim).collect::<Result<_>>()?);
        }
        if new.is_empty() {
            return unknown("no size that the row computes");
        }
        Ok((results, new.into_iter().map(|(_, capacity)| capacity).collect()))
    })
}

fn unknown<T>(what: &str) -> Result<T> {
    Err(Error::not_implemented(what))
}

/// Lowers the row of a call with sizes as inputs, and does something with its values.
fn with_values<T>(
    call: &Call,
    sizes: &Sizes,
    then: impl for<'b> FnOnce(&Cx<'b>, &Row, Vec<Value<'b>>) -> Result<T>,
) -> Result<T> {
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
    let (mut scalars, mut tensors) = (0, 0);
    let mut read = |spec: &TensorSpec| {
        let view = &sizes.views[tensors];
        tensors += 1;
        let value = match (base(&inputs, sizes, spec.storage), view) {
            (Some(base), SizedView::Divided(division)) => division.read(base),
            (Some(base), SizedView::Paired(division, paired)) => paired.read(base, division),
            (Some(base), SizedView::Windowed(division, windows)) => {
                windows.iter().fold(division.read(base), |value, windowed| windowed.read(value))
            }
            _ => return Arg::Tensor(spec.clone()),
        };
        Arg::Value(shown(value, spec))
    };
    let args = call.names.iter().zip(&call.args);
    let args = args.map(|(name, arg)| (name.as_str(), read_all(to_arg(arg, &mut scalars), &mut read))).collect();
    let mut cx = Cx {
        mutated: &call.mutated,
        result_dims: &sizes.results,
        ..Cx::new(&inputs, lower_nodes, &call.operator, call.default_dtype, args)
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
    then(&cx, row, lowered?)
}

/// The value of a storage.
fn base<'b>(inputs: &Inputs<'b>, sizes: &Sizes, storage: usize) -> Option<Value<'b>> {
    let value = inputs.base(storage)?;
    Some(if value.is_bounded() { value } else { value.with_extents(sizes.storages[storage].clone()) })
}

/// The program that returns the values of a row.
fn finish<'b>(call: &Call, sizes: &Sizes, cx: &Cx<'b>, row: &Row, values: &[Value<'b>]) -> Result<Lowered> {
    let (inputs, builder) = (cx.inputs, cx.b());
    if inputs.draw().is_none() && inputs.sources().contains(&ParamSource::RandomState) && sizes.is_bounded() {
        return Err(Error::not_implemented("random numbers, which depend on all sizes"));
    }
    let known = sizes.capacities.len() as u32;
    if inputs.draw().is_some_and(|draw| draw.sizes().any(|size| size >= known)) {
        return Err(Error::not_implemented("random numbers of sizes that the program computes"));
    }
    let (mut returned, mut outputs) = (Vec::new(), Vec::new());
    let targets = written_views(call, sizes);
    let counts = cx.counts.borrow();
    let results = match &call.results {
        Some(results) => results.clone(),
        None if counts.is_empty() && !row.bounds_results => Vec::new(),
        None => values.iter().enumerate().map(|(i, &value)| Some(largest_result(cx, i, value))).collect(),
    };
    if values.len() < targets.len() || results.len() != values.len() {
        return Err(Error::not_implemented("results of unknown sizes"));
    }
    let is_counted = |value: Value<'_>, axis: usize| {
        let mut others = value.extents().into_iter().enumerate();
        let is_given = |extent: &Extent| extent.is_prefix() && extent.sizes().iter().all(|&size| size < known);
        others.all(|(place, extent)| if place == axis { extent.is_whole() } else { is_given(&extent) })
    };
    if !counts.iter().all(|(result, axis, _)| is_counted(values[*result], *axis)) {
        return Err(Error::not_implemented("a result whose size depends on the data and on merged dimensions"));
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
                written(inputs, target, value, before)
            }
            SizedView::Paired(..) => return Err(Error::not_implemented("a write to parts of complex numbers")),
            SizedView::Windowed(..) => return Err(Error::not_implemented("a write to windows")),
            SizedView::Divided(view) => {
                let is_repeated = view.dims.iter().any(|dim| matches!(dim, ViewDim::Repeated(_)));
                if value.dims() != view.capacities() || is_repeated {
                    return Err(Error::not_implemented("a write of another shape"));
                }
                let old = before.or_else(|| if view.is_all() { None } else { base(inputs, sizes, target.storage) });
                let new = view.write(old, value);
                match &call.storages[target.storage].base {
                    Some(ty) => new.reshape(&ty.dims),
                    // A new storage has the form of a result.
                    None if view.is_in_order() => new.reshape(&view.capacities()),
                    None => new,
                }
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
        let stored = view::stored(value.transpose(&order));
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
        own_inputs: call.has_own_inputs(),
    })
}

/// A result whose sizes PyTorch does not give, at its largest sizes.
fn largest_result(cx: &Cx<'_>, i: usize, value: Value<'_>) -> ResultSpec {
    let sizes = value.dims();
    let strides = cx.strides.borrow().iter().find(|(result, _)| *result == i).map(|found| found.1.clone());
    let strides = strides.unwrap_or_else(|| contiguous_strides(&sizes));
    ResultSpec { dtype: value.dtype(), sizes, strides }
}

/// A result with the extents of PyTorch's sizes in the dimensions that the row has not bounded, or has bounded by a size
/// of its own. The first `known` sizes are inputs.
fn fitted<'b>(value: Value<'b>, expected: Option<&[Dim]>, known: u32) -> Value<'b> {
    let Some(dims) = expected.filter(|dims| dims.len() == value.rank()) else { return value };
    let mut value = value;
    for (axis, dim) in dims.iter().enumerate() {
        let [size] = dim.sizes[..] else { continue };
        let b = value.builder();
        let expected = dim.extent(|_| b.capacity(size));
        // A size that the row computes is PyTorch's, if both have their padding at the end.
        let is_own = value.extent(axis).is_prefix() && value.extent(axis).sizes().iter().any(|&own| own >= known);
        if is_own && expected.is_prefix() {
            let missing = (dim.capacity - value.dim(axis)).max(0);
            value = value.whole_along(axis).pad_axis(axis, 0, 0, missing).slice_axis(axis, 0, dim.capacity);
        }
        if value.extent(axis).is_whole() && value.dim(axis) == dim.capacity {
            value = value.with_extent(axis, expected);
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
