//! Registration with PyTorch.

use std::ffi::{CStr, CString, c_char};
use std::path::PathBuf;

use ::abi::{tt_initialize, tt_set_gradient};
use engine::platform;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Registers the backend with PyTorch. `tracer(op_overload, args, kwargs)` returns the handle of a graph from
/// `define_graph`, or raises NotImplementedError. `sparse(op_overload, args, kwargs)` returns the results of an
/// operator on sparse tensors.
#[pyfunction]
pub fn initialize(py: Python<'_>, tracer: Py<PyAny>, sparse: Py<PyAny>) -> PyResult<()> {
    let paths: Vec<PathBuf> = py.import("sys")?.getattr("path")?.extract()?;
    platform::set_search_paths(paths);
    engine::cache::set_warn(crate::warning::warn);
    engine::interrupt::set_is_interrupted(is_interrupted);
    // SAFETY: the functions are live objects, to which the callee takes its own references. The message is written
    // within its capacity.
    checked(|message, capacity| unsafe {
        tt_initialize(tracer.as_ptr().cast(), sparse.as_ptr().cast(), message, capacity)
    })?;
    if let Some(mode) = platform::mode() {
        super::with_engine(py, |mut engine| engine.set_mode(mode, false))?;
    }
    Ok(())
}

/// Has `function(op_overload, args, kwargs)` compute an operator where a tensor among its arguments requires a gradient.
/// None removes it. `op` is "namespace::name".
#[pyfunction]
pub fn set_gradient(op: &str, function: Option<Py<PyAny>>) -> PyResult<()> {
    let op = CString::new(op)?;
    let function = function.as_ref().map_or(std::ptr::null_mut(), |function| function.as_ptr().cast());
    // SAFETY: as for `initialize`; the name ends with a zero.
    checked(|message, capacity| unsafe { tt_set_gradient(op.as_ptr(), function, message, capacity) })
}

/// Calls a function of csrc that writes a message within a capacity if it fails. Raises RuntimeError with it.
fn checked(call: impl FnOnce(*mut c_char, usize) -> i32) -> PyResult<()> {
    let mut message: [c_char; 1024] = [0; 1024];
    if call(message.as_mut_ptr(), message.len()) == 0 {
        return Ok(());
    }
    // SAFETY: the callee terminates the message with a zero.
    let text = unsafe { CStr::from_ptr(message.as_ptr()) };
    Err(PyRuntimeError::new_err(text.to_string_lossy().into_owned()))
}

/// The torch version that the module was built for.
#[pyfunction]
pub fn torch_version() -> &'static str {
    env!("TORCHTPU_TORCH_VERSION")
}

/// Runs the user's signal handlers, if this is the main thread. Returns whether one has raised an exception, which is then
/// the thread's.
fn is_interrupted() -> bool {
    let checked = Python::try_attach(|py| py.check_signals().map_err(|error| error.restore(py)));
    matches!(checked, Some(Err(())))
}
