//! Converts graphs from Python to the core's graphs: decompositions and compiled graphs.

use std::ffi::c_void;
use std::sync::Arc;

use aten::{ArgSpec, Bounds, Dim, Graph, GraphArg, Node, Number, ResultSpec, Target, Type};
use engine::export::{self, ExportInput};
use engine::{BoundedInput, SchemaArg, replicas};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyFloat, PyInt, PyList, PyTuple};

type NamedArgs<'py> = Vec<(String, Bound<'py, PyAny>)>;
/// The dtype and sizes of a dense, row-major tensor.
type Dense = (i8, Vec<i64>);
/// A size that may be bounded: its capacity, and the numbers of the graph's sizes that it is a multiple of.
type SizeOf = (i64, Vec<u32>);
/// The inputs that are sizes, with their capacities; the inputs with bounded dimensions, with their strides; the
/// sizes of the results of each node, if known.
type BoundsOf = (Vec<(usize, i64)>, Vec<(usize, Vec<SizeOf>, Vec<i64>)>, Vec<Option<Vec<Option<Vec<SizeOf>>>>>);
type Nodes<'py> = Vec<(String, NamedArgs<'py>, usize)>;

/// Keeps a traced decomposition and returns its handle. A graph is the number of its inputs, its nodes and the
/// numbers of its results. `nodes` are `(operator, [(name, value)], number of results)`. A value is `None` or a tuple
/// of a letter and its content:
/// `v` value number, `vs` value numbers, `i`/`f`/`b`/`s`/`d` int, float, bool, string, dtype, `is`/`fs`/`bs` lists of
/// these, `z` and `zs` sizes that may be bounded (as for `CompiledGraph`), `n` a number argument, `ns` a list of
/// these, `g` a graph.
#[pyfunction]
pub fn define_graph(py: Python<'_>, inputs: usize, nodes: Nodes<'_>, outputs: Vec<Option<usize>>) -> PyResult<u64> {
    let graph = to_graph(inputs, nodes, outputs)?;
    super::with_engine(py, move |mut engine| Ok(engine.add_graph(graph)))
}

/// The text of a module that computes a graph (as for `define_graph`), for the compiler of a platform. Each input is
/// its dtype and sizes, and its bytes if it becomes a constant; each number is its dtype; each result is its dtype
/// and sizes. `bounds` are as for `CompiledGraph`. With `is_called` the module is for a call on a device: it may draw
/// random numbers, and it returns the results of its checks.
#[pyfunction]
#[pyo3(signature = (graph, inputs, numbers, results, platform=None, bounds=None, is_called=false))]
pub fn stablehlo(
    py: Python<'_>,
    graph: (usize, Nodes<'_>, Vec<Option<usize>>),
    inputs: Vec<(Dense, Option<Vec<u8>>)>,
    numbers: Vec<i8>,
    results: Vec<Dense>,
    platform: Option<&str>,
    bounds: Option<BoundsOf>,
    is_called: bool,
) -> PyResult<String> {
    let (bounds, bounded) = bounds.map(to_bounds).unzip();
    let graph = Graph { bounds, ..to_graph(graph.0, graph.1, graph.2)? };
    let target = match platform {
        None => Target::Other,
        Some(name) => engine::platform::target_of(name).ok_or_else(|| {
            PyValueError::new_err(format!("platform must be \"tpu\", \"cpu\" or \"cuda\", not {name:?}"))
        })?,
    };
    let held = |dtype| engine::call::tensor_dtype(dtype).map_err(super::to_python);
    let inputs = inputs
        .into_iter()
        .map(|((dtype, dims), constant)| Ok(ExportInput { ty: Type::new(held(dtype)?, &dims), constant }))
        .collect::<PyResult<Vec<_>>>()?;
    let numbers = numbers.into_iter().map(held).collect::<PyResult<Vec<_>>>()?;
    let result = |(dtype, sizes): Dense| {
        Ok(ResultSpec { dtype: held(dtype)?, strides: aten::contiguous_strides(&sizes), sizes })
    };
    let results = results.into_iter().map(result).collect::<PyResult<Vec<_>>>()?;
    let bounded = bounded.unwrap_or_default();
    py.detach(|| export::module_text(graph, &bounded, &inputs, &numbers, results, target, is_called))
        .map_err(super::to_python)
}

/// Runs the text of a module on as many devices of this process as there are lists of inputs, one replica on each. An
/// input is its dtype, sizes and bytes; each result is given as its dtype and sizes. Returns each replica's results, as
/// bytes.
#[pyfunction]
pub fn run_replicas(
    py: Python<'_>,
    program: &str,
    inputs: Vec<Vec<(Dense, Vec<u8>)>>,
    results: Vec<Dense>,
) -> PyResult<Vec<Vec<Py<PyBytes>>>> {
    let typed = |(dtype, sizes): Dense| {
        let dtype = engine::call::tensor_dtype(dtype).map_err(super::to_python)?;
        Ok(Type::new(dtype, &sizes))
    };
    let array = |(ty, bytes): (Dense, Vec<u8>)| Ok((typed(ty)?, bytes));
    let inputs = inputs
        .into_iter()
        .map(|given| given.into_iter().map(array).collect())
        .collect::<PyResult<Vec<Vec<replicas::Array>>>>()?;
    let results = results.into_iter().map(typed).collect::<PyResult<Vec<Type>>>()?;
    let made = py.detach(|| replicas::run(program, &inputs, &results)).map_err(super::to_python)?;
    let bytes = |each: Vec<u8>| PyBytes::new(py, &each).unbind();
    Ok(made.into_iter().map(|outputs| outputs.into_iter().map(bytes).collect()).collect())
}

fn to_graph(inputs: usize, nodes: Nodes<'_>, outputs: Vec<Option<usize>>) -> PyResult<Graph> {
    let nodes = nodes
        .into_iter()
        .map(|(operator, args, results)| {
            let args = args.into_iter().map(|(name, value)| Ok((name, to_arg(&value)?))).collect::<PyResult<_>>()?;
            Ok(Node { operator, args, results })
        })
        .collect::<PyResult<_>>()?;
    Ok(Graph { inputs, nodes, outputs, bounds: None })
}

fn to_arg(value: &Bound<'_, PyAny>) -> PyResult<GraphArg> {
    if value.is_none() {
        return Ok(GraphArg::Plain(ArgSpec::None));
    }
    let pair = value.downcast::<PyTuple>()?;
    let (kind, content) = (pair.get_item(0)?.extract::<String>()?, pair.get_item(1)?);
    Ok(match kind.as_str() {
        "v" => GraphArg::Value(content.extract()?),
        "vs" => GraphArg::Values(content.extract()?),
        "n" => GraphArg::Scalar(to_number(&content)?),
        "ns" => GraphArg::Scalars(content.try_iter()?.map(|item| to_number(&item?)).collect::<PyResult<Vec<_>>>()?),
        "i" => GraphArg::Plain(ArgSpec::Int(content.extract()?)),
        "f" => GraphArg::Scalar(Number::Float(content.extract()?)),
        "b" => GraphArg::Plain(ArgSpec::Bool(content.extract()?)),
        "s" => GraphArg::Plain(ArgSpec::Str(content.extract()?)),
        "d" => {
            GraphArg::Plain(ArgSpec::DType(engine::call::tensor_dtype(content.extract()?).map_err(super::to_python)?))
        }
        "is" => GraphArg::Plain(ArgSpec::Ints(content.extract()?)),
        "z" => GraphArg::Plain(ArgSpec::Dim(to_dim(content.extract()?))),
        "zs" => GraphArg::Plain(ArgSpec::Dims(to_dims(content.extract()?))),
        "fs" => GraphArg::Plain(ArgSpec::Floats(content.extract()?)),
        "g" => {
            let (inputs, nodes, outputs) = content.extract()?;
            GraphArg::Graph(Box::new(to_graph(inputs, nodes, outputs)?))
        }
        "bs" => GraphArg::Plain(ArgSpec::Bools(content.extract()?)),
        other => return Err(PyValueError::new_err(format!("unknown kind of graph argument {other:?}"))),
    })
}

fn to_number(value: &Bound<'_, PyAny>) -> PyResult<Number> {
    if let Ok(x) = value.downcast::<PyBool>() {
        return Ok(Number::Bool(x.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(Number::Int(value.extract()?));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Number::Float(value.extract()?));
    }
    let complex = value.downcast::<PyComplex>()?;
    Ok(Number::Complex(complex.getattr("real")?.extract()?, complex.getattr("imag")?.extract()?))
}

fn to_bounds((sizes, inputs, results): BoundsOf) -> (Bounds, Vec<BoundedInput>) {
    let bounded = |(arg, dims, strides): (usize, Vec<SizeOf>, Vec<i64>)| {
        let dims = to_dims(dims);
        BoundedInput { arg, sizes: dims.iter().map(|dim| dim.capacity).collect(), dims, strides }
    };
    let results = results.into_iter().map(|node| {
        let of_result = |dims: Option<Vec<SizeOf>>| dims.map(to_dims);
        node.map(|results| results.into_iter().map(of_result).collect())
    });
    let bounds = Bounds { sizes, inputs: Vec::new(), results: results.collect() };
    (bounds, inputs.into_iter().map(bounded).collect())
}

fn to_dim((capacity, sizes): SizeOf) -> Dim {
    Dim::new(capacity, sizes)
}

fn to_dims(dims: Vec<SizeOf>) -> Vec<Dim> {
    dims.into_iter().map(to_dim).collect()
}

/// A graph of rows. It is called with a list of its inputs and returns the list of its outputs.
#[pyclass(module = "torchtpu._C", frozen)]
pub struct CompiledGraph {
    op: u32,
    device: i32,
    kinds: Vec<u8>,
    sources: Vec<i32>,
    fresh: usize,
}

#[pymethods]
impl CompiledGraph {
    /// `graph` is as for `define_graph`. Its first results are the new values of the inputs numbered in `written`.
    /// `kinds` has a letter for each input: `t` for a tensor, `n` for a number, `-` for an input that the graph does
    /// not take. `results` are the dtype, sizes and strides of the graph's results. `sources` has the source of each
    /// output: `k` is the k-th result that is not written into an input, `-1 - k` is the k-th input, and the smallest
    /// i32 is None. `bounds` is for graphs with bounded dimensions; results are then described by their capacities.
    #[new]
    #[pyo3(signature = (name, graph, kinds, written, results, sources, device, options, bounds=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        name: String,
        graph: (usize, Nodes<'_>, Vec<Option<usize>>),
        kinds: &str,
        written: Vec<usize>,
        results: Vec<(i8, Vec<i64>, Vec<i64>)>,
        sources: Vec<i32>,
        device: i32,
        options: Vec<(String, Bound<'_, PyAny>)>,
        bounds: Option<BoundsOf>,
    ) -> PyResult<CompiledGraph> {
        let (bounds, bounded) = bounds.map(to_bounds).unzip();
        let taken: Vec<usize> = (0..kinds.len()).filter(|&i| kinds.as_bytes()[i] != b'-').collect();
        let arg = |&i: &usize| SchemaArg {
            name: i.to_string(),
            ty: if kinds.as_bytes()[i] == b't' { "Tensor" } else { "Scalar" }.into(),
            is_mutated: written.contains(&i),
            is_out: false,
            default: None,
        };
        let result = |(dtype, sizes, strides)| {
            let dtype = engine::call::tensor_dtype(dtype).map_err(super::to_python)?;
            Ok(ResultSpec { dtype, sizes, strides })
        };
        let compiled = engine::CompiledGraph {
            name,
            graph: Arc::new(Graph { bounds, ..to_graph(graph.0, graph.1, graph.2)? }),
            bounded: bounded.unwrap_or_default(),
            args: taken.iter().map(arg).collect(),
            results: results.into_iter().map(result).collect::<PyResult<_>>()?,
            options: options
                .iter()
                .map(|(name, value)| Ok((name.clone(), to_option(value)?)))
                .collect::<PyResult<_>>()?,
            replicas: Vec::new(),
        };
        let fresh = compiled.results.len() - written.len();
        let op = super::with_engine(py, move |mut engine| Ok(engine.register_graph(compiled)))?;
        Ok(CompiledGraph { op, device, kinds: kinds.as_bytes().to_vec(), sources, fresh })
    }

    fn __call__(&self, inputs: &Bound<'_, PyList>) -> PyResult<Py<PyAny>> {
        let list = inputs.as_ptr() as usize;
        // Releases the GIL here as well: the core may take it, and PyO3 must know that it is free.
        let outputs = inputs.py().detach(|| {
            // SAFETY: both arguments live as long as the call.
            unsafe { ::abi::tt_call_graph(&self.described(), list as *mut c_void) as usize }
        });
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(inputs.py(), outputs as *mut pyo3::ffi::PyObject) }.map(Bound::unbind)
    }

    /// Begins to make the program of a call with these inputs, on a thread of low priority. Nothing runs, and no input
    /// changes.
    fn prepare(&self, inputs: &Bound<'_, PyList>) -> PyResult<Prepared> {
        let list = inputs.as_ptr() as usize;
        let prepared = inputs.py().detach(|| {
            let mut prepared: Option<engine::Prepared> = None;
            let place = (&raw mut prepared).cast();
            // SAFETY: all arguments live as long as the call, and the place has the type that `tt_prepare` writes.
            unsafe { ::abi::tt_prepare_graph(&self.described(), list as *mut c_void, place) };
            prepared
        });
        prepared.map(Prepared).ok_or_else(|| PyErr::fetch(inputs.py()))
    }
}

impl CompiledGraph {
    fn described(&self) -> ::abi::Graph {
        ::abi::Graph {
            op: self.op as i32,
            device: self.device,
            kinds: self.kinds.as_ptr(),
            n_inputs: self.kinds.len(),
            sources: self.sources.as_ptr(),
            n_outputs: self.sources.len(),
            n_fresh: self.fresh,
        }
    }
}

/// A program that is being made in the background. It stays in memory as long as this object.
#[pyclass(module = "torchtpu._C", frozen)]
pub struct Prepared(engine::Prepared);

#[pymethods]
impl Prepared {
    /// Whether it is made, so that a call does not wait for it. Raises the compiler's error.
    fn is_ready(&self) -> PyResult<bool> {
        self.0.is_ready().map_err(super::to_python)
    }
}

impl Drop for CompiledGraph {
    fn drop(&mut self) {
        let _ = crate::abi::guarded(|| {
            engine::lock()?.forget_graph(self.op);
            Ok(())
        });
    }
}

/// The value of one of XLA's flags.
fn to_option(value: &Bound<'_, PyAny>) -> PyResult<pjrt::Value> {
    if let Ok(x) = value.downcast::<PyBool>() {
        return Ok(pjrt::Value::Bool(x.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(pjrt::Value::Int(value.extract()?));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(pjrt::Value::Float(value.extract()?));
    }
    value.extract().map(pjrt::Value::Str)
}
