//! The context of a row: the arguments by schema name, as values.

use std::cell::{Cell, RefCell};

use stablehlo::{Builder, DType, Number, Type, Value};

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::inputs::{Inputs, ParamSource};
use crate::number_check::{Fit, NumberCheck};
use crate::spec::{ArgSpec, Dim, ResultSpec, ScalarSpec, TensorSpec};
use crate::strides::contiguous_strides;

mod bounded;
mod checks;
mod draws;
mod promotion;

/// A number argument: a constant, or an input that becomes a parameter at its first use.
#[derive(Clone, Debug)]
pub struct Scalar {
    pub spec: ScalarSpec,
    pub index: usize,
}

/// An argument in the form that a row reads.
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
    /// A function that the operator calls, such as a loop's body.
    Graph(&'b Graph),
}

/// Adds the nodes of a graph with the given inputs to the function being built and returns the graph's results.
pub(crate) type LowerNodes = for<'b> fn(&'b Graph, Vec<Option<Arg<'b>>>, &Cx<'b>) -> Result<Vec<Value<'b>>>;

/// The context of one row.
pub struct Cx<'b> {
    pub(crate) inputs: &'b Inputs<'b>,
    /// Passed in, because this module cannot import the table, which has the rows of a graph's nodes.
    pub(crate) lower_nodes: LowerNodes,
    pub(crate) operator: &'b str,
    /// `torch.get_default_dtype()`.
    pub(crate) default_dtype: DType,
    pub(crate) args: Vec<(&'b str, Arg<'b>)>,
    /// The indices of the arguments that the call writes.
    pub(crate) mutated: &'b [usize],
    pub(crate) results: Option<Vec<Option<ResultSpec>>>,
    /// The sizes of each result in a graph with bounded dimensions.
    pub(crate) result_dims: &'b [Option<Vec<Dim>>],
    /// Whether the row read them.
    pub(crate) asks_dims: Cell<bool>,
    /// Dimensions of results that the row computes from sizes that change: (result, dimension, largest size).
    pub(crate) computed: RefCell<Vec<(usize, usize, i64)>>,
    /// Valid lengths that depend on the data: (result, dimension, 0-d count).
    pub(crate) counts: RefCell<Vec<(usize, usize, Value<'b>)>>,
    /// Strides of results that no meta kernel describes, if they are not contiguous: (result, strides).
    pub(crate) strides: RefCell<Vec<(usize, Vec<i64>)>>,
}

impl<'b> Cx<'b> {
    pub fn b(&self) -> &'b Builder {
        self.inputs.builder
    }

    /// A context for another row with these arguments, for example for each element of a list operator.
    pub fn with(&self, args: Vec<(&'b str, Arg<'b>)>) -> Cx<'b> {
        Cx::new(self.inputs, self.lower_nodes, self.operator, self.default_dtype, args)
    }

    /// A context without written arguments, and without known sizes of results.
    pub(crate) fn new(
        inputs: &'b Inputs<'b>,
        lower_nodes: LowerNodes,
        operator: &'b str,
        default_dtype: DType,
        args: Vec<(&'b str, Arg<'b>)>,
    ) -> Cx<'b> {
        Cx {
            inputs,
            lower_nodes,
            operator,
            default_dtype,
            args,
            mutated: &[],
            results: None,
            result_dims: &[],
            asks_dims: Cell::default(),
            computed: RefCell::default(),
            counts: RefCell::default(),
            strides: RefCell::default(),
        }
    }

    /// The argument, or `Arg::None` if the operator has no argument of that name.
    pub fn arg(&self, name: &str) -> Arg<'b> {
        self.args.iter().find(|(n, _)| *n == name).map_or(Arg::None, |(_, arg)| arg.clone())
    }

    pub fn is_none(&self, name: &str) -> bool {
        matches!(self.arg(name), Arg::None)
    }

    fn wrong<T>(&self, name: &str, expected: &str) -> Result<T> {
        if matches!(self.arg(name), Arg::Plain(ArgSpec::Dim(_) | ArgSpec::Dims(_))) {
            // The builder keeps the refusal even if the row continues without the argument.
            self.b().refuse_bounded(format!("a bounded {name}"));
        }
        Err(Error::runtime(format!("{}: argument '{name}' must be {expected}", self.operator)))
    }

    // ---- tensors and numbers as values ----------------------------------------------------------

    /// A tensor argument. A number becomes a 0-d value of its own type.
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

    /// The dimensions of a written argument in which all elements are the same memory (stride 0).
    pub fn overlapping_axes(&self, name: &str) -> Vec<usize> {
        match self.arg(name) {
            Arg::Tensor(spec) if self.mutated.iter().any(|&place| self.args[place].0 == name) => {
                (0..spec.sizes.len()).filter(|&axis| spec.sizes[axis] > 1 && spec.strides[axis] == 0).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Element type and sizes of a tensor argument. Does not read it.
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
            None if dtype == DType::C32 => self.scalar_value(scalar, DType::C64).convert(dtype),
            None if dtype.is_float8() || dtype == DType::F4E2M1FNX2 => {
                self.scalar_value(scalar, DType::F32).convert(dtype)
            }
            None => {
                let source = ParamSource::Scalar { index: scalar.index, dtype };
                self.inputs.param(source, Type::new(dtype, &[]))
            }
        }
    }

    /// Checks that a number argument fits into a type.
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

    /// A number argument as a 0-d value of type `dtype`. Fails if the number does not fit.
    pub fn scalar(&self, name: &str, dtype: DType) -> Result<Value<'b>> {
        self.check_number(name, dtype, Fit::Converts)?;
        match self.arg(name) {
            Arg::Scalar(scalar) => Ok(self.scalar_value(&scalar, dtype)),
            Arg::Plain(ArgSpec::Int(i)) => Ok(self.b().scalar(i, dtype)),
            Arg::Plain(ArgSpec::Bool(x)) => Ok(self.b().scalar(x, dtype)),
            Arg::Plain(ArgSpec::Dim(dim)) => Ok(self.size_of(&dim).convert(dtype)),
            Arg::Plain(ArgSpec::Input(i)) => Ok(self.int_input(i).convert(dtype)),
            Arg::Value(value) if value.rank() == 0 => Ok(value.convert(dtype)),
            Arg::Tensor(spec) if spec.sizes.is_empty() => Ok(self.inputs.read(&spec).convert(dtype)),
            _ => self.wrong(name, "a number"),
        }
    }

    fn int_input(&self, number: usize) -> Value<'b> {
        self.inputs.param(ParamSource::Offset(number), Type::new(DType::I64, &[]))
    }

    /// Whether an int argument, or a list of ints, is an input of the program.
    pub fn is_input(&self, name: &str) -> bool {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Input(_) | ArgSpec::Inputs(..)) => true,
            Arg::Plain(ArgSpec::Dim(dim)) => !dim.sizes.is_empty(),
            Arg::Plain(ArgSpec::Dims(dims)) => dims.iter().any(|dim| !dim.sizes.is_empty()),
            _ => false,
        }
    }

    /// A list of ints as a vector of int64, whether they are constants or inputs of the program.
    pub fn vector(&self, name: &str) -> Result<Value<'b>> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Inputs(first, count)) if count > 0 => {
                let numbers: Vec<_> = (first..first + count).map(|i| self.int_input(i).reshape(&[1])).collect();
                Ok(self.b().concatenate(&numbers, 0))
            }
            Arg::Plain(ArgSpec::Inputs(..)) => Ok(self.b().splat(0, DType::I64, &[0])),
            Arg::Plain(ArgSpec::Dims(dims)) => {
                let numbers: Vec<_> = dims.iter().map(|dim| self.size_of(dim).reshape(&[1])).collect();
                Ok(self.b().concatenate(&numbers, 0))
            }
            _ => {
                let numbers = self.ints(name)?;
                Ok(self.b().constant(&numbers, DType::I64, &[numbers.len() as i64]))
            }
        }
    }

    pub fn scalar_or_none(&self, name: &str, dtype: DType) -> Result<Option<Value<'b>>> {
        if self.is_none(name) { Ok(None) } else { self.scalar(name, dtype).map(Some) }
    }

    /// A number that is a constant of the program. The row must list the argument as baked; schema defaults are baked
    /// without that.
    pub fn number(&self, name: &str) -> Result<Number> {
        match self.arg(name) {
            Arg::Scalar(Scalar { spec: ScalarSpec { baked: Some(number), .. }, .. }) => Ok(number),
            Arg::Plain(ArgSpec::Int(i)) => Ok(Number::Int(i)),
            Arg::Plain(ArgSpec::Bool(x)) => Ok(Number::Bool(x)),
            Arg::Scalar(_) => self.wrong(name, "listed as baked in its row"),
            _ => self.wrong(name, "a number"),
        }
    }

    /// [`Cx::number`], or `None` if the number is an input of the program.
    pub fn known_number(&self, name: &str) -> Option<Number> {
        self.number(name).ok()
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

    /// An int list; empty if absent.
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

    /// A bool; false if absent.
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

    /// The results of a function that the operator calls.
    pub fn call(&self, function: &'b Graph, operands: &[Value<'b>]) -> Result<Vec<Value<'b>>> {
        (self.lower_nodes)(function, operands.iter().map(|&value| Some(Arg::Value(value))).collect(), self)
    }

    // ---- dimensions ------------------------------------------------------------------------------

    /// A dimension number of a value of `rank` dimensions, checked and made non-negative.
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

    /// The argument `name` as ascending dimension numbers; every dimension if absent or empty.
    pub fn axes_arg(&self, name: &str, rank: usize) -> Result<Vec<usize>> {
        let dims = self.ints(name)?;
        if dims.is_empty() {
            return Ok((0..rank).collect());
        }
        if rank > 64 {
            return Err(Error::runtime("only tensors with up to 64 dims are supported"));
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

    /// The type and layout that PyTorch gives result `i`. Written arguments come first, then fresh results.
    pub fn result(&self, i: usize) -> Option<&ResultSpec> {
        self.results.as_ref()?.get(i)?.as_ref()
    }

    /// The element type that PyTorch gives result 0, or that of the first written argument.
    pub fn known_dtype(&self) -> Option<DType> {
        let written = || match &self.args[*self.mutated.first()?].1 {
            Arg::Tensor(spec) => Some(spec.dtype),
            Arg::Value(value) => Some(value.dtype()),
            _ => None,
        };
        self.result(0).map(|result| result.dtype).or_else(written)
    }

    /// [`Cx::known_dtype`], or `otherwise`.
    pub fn result_dtype(&self, otherwise: DType) -> DType {
        self.known_dtype().unwrap_or(otherwise)
    }

    /// The type of the result of a factory function: from PyTorch's meta kernel, else from the arguments `size` or
    /// `self`, and from what is written or `dtype`.
    pub fn result_type(&self, otherwise: DType) -> Result<Type> {
        if let Some(result) = self.result(0) {
            return Ok(Type::new(result.dtype, &result.sizes));
        }
        let like = self.ty("self").ok();
        let size = if self.is_none("size") { None } else { Some(self.capacities("size")?) };
        let dims = match (size, &like) {
            (Some(size), _) => size,
            (None, Some(ty)) => ty.dims.clone(),
            (None, None) => Vec::new(),
        };
        let given = self.known_dtype().or_else(|| self.dtype_or_none("dtype"));
        let dtype = given.or(like.map(|ty| ty.dtype)).unwrap_or(otherwise);
        Ok(Type { dtype, dims })
    }

    /// Sets the valid length of the first dimension of a result to `count` (0-d, int64), if it depends on the data.
    /// The host reads the count; the result stays on the device.
    pub fn set_count(&self, result: usize, count: Value<'b>) {
        self.set_count_along(result, 0, count);
    }

    /// [`Cx::set_count`] for dimension `axis`.
    pub fn set_count_along(&self, result: usize, axis: usize, count: Value<'b>) {
        self.counts.borrow_mut().push((result, axis, count));
    }

    /// Sets the strides of a result that no meta kernel describes.
    pub fn set_strides(&self, result: usize, strides: Vec<i64>) {
        self.strides.borrow_mut().push((result, strides));
    }

    /// Has a result that no meta kernel describes hold its matrices column by column, as LAPACK's are.
    pub fn set_column_major(&self, result: usize, value: Value<'b>) {
        let (last, mut dims) = (value.rank() - 1, value.dims());
        dims.swap(last - 1, last);
        let mut strides = contiguous_strides(&dims);
        strides.swap(last - 1, last);
        self.set_strides(result, strides);
    }

    /// Random bits of an unsigned type from the call's generator.
    pub fn random_bits(&self, dtype: DType, dims: &[i64]) -> Value<'b> {
        match self.inputs.draws_exactly() {
            true => draws::valid_bits(self, dtype, dims),
            false => self.inputs.random_bits(dtype, dims),
        }
    }

    /// The generator's key and counter for the next draw.
    pub fn random_state(&self) -> Value<'b> {
        self.inputs.random_state()
    }

    /// Continues draws from `state`. `replays` says whether they repeat earlier draws.
    pub fn set_random_state(&self, state: Value<'b>, replays: bool) {
        self.inputs.set_random_state(state, replays);
    }
}
