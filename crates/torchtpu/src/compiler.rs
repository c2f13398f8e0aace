//! libtpu's compiler, for chips that this machine may not have.

use engine::{ahead, platform};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::to_python;

/// Compiles the text of a program for TPUs that may be absent, such as "v5e:1x1". Returns the report of libtpu's
/// compiler, with `None` for values that it does not provide. With several `replicas` the program may have collectives.
#[pyfunction]
#[pyo3(signature = (program, topology, replicas=1))]
pub fn compile_ahead(py: Python<'_>, program: &str, topology: &str, replicas: usize) -> PyResult<Py<PyDict>> {
    let report = py.detach(|| ahead::compile(program, topology, replicas)).map_err(to_python)?;
    let dict = PyDict::new(py);
    dict.set_item("device", report.device)?;
    dict.set_item("flops", report.flops)?;
    dict.set_item("bytes_accessed", report.bytes_accessed)?;
    dict.set_item("optimal_seconds", report.optimal_seconds)?;
    dict.set_item("asynchronous", report.asynchronous)?;
    let memory = report.memory;
    dict.set_item("peak_bytes", memory.map(|memory| memory.peak))?;
    dict.set_item("temp_bytes", memory.map(|memory| memory.temp))?;
    dict.set_item("argument_bytes", memory.map(|memory| memory.argument))?;
    dict.set_item("output_bytes", memory.map(|memory| memory.output))?;
    dict.set_item("alias_bytes", memory.map(|memory| memory.alias))?;
    dict.set_item("code_bytes", memory.map(|memory| memory.generated_code))?;
    Ok(dict.unbind())
}

/// Compiles the text of a program for devices of a topology, such as "v5e:1x1", and lets libtpu's compiler write what
/// it finds into a folder. Unless the compile shall be `whole`, only its first phase runs: returns false if this libtpu
/// cannot run a phase alone.
#[pyfunction]
#[pyo3(signature = (program, topology, folder, whole, replicas=1))]
pub fn examine_ahead(
    py: Python<'_>,
    program: &str,
    topology: &str,
    folder: &str,
    whole: bool,
    replicas: usize,
) -> PyResult<bool> {
    py.detach(|| ahead::examine(program, topology, folder, whole, replicas)).map_err(to_python)
}

/// The bytes of a device of a chip that programs can use, by its generation, such as "v5e"; `None` for no chip.
#[pyfunction]
pub fn chip_memory(generation: &str) -> Option<i64> {
    platform::chip_memory(generation)
}
