//! Memory use of the devices, for the Python package.

use engine::{Placement, Storage, memory};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{to_python, with_engine};

#[pyfunction]
pub fn memory_stats(py: Python<'_>, device: usize) -> PyResult<Py<PyDict>> {
    let placement = Placement::numbered(device).map_err(to_python)?;
    let (free, total) = with_engine(py, move |mut engine| engine.platform()?.memory(placement.device()))?;
    let used = memory::memory_use(placement);
    let stats = PyDict::new(py);
    for (name, value) in [
        ("allocated", used.bytes.current),
        ("peak_allocated", used.bytes.peak),
        ("total_allocated", used.bytes.total),
        ("total_freed", used.bytes.total_freed),
        ("live", used.storages.current),
        ("peak_live", used.storages.peak),
        ("total_live", used.storages.total),
        ("total_released", used.storages.total_freed),
        ("out_of_memory", used.out_of_memory),
        ("free", free as i64),
        ("total", total as i64),
    ] {
        stats.set_item(name, value)?;
    }
    Ok(stats.unbind())
}

/// The address and size in bytes of each live storage of a device.
#[pyfunction]
pub fn live_storages(device: usize) -> PyResult<Vec<(usize, usize)>> {
    Ok(Storage::live_at(Placement::numbered(device).map_err(to_python)?))
}

/// The functions that record and return the history of memory, by name.
#[pyfunction]
pub fn memory_history(py: Python<'_>) -> PyResult<Py<PyAny>> {
    // SAFETY: the callee returns a new reference or sets an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, ::abi::tt_memory_history().cast()).map(Bound::unbind) }
}

#[pyfunction]
pub fn reset_peak_memory_stats(device: usize) -> PyResult<()> {
    memory::reset_peak(Placement::numbered(device).map_err(to_python)?);
    Ok(())
}

#[pyfunction]
pub fn reset_accumulated_memory_stats(device: usize) -> PyResult<()> {
    memory::reset_totals(Placement::numbered(device).map_err(to_python)?);
    Ok(())
}

#[pyfunction]
pub fn empty_cache(py: Python<'_>) -> PyResult<()> {
    with_engine(py, |mut engine| {
        engine.empty_cache();
        Ok(())
    })
}
