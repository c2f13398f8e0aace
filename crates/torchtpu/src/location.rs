//! The current line of the user's Python code.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use engine::lines::Place;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The largest number of remembered code objects.
const MAX_CODES: usize = 8192;

/// Gives the engine the innermost Python line outside torch and this package. On a thread without Python frames, such
/// as autograd's, this is the line where the main thread waits. None while Python shuts down. Takes the GIL, so it
/// must not be called while a lock is held.
pub fn note() {
    engine::lines::set_caller(Python::try_attach(|py| find(py).ok().flatten()).flatten());
}

/// A code object, kept so that its address is not reused, and its file if the file is the user's.
type Code = (Py<PyAny>, Option<Arc<str>>);

/// By address of the code object.
static FILES: Mutex<Option<HashMap<usize, Code>>> = Mutex::new(None);

/// What names the module of the model that a call is made in: a function of Python without arguments.
static MODULE: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Sets what names the module of the model that a call is made in: a function without arguments that returns a name or
/// None; None ends it. Lines then come with modules.
#[pyfunction]
pub fn name_modules(function: Option<Py<PyAny>>) {
    *MODULE.lock().unwrap_or_else(PoisonError::into_inner) = function;
}

fn module(py: Python<'_>) -> PyResult<Option<Arc<str>>> {
    let function =
        MODULE.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|function| function.clone_ref(py));
    let name: Option<String> = function.map_or(Ok(None), |function| function.call0(py)?.extract(py))?;
    Ok(name.map(Arc::from))
}

fn find(py: Python<'_>) -> PyResult<Option<Place>> {
    let module = module(py)?;
    let mut frame = current_frame(py)?;
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let files = files.get_or_insert_default();
    if files.len() >= MAX_CODES {
        files.clear();
    }
    while !frame.is_none() {
        let code = frame.getattr(intern!(py, "f_code"))?;
        let address = code.as_ptr() as usize;
        let file = match files.get(&address) {
            Some((_, file)) => file.clone(),
            None => {
                let file = file_of_user(py, &code)?;
                files.insert(address, (code.unbind(), file.clone()));
                file
            }
        };
        if let Some(file) = file {
            return Ok(Some(Place { file, line: frame.getattr(intern!(py, "f_lineno"))?.extract()?, module }));
        }
        frame = frame.getattr(intern!(py, "f_back"))?;
    }
    Ok(None)
}

fn current_frame(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the GIL is held; the frame is borrowed from the thread, or null on one without frames.
    if let Some(frame) = unsafe { Bound::from_borrowed_ptr_or_opt(py, pyo3::ffi::PyEval_GetFrame().cast()) } {
        return Ok(frame);
    }
    let main = py.import("threading")?.call_method0("main_thread")?.getattr("ident")?;
    py.import("sys")?.call_method0("_current_frames")?.get_item(main)
}

/// The file of a code object. None if it belongs to torch or to this package.
fn file_of_user(py: Python<'_>, code: &Bound<'_, PyAny>) -> PyResult<Option<Arc<str>>> {
    static LIBRARIES: PyOnceLock<[String; 2]> = PyOnceLock::new();
    let libraries = LIBRARIES.get_or_try_init(py, || {
        let folder = |name: &str| -> PyResult<String> { py.import(name)?.getattr("__path__")?.get_item(0)?.extract() };
        Ok::<_, PyErr>([folder("torch")?, folder("torchtpu")?])
    })?;
    let file: String = code.getattr(intern!(py, "co_filename"))?.extract()?;
    let is_library = libraries.iter().any(|folder| file.starts_with(folder.as_str())) || file.starts_with("<frozen");
    Ok((!is_library).then(|| file.into()))
}
