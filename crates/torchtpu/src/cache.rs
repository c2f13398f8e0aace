//! The folder of compiled programs, for `python -m torchtpu cache`.

use std::path::PathBuf;
use std::time::SystemTime;

use engine::ahead;
use engine::cache::{Folder, Settings};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::{to_python, warning, with_engine};

/// Waits until all compiled programs are written to disk, at the end of a process.
#[pyfunction]
pub fn finish_cache(py: Python<'_>) {
    // A forked child has nothing to write.
    let Ok(cache) = with_engine(py, |engine| Ok(engine.cache())) else { return };
    if let Some(cache) = cache {
        py.detach(|| cache.close());
        // Show warnings now: pending calls no longer run.
        warning::show_now(py);
    }
}

/// The folder and its limit in bytes. Raises RuntimeError with the reason if there is none.
#[pyfunction]
pub fn cache_folder() -> PyResult<(PathBuf, u64)> {
    let folder = open()?;
    Ok((folder.path().to_owned(), folder.limit()))
}

/// The entries of the folder, most recently used first.
#[pyfunction]
pub fn cache_list(py: Python<'_>) -> PyResult<Py<PyList>> {
    let entries = py.detach(|| Folder::open(&Settings::from_environment())?.list()).map_err(to_python)?;
    let list = PyList::empty(py);
    for entry in entries {
        let dict = PyDict::new(py);
        dict.set_item("name", entry.name)?;
        dict.set_item("bytes", entry.bytes)?;
        let used = entry.used.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        dict.set_item("used", used.as_secs_f64())?;
        let about = entry.about.as_ref();
        dict.set_item("operators", about.map(|about| &about.operators))?;
        dict.set_item("target", about.map(|about| &about.target))?;
        dict.set_item("compile_seconds", about.map(|about| about.compile_seconds))?;
        list.append(dict)?;
    }
    Ok(list.unbind())
}

/// Removes all entries of the folder. Returns their number.
#[pyfunction]
pub fn cache_clear(py: Python<'_>) -> PyResult<usize> {
    py.detach(|| Folder::open(&Settings::from_environment())?.clear()).map_err(to_python)
}

/// Writes the entries of the folder into a bundle. Returns their number.
#[pyfunction]
pub fn cache_export(py: Python<'_>, path: PathBuf) -> PyResult<usize> {
    py.detach(|| Folder::open(&Settings::from_environment())?.export(&path)).map_err(to_python)
}

/// Writes the programs that this process has used into a bundle. Returns their number.
#[pyfunction]
pub fn cache_export_used(py: Python<'_>, path: PathBuf) -> PyResult<usize> {
    let cache = with_engine(py, |engine| Ok(engine.cache()))?;
    py.detach(|| cache.map(|cache| cache.export_used(&path)).transpose())
        .map_err(to_python)
        .map(Option::unwrap_or_default)
}

/// Adds the entries of a bundle that are for this machine's plugin and devices to the folder.
#[pyfunction]
pub fn cache_import(py: Python<'_>, path: PathBuf) -> PyResult<Py<PyDict>> {
    open()?;
    let cache = with_engine(py, |mut engine| {
        engine.platform()?;
        Ok(engine.cache())
    })?;
    let imported = py.detach(|| cache.map(|cache| cache.import(&path)).transpose()).map_err(to_python)?;
    let imported = imported.unwrap_or_default();
    let dict = PyDict::new(py);
    dict.set_item("added", imported.added)?;
    dict.set_item("known", imported.known)?;
    dict.set_item("damaged", imported.damaged)?;
    dict.set_item("refused", imported.refused)?;
    dict.set_item("differences", imported.differences)?;
    Ok(dict.unbind())
}

/// Compiles the texts of programs for a topology into a bundle. Returns an error message for each program that is
/// left out, else None.
#[pyfunction]
pub fn bundle_ahead(
    py: Python<'_>,
    programs: Vec<String>,
    topology: &str,
    path: PathBuf,
) -> PyResult<Vec<Option<String>>> {
    let outcomes = py.detach(|| ahead::bundle(&programs, topology, &path)).map_err(to_python)?;
    Ok(outcomes.into_iter().map(|outcome| outcome.err().map(|error| error.message)).collect())
}

fn open() -> PyResult<Folder> {
    Folder::open(&Settings::from_environment()).map_err(to_python)
}
