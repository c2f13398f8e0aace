//! Graphs that the Python tracer describes, as the core's own.

use aten::{ArgSpec, Graph, GraphArg, Node, Number};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyTuple};

type NamedArgs<'py> = Vec<(String, Bound<'py, PyAny>)>;

/// Keeps a traced decomposition and returns its handle. `nodes` are `(operator, [(name, value)],
/// number of results)`; a value is `None` or a tuple of a letter and its content:
/// `v` value number, `vs` value numbers, `i`/`f`/`b`/`s`/`d` int, float, bool, string, dtype,
/// `is`/`fs`/`bs` lists of them, `n` a number argument, `ns` a list of those.
#[pyfunction]
pub fn define_graph(
    py: Python<'_>,
    inputs: usize,
    nodes: Vec<(String, NamedArgs<'_>, usize)>,
    outputs: Vec<Option<usize>>,
) -> PyResult<u64> {
    let nodes = nodes
        .into_iter()
        .map(|(operator, args, results)| {
            let args = args.into_iter().map(|(name, value)| Ok((name, to_arg(&value)?))).collect::<PyResult<_>>()?;
            Ok(Node { operator, args, results })
        })
        .collect::<PyResult<_>>()?;
    let graph = Graph { inputs, nodes, outputs };
    super::with_engine(py, move |mut engine| Ok(engine.add_graph(graph)))
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
            let number: i8 = content.extract()?;
            let dtype = engine::call::dtype(number)
                .ok_or_else(|| PyValueError::new_err(format!("c10::ScalarType {number} cannot be held")))?;
            GraphArg::Plain(ArgSpec::DType(dtype))
        }
        "is" => GraphArg::Plain(ArgSpec::Ints(content.extract()?)),
        "fs" => GraphArg::Plain(ArgSpec::Floats(content.extract()?)),
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
