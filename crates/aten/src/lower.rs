//! From a call to a StableHLO function: arguments are read through their views, the row computes, and
//! results become fresh tensors or are written through the views of mutated arguments.

use stablehlo::{Builder, DType, Extent, Function, Type, Value};

use crate::check::Check;
use crate::cx::{Arg, Cx, Scalar};
use crate::error::{Error, Result};
use crate::inputs::{Inputs, ParamSource};
use crate::number_check::NumberCheck;
use crate::ops::{foreach, shape::bounded_views};
use crate::spec::{ArgSpec, Body, Call, Dim, Graph, GraphArg, ResultSpec, ScalarSpec, TensorSpec};
use crate::table::{self, Row};
use crate::view::{self, contiguous_strides, memory_order};

/// One result of a lowered function.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A new tensor over a new storage whose value has the shape `base`.
    /// `extents` say how much of each of its dimensions is real.
    Fresh { base: Type, dtype: DType, sizes: Vec<i64>, strides: Vec<i64>, extents: Vec<Extent> },
    /// A result that this call does not have (masked out).
    Absent,
    /// The new value, of shape `base`, of one of the call's storages.
    Updated { storage: usize, base: Type },
    /// A 0-d int64: how much of dimension `axis` of fresh result `fresh` (counting fresh results only)
    /// is real.
    Count { fresh: usize, axis: usize },
    /// A 0-d int64: what the program has met of what the check asks for.
    Check(Check),
}

/// A lowered call.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub function: Function,
    /// Where each parameter comes from.
    pub params: Vec<ParamSource>,
    /// What the call's numbers must be like.
    pub number_checks: Vec<NumberCheck>,
    pub outputs: Vec<Output>,
    /// How many 128-bit blocks of random bits one execution draws.
    pub random_blocks: u64,
    /// Whether another [`Call::precision`] would give another function.
    pub follows_precision: bool,
}

/// Lowers one call. The error is the user's to see, or [`crate::ErrorKind::NotImplemented`] when a
/// node of a decomposition has no row.
pub fn lower_call(call: &Call) -> Result<Lowered> {
    let builder = Builder::new(call.precision, call.target);
    let inputs = Inputs::new(&builder, &call.storages, call.is_checked);
    let lowered = lower_with(call, &builder, &inputs).map_err(|error| match &call.body {
        // Whatever it is, the graph can be had with sizes that are known.
        Body::Graph(graph) if graph.bounds.is_some() => Error::not_implemented(error.message),
        _ => error,
    })?;
    match builder.lacking() {
        Some(what) => Err(Error::not_implemented(format!("{}: {what}", call.operator))),
        None => Ok(lowered),
    }
}

fn lower_with<'b>(call: &'b Call, builder: &'b Builder, inputs: &'b Inputs<'b>) -> Result<Lowered> {
    let mut scalars = 0;
    let args: Vec<(&str, Arg<'b>)> =
        call.names.iter().zip(&call.args).map(|(name, arg)| (name.as_str(), to_arg(arg, &mut scalars))).collect();
    let cx = Cx {
        inputs,
        operator: &call.operator,
        args,
        mutated: &call.mutated,
        results: call.results.clone(),
        result_dims: &[],
        counts: Default::default(),
    };
    let values = match &call.body {
        Body::Row(row) => row.lower(&cx)?,
        Body::Graph(graph) => lower_graph(graph, call, &cx)?,
    };
    let written = call.written_tensors().len();
    if cx.counts.borrow().iter().any(|(result, ..)| *result < written) {
        return Err(Error::not_implemented(format!(
            "{}: results whose size the data decide cannot be written to given tensors",
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
        random_blocks: inputs.random_blocks(),
        follows_precision: builder.follows_precision(),
    })
}

fn to_arg<'b>(spec: &ArgSpec, scalars: &mut usize) -> Arg<'b> {
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

impl Call {
    /// The tensors that the call writes, in schema order with lists flattened.
    pub fn written_tensors(&self) -> Vec<&TensorSpec> {
        fn collect<'a>(arg: &'a ArgSpec, into: &mut Vec<&'a TensorSpec>) {
            match arg {
                ArgSpec::Tensor(tensor) => into.push(tensor),
                ArgSpec::List(items) => items.iter().for_each(|item| collect(item, into)),
                _ => {}
            }
        }
        let mut tensors = Vec::new();
        for &i in &self.mutated {
            collect(&self.args[i], &mut tensors);
        }
        tensors
    }
}

struct Outputs<'a, 'b> {
    call: &'a Call,
    inputs: &'b Inputs<'b>,
    values: Vec<Value<'b>>,
    outputs: Vec<Output>,
}

impl<'b> Outputs<'_, 'b> {
    /// Writes the first results through the views of the mutated arguments. Two of them may share a
    /// storage: the writes then follow one another.
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
            let spec = &self.inputs.storages()[target.storage];
            let value = view::shown(result.convert(target.dtype), target);
            let place = bases.iter().position(|(storage, _)| *storage == target.storage);
            let old = match place {
                Some(place) => Some(bases[place].1),
                None if view::write_reads_base(spec.base.as_ref(), spec.nbytes, target) => {
                    self.inputs.base(target.storage)
                }
                None => None,
            };
            let new = match (&old, &spec.base) {
                // The view covers the base: its old value is not even read.
                (None, Some(_)) => view::write(None, value.ty().size_bytes(), target, value, None),
                _ => view::write(old, spec.nbytes, target, value, self.inputs.offset(target)),
            };
            match place {
                Some(place) => bases[place].1 = new,
                None => bases.push((target.storage, new)),
            }
        }
        for (storage, value) in bases {
            self.outputs.push(Output::Updated { storage, base: value.ty() });
            self.values.push(value);
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
                None => (value, value.dims(), contiguous_strides(&value.dims())),
            };
            // A dense tensor's storage holds its dimensions in memory order; of those that repeat, one element.
            let held: Vec<i64> =
                sizes.iter().zip(&strides).map(|(&n, &stride)| if stride == 0 { n.min(1) } else { n }).collect();
            let repeats = held != sizes;
            let (order, strides, held) = match memory_order(&held, &strides) {
                // Of what is bounded, each element is its own.
                Some(order) if !(repeats && value.is_bounded()) => (order, strides, held),
                _ => ((0..sizes.len()).collect(), contiguous_strides(&sizes), sizes.clone()),
            };
            let stored = value.slice(&vec![0; held.len()], &held, &vec![1; held.len()]).transpose(&order);
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
        if value.rank() == 0 && spec.sizes == [1] {
            // Some meta kernels give a lone number a dimension that the kernels do not (multi_margin_loss).
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

// ---- decompositions ------------------------------------------------------------------------------

fn lower_graph<'b>(graph: &'b Graph, call: &Call, cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    // Values, and numbers, which take part in type promotion as numbers.
    let mut values: Vec<Option<Arg<'b>>> = Vec::new();
    for ((_, arg), index) in cx.args.iter().zip(0..) {
        // out= arguments are written, never read; the graph does not know them.
        let only_written = call.mutated.contains(&index) && !graph_reads(graph, call, index);
        if !only_written {
            collect_inputs(arg, cx, &mut values);
        }
    }
    values.truncate(graph.inputs);
    if let Some(bounds) = &graph.bounds {
        for &(input, capacity) in &bounds.sizes {
            if let Some(Some(Arg::Scalar(scalar))) = values.get(input) {
                cx.b().add_size(cx.scalar_value(scalar, DType::I64), capacity);
            }
        }
        for (input, extents) in &bounds.inputs {
            if let Some(Some(Arg::Value(value))) = values.get_mut(*input) {
                *value = value.with_extents(extents.clone());
            }
        }
    }
    lower_nodes(graph, values, cx)
}

/// What a graph makes of its inputs, in the function being built.
pub(crate) fn lower_nodes<'b>(
    graph: &'b Graph,
    mut values: Vec<Option<Arg<'b>>>,
    cx: &Cx<'b>,
) -> Result<Vec<Value<'b>>> {
    for (index, node) in graph.nodes.iter().enumerate() {
        let row = table::find(&node.operator)
            .ok_or_else(|| Error::not_implemented(format!("{} has no lowering", node.operator)))?;
        let args = node
            .args
            .iter()
            .map(|(name, arg)| Ok((name.as_str(), graph_arg(arg, &values)?)))
            .collect::<Result<Vec<_>>>()?;
        let mut node_cx = cx.with(args);
        node_cx.operator = &node.operator;
        let expected = graph.bounds.as_ref().and_then(|bounds| bounds.results.get(index)?.as_deref());
        node_cx.result_dims = expected.unwrap_or_default();
        let makes_bounded = expected.into_iter().flatten().flatten().flatten().any(|dim| !dim.sizes.is_empty());
        let bounded = makes_bounded || node_cx.args.iter().any(|(_, arg)| is_bounded(arg));
        if bounded && !table::stands_bounds(&node.operator) {
            return Err(Error::not_implemented(format!("{} does not know bounded dimensions", node.operator)));
        }
        let mut lowered = row.lower(&node_cx);
        if lowered.is_err() && cx.b().refused().is_some() {
            if let Some(args) = bounded_views::in_order(&node_cx) {
                cx.b().forgive();
                node_cx.args = args;
                lowered = row.lower(&node_cx);
            }
        }
        let mut results = lowered?;
        if bounded {
            check_bounds(&node.operator, &mut results, expected)?;
        }
        for i in 0..node.results {
            values.push(results.get(i).copied().map(Arg::Value));
        }
    }
    let value_at = |&k: &usize| match values.get(k) {
        Some(Some(Arg::Value(value))) => Ok(*value),
        Some(Some(Arg::Scalar(scalar))) => Ok(cx.scalar_value(scalar, scalar.spec.dtype)),
        _ => Err(Error::runtime("a graph lost a value")),
    };
    graph.outputs.iter().flatten().map(value_at).collect()
}

fn is_bounded(arg: &Arg<'_>) -> bool {
    match arg {
        Arg::Plain(ArgSpec::Dim(_) | ArgSpec::Dims(_)) => true,
        Arg::Value(value) => value.is_bounded(),
        Arg::List(items) => items.iter().any(is_bounded),
        _ => false,
    }
}

/// Compares how much of each result is real with what PyTorch says. What a row has made of nothing, such as zeros, is
/// real everywhere: it takes the bound of PyTorch's size.
fn check_bounds(operator: &str, results: &mut [Value<'_>], expected: Option<&[Option<Vec<Dim>>]>) -> Result<()> {
    for (i, result) in results.iter_mut().enumerate() {
        let Some(Some(dims)) = expected.map(|expected| expected.get(i).and_then(Option::as_ref)) else { continue };
        let wrong = || {
            let expected = Dim::capacities(dims);
            Error::not_implemented(format!("{operator} gives another shape than PyTorch, {result:?}, not {expected:?}"))
        };
        if dims.len() != result.rank() {
            return Err(wrong());
        }
        let mut extents = result.extents();
        for (axis, dim) in dims.iter().enumerate() {
            if extents[axis].is_whole() && dim.sizes.len() == 1 {
                extents[axis] = dim.extent(|size| result.builder().capacity(size));
            }
            if dim.sizes.is_empty() {
                // PyTorch knows that the size is what it can be at most, as of a tensor that was broadcast to another.
                extents[axis] = Extent::default();
            }
            if extents[axis].sizes() != dim.sizes || result.dim(axis) != dim.capacity {
                return Err(wrong());
            }
        }
        if extents != result.extents() {
            *result = result.without_extents().with_extents(extents);
        }
    }
    Ok(())
}

/// Whether a mutated argument is also an input of the graph: in-place forms read it, `out=` ones do not.
fn graph_reads(graph: &Graph, call: &Call, index: usize) -> bool {
    let count = |arg: &ArgSpec| match arg {
        ArgSpec::Tensor(_) => 1,
        ArgSpec::List(items) => items.iter().filter(|i| !matches!(i, ArgSpec::None)).count(),
        ArgSpec::Scalar(scalar) if is_input(scalar) => 1,
        _ => 0,
    };
    let before: usize = call.args[..index].iter().map(count).sum();
    before < graph.inputs
}

/// Whether a number is a value of the graph: one that stands where the schema has a Tensor, or that is not
/// part of the program.
fn is_input(scalar: &ScalarSpec) -> bool {
    scalar.is_tensor || scalar.baked.is_none()
}

fn collect_inputs<'b>(arg: &Arg<'b>, cx: &Cx<'b>, values: &mut Vec<Option<Arg<'b>>>) {
    match arg {
        Arg::Tensor(spec) => values.push(Some(Arg::Value(cx.inputs.read(spec)))),
        Arg::Scalar(scalar) if is_input(&scalar.spec) => values.push(Some(arg.clone())),
        Arg::List(items) => items.iter().for_each(|item| collect_inputs(item, cx, values)),
        _ => {}
    }
}

fn graph_arg<'b>(arg: &'b GraphArg, values: &[Option<Arg<'b>>]) -> Result<Arg<'b>> {
    let at = |k: usize| {
        values.get(k).cloned().flatten().ok_or_else(|| Error::runtime("a graph uses a value it does not have"))
    };
    let scalar = |number: stablehlo::Number| {
        use stablehlo::Number::*;
        let dtype = match number {
            Bool(_) => DType::Bool,
            Int(_) => DType::I64,
            Float(_) => DType::F64,
            Complex(..) => DType::C128,
        };
        Arg::Scalar(Scalar {
            spec: ScalarSpec { dtype, wrapped: true, is_tensor: false, baked: Some(number) },
            index: 0,
        })
    };
    Ok(match arg {
        GraphArg::Value(k) => at(*k)?,
        GraphArg::Values(items) => {
            Arg::List(items.iter().map(|item| item.map_or(Ok(Arg::None), at)).collect::<Result<Vec<_>>>()?)
        }
        GraphArg::Scalar(number) => scalar(*number),
        GraphArg::Graph(graph) => Arg::Graph(graph),
        GraphArg::Scalars(numbers) => Arg::List(numbers.iter().map(|&n| scalar(n)).collect()),
        GraphArg::Plain(ArgSpec::None) => Arg::None,
        GraphArg::Plain(plain) => Arg::Plain(plain.clone()),
    })
}

impl Row {
    pub(crate) fn lower<'b>(&self, cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
        if let Some(takes) = &self.takes {
            takes.check(cx)?;
        }
        let values = match self.lower {
            table::Lower::One(f) => vec![f(cx)?],
            table::Lower::Many(f) => f(cx)?,
            table::Lower::Each { element, parameters } => foreach::lower_each(cx, element, parameters)?,
        };
        if let Some(refused) = cx.b().refused() {
            return Err(Error::not_implemented(format!("{} with bounded dimensions: {refused}", cx.operator)));
        }
        if let Some(dtype) = cx.b().untaken() {
            return Err(Error::not_implemented_for(cx.operator, dtype));
        }
        match cx.b().error() {
            Some(error) => Err(Error::runtime(format!("{}: internal error in its lowering: {error}", cx.operator))),
            None => Ok(values),
        }
    }
}
