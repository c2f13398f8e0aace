//! What a row of the table sees: the arguments by their schema names, as values.

use std::cell::RefCell;

use stablehlo::{Builder, DType, DTypes, Number, Type, Value};

use crate::error::{Error, Result};
use crate::inputs::{Inputs, ParamSource};
use crate::number_check::{Fit, NumberCheck};
use crate::promote::{Category, result_type};
use crate::spec::{ArgSpec, Dim, Graph, ResultSpec, ScalarSpec, TensorSpec};

/// A number among the arguments: a constant, or an input that becomes a parameter when used.
#[derive(Clone, Debug)]
pub struct Scalar {
    pub spec: ScalarSpec,
    pub index: usize,
}

/// An argument as a row sees it.
#[derive(Clone, Debug)]
pub enum Arg<'b> {
    None,
    /// A tensor that has not been read yet.
    Tensor(TensorSpec),
    /// A value of the graph being lowered.
    Value(Value<'b>),
    Scalar(Scalar),
    List(Vec<Arg<'b>>),
    Plain(ArgSpec),
    /// A function that the operator calls.
    Graph(&'b Graph),
}

/// The context of one row.
pub struct Cx<'b> {
    pub(crate) inputs: &'b Inputs<'b>,
    pub(crate) operator: &'b str,
    pub(crate) args: Vec<(&'b str, Arg<'b>)>,
    /// The places of the arguments that the call writes.
    pub(crate) mutated: &'b [usize],
    pub(crate) results: Option<Vec<Option<ResultSpec>>>,
    /// In a graph with bounded dimensions.
    pub(crate) result_dims: &'b [Option<Vec<Dim>>],
    /// What the data decide of sizes: (result, dimension, 0-d count).
    pub(crate) counts: RefCell<Vec<(usize, usize, Value<'b>)>>,
}

impl<'b> Cx<'b> {
    pub fn b(&self) -> &'b Builder {
        self.inputs.builder
    }

    /// A context for another row with these arguments, as when a list operator applies a row to each
    /// of its elements.
    pub fn with(&self, args: Vec<(&'b str, Arg<'b>)>) -> Cx<'b> {
        Cx {
            inputs: self.inputs,
            operator: self.operator,
            args,
            mutated: &[],
            results: None,
            result_dims: &[],
            counts: RefCell::default(),
        }
    }

    /// The argument, or `Arg::None` when the operator has none of that name.
    pub fn arg(&self, name: &str) -> Arg<'b> {
        self.args.iter().find(|(n, _)| *n == name).map_or(Arg::None, |(_, arg)| arg.clone())
    }

    pub fn is_none(&self, name: &str) -> bool {
        matches!(self.arg(name), Arg::None)
    }

    fn wrong<T>(&self, name: &str, expected: &str) -> Result<T> {
        if matches!(self.arg(name), Arg::Plain(ArgSpec::Dim(_) | ArgSpec::Dims(_))) {
            // Kept, also where the row would do without the argument.
            self.b().refuse(format!("a bounded {name}"));
        }
        Err(Error::runtime(format!("{}: argument '{name}' must be {expected}", self.operator)))
    }

    // ---- tensors and numbers as values ----------------------------------------------------------

    /// A tensor argument; a number becomes a 0-d value of its own type.
    pub fn tensor(&self, name: &str) -> Result<Value<'b>> {
        match self.value_of(&self.arg(name)) {
            Some(value) => Ok(value),
            None => self.wrong(name, "a Tensor"),
        }
    }

    /// A tensor argument that may be absent.
    pub fn tensor_or_none(&self, name: &str) -> Option<Value<'b>> {
        self.value_of(&self.arg(name))
    }

    /// A `Tensor[]` or `Tensor?[]` argument.
    pub fn tensors_or_none(&self, name: &str) -> Result<Vec<Option<Value<'b>>>> {
        match self.arg(name) {
            Arg::List(items) => Ok(items.iter().map(|item| self.value_of(item)).collect()),
            Arg::None => Ok(Vec::new()),
            _ => self.wrong(name, "a list of Tensors"),
        }
    }

    /// A `Tensor[]` argument.
    pub fn tensors(&self, name: &str) -> Result<Vec<Value<'b>>> {
        let values: Option<Vec<Value<'b>>> = self.tensors_or_none(name)?.into_iter().collect();
        values.map_or_else(|| self.wrong(name, "a list of Tensors"), Ok)
    }

    fn value_of(&self, arg: &Arg<'b>) -> Option<Value<'b>> {
        match arg {
            Arg::Tensor(spec) => Some(self.inputs.read(spec)),
            Arg::Value(value) => Some(*value),
            Arg::Scalar(scalar) => Some(self.scalar_value(scalar, scalar.spec.dtype)),
            _ => None,
        }
    }

    /// The dimensions along which an argument that the call writes shows each element many times.
    pub fn overlapping_axes(&self, name: &str) -> Vec<usize> {
        match self.arg(name) {
            Arg::Tensor(spec) if self.mutated.iter().any(|&place| self.args[place].0 == name) => {
                (0..spec.sizes.len()).filter(|&axis| spec.sizes[axis] > 1 && spec.strides[axis] == 0).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Element type and sizes of a tensor argument, without reading it.
    pub fn ty(&self, name: &str) -> Result<Type> {
        match self.arg(name) {
            Arg::Tensor(spec) => Ok(Type { dtype: spec.dtype, dims: spec.sizes }),
            Arg::Value(value) => Ok(value.ty()),
            Arg::Scalar(scalar) => Ok(Type::new(scalar.spec.dtype, &[])),
            _ => self.wrong(name, "a Tensor"),
        }
    }

    pub(crate) fn scalar_value(&self, scalar: &Scalar, dtype: DType) -> Value<'b> {
        match scalar.spec.baked {
            Some(number) => self.b().scalar(number, dtype),
            None => {
                let source = ParamSource::Scalar { index: scalar.index, dtype };
                self.inputs.param(source, Type::new(dtype, &[]))
            }
        }
    }

    /// Asks that a number argument fit into a type.
    pub(crate) fn check_number(&self, name: &str, dtype: DType, fit: Fit) -> Result<()> {
        match self.arg(name) {
            Arg::Scalar(Scalar { spec: ScalarSpec { baked: Some(number), .. }, .. }) => fit.check(number, dtype),
            Arg::Scalar(scalar) => {
                self.inputs.add_number_check(NumberCheck { index: scalar.index, dtype, fit });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A number argument as a 0-d value of type `dtype`, which must have room for it.
    pub fn scalar(&self, name: &str, dtype: DType) -> Result<Value<'b>> {
        self.check_number(name, dtype, Fit::Converts)?;
        match self.arg(name) {
            Arg::Scalar(scalar) => Ok(self.scalar_value(&scalar, dtype)),
            Arg::Plain(ArgSpec::Int(i)) => Ok(self.b().scalar(i, dtype)),
            Arg::Plain(ArgSpec::Bool(x)) => Ok(self.b().scalar(x, dtype)),
            Arg::Plain(ArgSpec::Dim(dim)) => Ok(self.size_of(&dim).convert(dtype)),
            Arg::Value(value) if value.rank() == 0 => Ok(value.convert(dtype)),
            Arg::Tensor(spec) if spec.sizes.is_empty() => Ok(self.inputs.read(&spec).convert(dtype)),
            _ => self.wrong(name, "a number"),
        }
    }

    pub fn scalar_or_none(&self, name: &str, dtype: DType) -> Result<Option<Value<'b>>> {
        if self.is_none(name) { Ok(None) } else { self.scalar(name, dtype).map(Some) }
    }

    /// A number that is part of the program: the row must list the argument as baked (schema
    /// defaults are baked without that).
    pub fn number(&self, name: &str) -> Result<Number> {
        match self.arg(name) {
            Arg::Scalar(Scalar { spec: ScalarSpec { baked: Some(number), .. }, .. }) => Ok(number),
            Arg::Plain(ArgSpec::Int(i)) => Ok(Number::Int(i)),
            Arg::Plain(ArgSpec::Bool(x)) => Ok(Number::Bool(x)),
            Arg::Scalar(_) => self.wrong(name, "listed as baked in its row"),
            _ => self.wrong(name, "a number"),
        }
    }

    /// [`Cx::number`] when it is known while the program is built; `None` when it is an input.
    pub fn known_number(&self, name: &str) -> Option<Number> {
        self.number(name).ok()
    }

    // ---- sizes that may be bounded ---------------------------------------------------------------

    /// An int that may be a bounded size.
    pub fn dim(&self, name: &str) -> Result<Dim> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Dim(dim)) => Ok(dim),
            _ => Ok(Dim { capacity: self.int(name)?, sizes: Vec::new() }),
        }
    }

    /// An int list in which there may be bounded sizes; empty when absent.
    pub fn dims(&self, name: &str) -> Result<Vec<Dim>> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Dims(dims)) => Ok(dims),
            _ => Ok(self.ints(name)?.into_iter().map(|capacity| Dim { capacity, sizes: Vec::new() }).collect()),
        }
    }

    /// As large as the sizes of an int list can get; empty when absent.
    pub fn capacities(&self, name: &str) -> Result<Vec<i64>> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Dims(dims)) => Ok(Dim::capacities(&dims)),
            Arg::Plain(ArgSpec::Dim(dim)) => Ok(vec![dim.capacity]),
            _ => self.ints(name),
        }
    }

    /// What a size is when the program runs: 0-d, int64.
    pub fn size_of(&self, dim: &Dim) -> Value<'b> {
        let b = self.b();
        let largest: i64 = dim.sizes.iter().map(|&size| b.capacity(size)).product();
        // A size that is an expression can be at most 0.
        let known = if largest == dim.capacity { 1 } else { dim.capacity / largest.max(1) };
        dim.sizes.iter().fold(b.scalar(known, DType::I64), |product, &size| product * b.size(size))
    }

    /// What PyTorch says of result `i`'s sizes in a graph with bounded dimensions.
    pub fn result_dims(&self, i: usize) -> Option<&[Dim]> {
        self.result_dims.get(i)?.as_deref()
    }

    /// Result 0, which is the same everywhere along `axes`: however much of them is real, and wherever it lies.
    pub fn uniform(&self, result: Value<'b>, axes: impl Iterator<Item = usize>) -> Value<'b> {
        let Some(dims) = self.result_dims(0).filter(|dims| dims.len() == result.rank()) else { return result };
        let mut extents = result.extents();
        for axis in axes.filter(|&axis| dims[axis].capacity == result.dim(axis)) {
            extents[axis] = dims[axis].extent(|size| self.b().capacity(size));
        }
        if extents == result.extents() { result } else { result.without_extents().with_extents(extents) }
    }

    /// Result `i`, whose bounded dimensions are all taken to be real, as long as PyTorch's sizes can get: what a
    /// formula gives for the largest inputs can be less, or more.
    pub fn resized(&self, i: usize, result: Value<'b>) -> Value<'b> {
        let expected = self.result_dims(i).unwrap_or_default();
        expected.iter().enumerate().fold(result, |result, (axis, dim)| {
            if result.is_bounded_along(&[axis]) {
                return result;
            }
            result.pad_axis(axis, 0, 0, dim.capacity - result.dim(axis))
        })
    }

    // ---- plain arguments -------------------------------------------------------------------------

    pub fn int(&self, name: &str) -> Result<i64> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Int(i)) => Ok(i),
            Arg::Plain(ArgSpec::Bool(x)) => Ok(x.into()),
            _ => self.wrong(name, "an int"),
        }
    }

    pub fn int_or_none(&self, name: &str) -> Option<i64> {
        self.int(name).ok()
    }

    /// An int list; empty when absent.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Ints(items)) => Ok(items),
            Arg::Plain(ArgSpec::Int(i)) => Ok(vec![i]),
            Arg::None => Ok(Vec::new()),
            _ => self.wrong(name, "a list of ints"),
        }
    }

    pub fn ints_or_none(&self, name: &str) -> Result<Option<Vec<i64>>> {
        if self.is_none(name) { Ok(None) } else { self.ints(name).map(Some) }
    }

    pub fn floats_or_none(&self, name: &str) -> Option<Vec<f64>> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Floats(items)) => Some(items),
            _ => None,
        }
    }

    /// A bool; false when absent.
    pub fn bool(&self, name: &str) -> Result<bool> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Bool(x)) => Ok(x),
            Arg::Plain(ArgSpec::Int(i)) => Ok(i != 0),
            Arg::None => Ok(false),
            _ => self.wrong(name, "a bool"),
        }
    }

    pub fn bools(&self, name: &str) -> Result<Vec<bool>> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Bools(items)) => Ok(items),
            _ => self.wrong(name, "a list of bools"),
        }
    }

    pub fn str(&self, name: &str) -> Result<String> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Str(text)) => Ok(text),
            _ => self.wrong(name, "a string"),
        }
    }

    pub fn str_or_none(&self, name: &str) -> Option<String> {
        self.str(name).ok()
    }

    pub fn dtype_or_none(&self, name: &str) -> Option<DType> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::DType(dtype)) => Some(dtype),
            _ => None,
        }
    }

    /// A function that the operator calls.
    pub fn graph(&self, name: &str) -> Result<&'b Graph> {
        match self.arg(name) {
            Arg::Graph(graph) => Ok(graph),
            _ => self.wrong(name, "a function"),
        }
    }

    // ---- dimensions ------------------------------------------------------------------------------

    /// A dimension number of a value of `rank` dimensions, made non-negative and checked.
    pub fn axis(&self, dim: i64, rank: usize) -> Result<usize> {
        let bound = rank.max(1) as i64;
        if dim < -bound || dim >= bound {
            return Err(Error::index(format!(
                "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
                -bound,
                bound - 1
            )));
        }
        Ok(dim.rem_euclid(bound) as usize)
    }

    /// The argument `name` as a dimension number.
    pub fn axis_arg(&self, name: &str, rank: usize) -> Result<usize> {
        self.axis(self.int(name)?, rank)
    }

    /// The argument `name` as ascending dimension numbers; every dimension when absent or empty.
    pub fn axes_arg(&self, name: &str, rank: usize) -> Result<Vec<usize>> {
        let dims = self.ints(name)?;
        if dims.is_empty() {
            return Ok((0..rank).collect());
        }
        let mut axes = Vec::with_capacity(dims.len());
        for dim in dims {
            let axis = self.axis(dim, rank)?;
            if axes.contains(&axis) {
                return Err(Error::runtime(format!("dim {axis} appears multiple times in the list of dims")));
            }
            axes.push(axis);
        }
        axes.retain(|&axis| axis < rank);
        axes.sort_unstable();
        Ok(axes)
    }

    // ---- results ---------------------------------------------------------------------------------

    /// What PyTorch says of result `i` (written arguments first, then fresh results).
    pub fn result(&self, i: usize) -> Option<&ResultSpec> {
        self.results.as_ref()?.get(i)?.as_ref()
    }

    /// The element type that PyTorch gives result 0, or `otherwise`.
    pub fn result_dtype(&self, otherwise: DType) -> DType {
        self.result(0).map_or(otherwise, |r| r.dtype)
    }

    /// Says that only the first `count` (0-d, int64) rows of result `result` are real: the data decide
    /// its first size. The host reads the count; the rows stay on the device.
    pub fn set_count(&self, result: usize, count: Value<'b>) {
        self.set_count_along(result, 0, count);
    }

    /// [`Cx::set_count`] of another dimension than the first.
    pub fn set_count_along(&self, result: usize, axis: usize, count: Value<'b>) {
        self.counts.borrow_mut().push((result, axis, count));
    }

    /// Random bits of an unsigned type from the call's generator.
    pub fn random_bits(&self, dtype: DType, dims: &[i64]) -> Value<'b> {
        self.inputs.random_bits(dtype, dims)
    }

    /// The state that the next draw starts from: the generator's key and counter.
    pub fn random_state(&self) -> Value<'b> {
        self.inputs.random_state()
    }

    /// Draws go on from `state`; says whether they repeat earlier ones or are new.
    pub fn set_random_state(&self, state: Value<'b>, replays: bool) {
        self.inputs.set_random_state(state, replays);
    }

    // ---- promotion -------------------------------------------------------------------------------

    /// The common type of tensor and number arguments.
    pub fn promoted(&self, names: &[&str]) -> Result<DType> {
        let args: Vec<Arg<'b>> = names.iter().map(|name| self.arg(name)).collect();
        let mut operands = Vec::new();
        for (name, arg) in names.iter().zip(&args) {
            match arg {
                Arg::Tensor(spec) => operands.push((spec.dtype, category(spec.sizes.len()))),
                Arg::Value(value) => operands.push((value.dtype(), category(value.rank()))),
                Arg::Scalar(scalar) => {
                    let category = if scalar.spec.wrapped { Category::Wrapped } else { Category::ZeroDim };
                    operands.push((scalar.spec.dtype, category));
                }
                Arg::None => {}
                _ => return self.wrong(name, "a Tensor or a number"),
            }
        }
        Ok(result_type(&operands, DType::F32))
    }

    /// Refuses a type that the operator does not take.
    pub fn check_dtype(&self, dtype: DType, taken: DTypes) -> Result<()> {
        if taken.contains(dtype) { Ok(()) } else { Err(Error::not_implemented_for(self.operator, dtype)) }
    }

    /// A tensor or number argument, as a value of type `dtype`. A number converts as a tensor's elements do.
    pub fn operand(&self, name: &str, dtype: DType) -> Result<Value<'b>> {
        match self.arg(name) {
            Arg::Scalar(scalar) => Ok(self.scalar_value(&scalar, dtype)),
            _ => Ok(self.tensor(name)?.convert(dtype)),
        }
    }

    /// A tensor or number argument, as a value of type `dtype`, which must have room for a number.
    pub fn fitting(&self, name: &str, dtype: DType) -> Result<Value<'b>> {
        self.check_number(name, dtype, Fit::Converts)?;
        self.operand(name, dtype)
    }

    /// Two arguments in their common type.
    pub fn pair(&self, a: &str, b: &str) -> Result<(Value<'b>, Value<'b>)> {
        let dtype = self.promoted(&[a, b])?;
        Ok((self.operand(a, dtype)?, self.operand(b, dtype)?))
    }

    /// Two arguments in their common type, integers and booleans becoming the default float type.
    pub fn float_pair(&self, a: &str, b: &str) -> Result<(Value<'b>, Value<'b>)> {
        let dtype = float_dtype(self.promoted(&[a, b])?);
        Ok((self.operand(a, dtype)?, self.operand(b, dtype)?))
    }

    /// A function of corresponding elements of the arguments, in their common type. 16-bit floats are
    /// computed in float32.
    pub fn pointwise<const N: usize>(
        &self,
        names: [&str; N],
        f: impl FnOnce([Value<'b>; N]) -> Value<'b>,
    ) -> Result<Value<'b>> {
        self.pointwise_in(self.promoted(&names)?, names, f)
    }

    /// [`Cx::pointwise`], integers and booleans becoming the default float type.
    pub fn float_pointwise<const N: usize>(
        &self,
        names: [&str; N],
        f: impl FnOnce([Value<'b>; N]) -> Value<'b>,
    ) -> Result<Value<'b>> {
        self.pointwise_in(float_dtype(self.promoted(&names)?), names, f)
    }

    fn pointwise_in<const N: usize>(
        &self,
        dtype: DType,
        names: [&str; N],
        f: impl FnOnce([Value<'b>; N]) -> Value<'b>,
    ) -> Result<Value<'b>> {
        let values = names.iter().map(|name| self.opmath_operand(name, dtype)).collect::<Result<Vec<_>>>()?;
        match <[Value<'b>; N]>::try_from(values) {
            Ok(values) => Ok(f(values).convert(dtype)),
            Err(_) => Err(Error::runtime("pointwise: as many values as names")),
        }
    }

    /// An operand of an operator on `dtype`, in the type of the arithmetic. As in PyTorch, a number or a
    /// 0-d tensor is not first rounded to a 16-bit `dtype`.
    pub fn opmath_operand(&self, name: &str, dtype: DType) -> Result<Value<'b>> {
        if self.ty(name)?.dims.is_empty() {
            self.operand(name, dtype.opmath())
        } else {
            Ok(self.operand(name, dtype)?.convert(dtype.opmath()))
        }
    }

    /// A function of one float argument `self`: integers and booleans become the default float type,
    /// 16-bit floats are computed in float32.
    pub fn float_unary(&self, f: impl FnOnce(Value<'b>) -> Value<'b>) -> Result<Value<'b>> {
        let x = self.tensor("self")?;
        let dtype = float_dtype(x.dtype());
        Ok(f(x.convert(dtype.opmath())).convert(dtype))
    }
}

fn category(rank: usize) -> Category {
    if rank == 0 { Category::ZeroDim } else { Category::Dimensional }
}

/// Float and complex types stay; integers and booleans become the default float type.
pub fn float_dtype(dtype: DType) -> DType {
    if dtype.is_float() || dtype.is_complex() { dtype } else { DType::F32 }
}
