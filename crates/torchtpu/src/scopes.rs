//! Eager modes, and the scopes that they and joined calls are for.
//!
//! The scope of a thread is what its calls have in common with those of the autograd threads that work for it: the
//! address of an object in the thread-local state that autograd passes to its own threads. 0 is no scope.

use engine::Mode;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::with_engine;

/// The scope of the calling thread. The first call makes it.
#[pyfunction]
pub fn scope_of_thread(py: Python<'_>) -> PyResult<u64> {
    // SAFETY: called with the GIL held.
    match unsafe { ::abi::tt_scope_of_thread() } {
        0 => Err(PyErr::fetch(py)),
        scope => Ok(scope),
    }
}

/// The mode of a scope (0: of the process), and whether results are checked for NaN and infinities.
#[pyfunction]
pub fn get_eager_mode(py: Python<'_>, scope: u64) -> PyResult<(u8, bool)> {
    let (mode, check_finite) = with_engine(py, move |engine| Ok(engine.mode(scope)))?;
    Ok((mode as u8, check_finite))
}

/// Sets the mode of the process.
#[pyfunction]
pub fn set_eager_mode(py: Python<'_>, mode: u8, check_finite: bool) -> PyResult<()> {
    let mode = mode_of(mode)?;
    with_engine(py, move |mut engine| engine.set_mode(mode, check_finite))
}

/// Gives the scope of the calling thread a mode of its own until `end_mode` of the same change.
#[pyfunction]
pub fn begin_mode(py: Python<'_>, scope: u64, change: u64, mode: u8, check_finite: bool) -> PyResult<()> {
    let mode = mode_of(mode)?;
    with_engine(py, move |mut engine| {
        engine.begin_mode(scope, change, mode, check_finite);
        Ok(())
    })
}

#[pyfunction]
pub fn end_mode(py: Python<'_>, scope: u64, change: u64) -> PyResult<()> {
    with_engine(py, move |mut engine| {
        engine.end_mode(scope, change);
        Ok(())
    })
}

fn mode_of(number: u8) -> PyResult<Mode> {
    match number {
        0 => Ok(Mode::Debug),
        1 => Ok(Mode::Strict),
        2 => Ok(Mode::Fused),
        other => Err(PyValueError::new_err(format!("there is no eager mode {other}"))),
    }
}

/// Makes the calls of a scope one program until `end_join`.
#[pyfunction]
#[pyo3(signature = (scope, is_spmd = false))]
pub fn begin_join(py: Python<'_>, scope: u64, is_spmd: bool) -> PyResult<()> {
    with_engine(py, move |mut engine| engine.begin_join(scope, is_spmd))
}

#[pyfunction]
pub fn end_join(py: Python<'_>, scope: u64) -> PyResult<()> {
    with_engine(py, move |mut engine| engine.end_join(scope))
}
