//! Lowers a call to a StableHLO function: reads the arguments through their views, runs the row, and returns the
//! results as fresh tensors or writes them through the views of mutated arguments.

use stablehlo::{Builder, DType, Extent, Function, Refusal, Type, Value};

use crate::call::{Body, Call};
use crate::check::Check;
use crate::cx::{Arg, Cx, Scalar};
use crate::draw::Draw;
use crate::error::{Error, Result};
use crate::inputs::{Inputs, ParamSource};
use crate::nodes::{lower_graph, lower_nodes};
use crate::number_check::NumberCheck;
use crate::spec::{ArgSpec, ResultSpec, TensorSpec};
use crate::strides::{contiguous_strides, memory_order};
use crate::view;

/// One result of a lowered function.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A new tensor over a new storage whose value has the shape `base`.
    /// `extents` give the valid length of each of its dimensions.
    Fresh { base: Type, dtype: DType, sizes: Vec<i64>, strides: Vec<i64>, extents: Vec<Extent> },
    /// A result that this call does not have (`output_mask`).
    Absent,
    /// The new value of one of the call's storages, with shape `base`.
    Updated { storage: usize, base: Type },
    /// A 0-d int64: the valid length of dimension `axis` of fresh result `fresh`. Only fresh results are counted.
    Count { fresh: usize, axis: usize },
    /// A 0-d int64: the number that failed the check, or [`Check::HOLDS`].
    Check(Check),
}

/// A lowered call.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub function: Function,
    /// The source of each parameter.
    pub params: Vec<ParamSource>,
    /// The checks of the call's numbers.
    pub number_checks: Vec<NumberCheck>,
    pub outputs: Vec<Output>,
    /// The extents of written storages that have padding, by number of the output.
    pub updates: Vec<(usize, Vec<Extent>)>,
    /// The number of 128-bit blocks of random bits that one execution draws.
    pub random_blocks: u64,
    /// The draw of a call with sizes as inputs.
    pub draw: Option<Draw>,
    /// Whether the function depends on [`Call::precision`].
    pub follows_precision: bool,
    /// See [`crate::Row::own_inputs`].
    pub own_inputs: bool,
}

/// Lowers one call.
///
/// # Errors
/// An error for the user, or [`crate::ErrorKind::NotImplemented`] if a node of a decomposition has no row.
pub fn lower_call(call: &Call) -> Result<Lowered> {
    let builder = Builder::new(call.precision, call.target);
    let inputs = Inputs::new(&builder, &call.storages, call.is_checked);
    let lowered = lower_with(call, &builder, &inputs).map_err(|error| match &call.body {
        // The caller can lower the graph again with known sizes.
        Body::Graph(graph) if graph.bounds.is_some() => Error::not_implemented(error.message),
        _ => error,
    })?;
    match builder.refusal() {
        Some(Refusal::Target(what)) => Err(Error::not_implemented(format!("{}: {what}", call.operator))),
        _ => Ok(lowered),
    }
}

fn lower_with<'b>(call: &'b Call, builder: &'b Builder, inputs: &'b Inputs<'b>) -> Result<Lowered> {
    let mut scalars = 0;
    let args: Vec<(&str, Arg<'b>)> =
        call.names.iter().zip(&call.args).map(|(name, arg)| (name.as_str(), to_arg(arg, &mut scalars))).collect();
    let cx = Cx {
        mutated: &call.mutated,
        results: call.results.clone(),
        ..Cx::new(inputs, lower_nodes, &call.operator, call.default_dtype, args)
    };
    let values = match &call.body {
        Body::Row(row) => row.lower(&cx)?,
        Body::Graph(graph) => lower_graph(graph, call, &cx)?,
    };
    let written = call.written_tensors().len();
    if cx.counts.borrow().iter().any(|(result, ..)| *result < written) {
        return Err(Error::not_implemented(format!(
            "{}: a result whose size depends on the data cannot be written to a given tensor",
            call.operator
        )));
    }
    let mut lowering = Outputs { call, inputs, values: Vec::new(), outputs: Vec::new() };
    lowering.write_mutated(&values)?;
    lowering.add_fresh(&values, &cx)?;
    let (values, outputs) = (lowering.values, lowering.outputs);
    let function = builder
        .finish(&values)
        .map_err(|error| Error::runtime(format!("{}: internal error in its lowering: {error}", call.operator)))?;
    Ok(Lowered {
        function,
        params: inputs.sources(),
        number_checks: inputs.number_checks(),
        outputs,
        updates: Vec::new(),
        random_blocks: inputs.random_blocks(),
        draw: None,
        follows_precision: builder.follows_precision(),
        own_inputs: call.has_own_inputs(),
    })
}

pub(crate) fn to_arg<'b>(spec: &ArgSpec, scalars: &mut usize) -> Arg<'b> {
    match spec {
        ArgSpec::None => Arg::None,
        ArgSpec::Tensor(tensor) => Arg::Tensor(tensor.clone()),
        ArgSpec::Scalar(scalar) => {
            let index = *scalars;
            if scalar.baked.is_none() {
                *scalars += 1;
            }
            Arg::Scalar(Scalar { spec: scalar.clone(), index })
        }
        ArgSpec::List(items) => Arg::List(items.iter().map(|item| to_arg(item, scalars)).collect()),
        plain => Arg::Plain(plain.clone()),
    }
}

/// The value of a storage after a write of `value` through the view `target`. `before` is its value after earlier
/// writes of the call.
pub(crate) fn written<'b>(
    inputs: &Inputs<'b>,
    target: &TensorSpec,
    value: Value<'b>,
    before: Option<Value<'b>>,
) -> Value<'b> {
    let spec = &inputs.storages()[target.storage];
    let value = view::shown(value, target);
    let old = before.or_else(|| {
        let reads = view::write_reads_base(spec.base.as_ref(), spec.nbytes, target);
        if reads { inputs.base(target.storage) } else { None }
    });
    match (&old, &spec.base) {
        // The view covers the whole base, so the old value is not needed.
        (None, Some(_)) => view::write(None, value.ty().size_bytes(), target, value, None),
        _ => view::write(old, spec.nbytes, target, value, inputs.offset(target)),
    }
}

struct Outputs<'a, 'b> {
    call: &'a Call,
    inputs: &'b Inputs<'b>,
    values: Vec<Value<'b>>,
    outputs: Vec<Output>,
}

impl<'b> Outputs<'_, 'b> {
    /// Writes the first results through the views of the mutated arguments. If two of them share a storage, the
    /// writes are applied in order.
    fn write_mutated(&mut self, results: &[Value<'b>]) -> Result<()> {
        let targets = self.call.written_tensors();
        if results.len() < targets.len() {
            return Err(Error::runtime(format!(
                "{}: its lowering returned {} results for {} written arguments",
                self.call.operator,
                results.len(),
                targets.len()
            )));
        }
        let mut bases: Vec<(usize, Value<'b>)> = Vec::new();
        for (target, result) in targets.iter().zip(results) {
            if result.dims() != target.sizes {
                return Err(Error::runtime(format!(
                    "{}: output with shape {:?} doesn't match the broadcast shape {:?}",
                    self.call.operator,
                    target.sizes,
                    result.dims()
                )));
            }
            let place = bases.iter().position(|(storage, _)| *storage == target.storage);
            let new = written(self.inputs, target, result.convert(target.dtype), place.map(|place| bases[place].1));
            match place {
                Some(place) => bases[place].1 = new,
                None => bases.push((target.storage, new)),
            }
        }
        for (storage, value) in bases {
            // A row may return the old value, as batch norm does in evaluation.
            if self.inputs.is_base(storage, value) {
                continue;
            }
            let stored = view::stored(value);
            self.outputs.push(Output::Updated { storage, base: stored.ty() });
            self.values.push(stored);
        }
        Ok(())
    }

    fn add_fresh(&mut self, results: &[Value<'b>], cx: &Cx<'b>) -> Result<()> {
        let written = self.call.written_tensors().len();
        for (i, &value) in results.iter().enumerate().skip(written) {
            if cx.results.as_ref().is_some_and(|results| matches!(results.get(i), Some(None))) {
                self.outputs.push(Output::Absent);
                continue;
            }
            let (value, sizes, strides) = match cx.result(i) {
                Some(spec) => self.fit(value, spec)?,
                None => {
                    let chosen =
                        cx.strides.borrow().iter().find(|(result, _)| *result == i).map(|found| found.1.clone());
                    (value, value.dims(), chosen.unwrap_or_else(|| contiguous_strides(&value.dims())))
                }
            };
            // The storage of a dense tensor holds its dimensions in memory order, and one element for each dimension
            // of stride 0.
            let held: Vec<i64> =
                sizes.iter().zip(&strides).map(|(&n, &stride)| if stride == 0 { n.min(1) } else { n }).collect();
            let repeats = held != sizes;
            let (order, strides, held) = match memory_order(&held, &strides) {
                // A bounded value is stored whole, because elements must not share its padding.
                Some(order) if !(repeats && value.is_bounded()) => (order, strides, held),
                _ => ((0..sizes.len()).collect(), contiguous_strides(&sizes), sizes.clone()),
            };
            let dense = value.slice(&vec![0; held.len()], &held, &vec![1; held.len()]).transpose(&order);
            let stored = view::stored(dense);
            let extents = if value.is_bounded() { value.extents() } else { Vec::new() };
            self.outputs.push(Output::Fresh { base: stored.ty(), dtype: value.dtype(), sizes, strides, extents });
            self.values.push(stored);
        }
        for (result, axis, count) in cx.counts.borrow().iter() {
            self.outputs.push(Output::Count { fresh: result - written, axis: *axis });
            self.values.push(count.convert(DType::I64));
        }
        for (number, check) in self.inputs.checks() {
            self.outputs.push(Output::Check(check));
            self.values.push(number);
        }
        Ok(())
    }

    fn fit(&self, value: Value<'b>, spec: &ResultSpec) -> Result<(Value<'b>, Vec<i64>, Vec<i64>)> {
        if value.rank() == 0 && (spec.sizes == [1] || spec.sizes == [0]) {
            // Some meta kernels return shape [1] or [0] where the kernels return a 0-d tensor (multi_margin_loss, isin).
            return Ok((value.convert(spec.dtype), Vec::new(), Vec::new()));
        }
        if value.dims() != spec.sizes {
            return Err(Error::runtime(format!(
                "{}: its lowering computes shape {:?} where PyTorch expects {:?}",
                self.call.operator,
                value.dims(),
                spec.sizes
            )));
        }
        Ok((value.convert(spec.dtype), spec.sizes.clone(), spec.strides.clone()))
    }
}
