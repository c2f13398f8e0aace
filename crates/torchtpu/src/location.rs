//! The current line of the user's Python code.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use engine::lines::{Line, Place};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The largest number of remembered code objects.
const MAX_CODES: usize = 8192;

/// Gives the engine the innermost Python line outside torch and this package. On a thread without such lines, such as
/// autograd's, this is the line where the main thread waits. None while Python shuts down. Takes the GIL, so it
/// must not be called while a lock is held.
pub fn note() {
    engine::lines::set_caller(Python::try_attach(|py| find(py).ok()?.0).flatten());
}

/// [`note`] for an upload. Returns the line; None if the upload is a part of a model's or an optimizer's state.
pub fn of_upload() -> Option<Line> {
    let (place, is_state) = Python::try_attach(|py| find(py).ok()).flatten().unwrap_or_default();
    engine::lines::set_caller(place);
    (!is_state).then(engine::lines::noted).filter(|line| line.is_known())
}

/// A code object, kept so that its address is not reused, and what it is.
type Code = (Py<PyAny>, Owner);

#[derive(Clone)]
enum Owner {
    /// The user, with the file.
    User(Arc<str>),
    /// Torch or this package.
    Library {
        /// Whether it moves the state of a model or an optimizer to a device.
        moves_state: bool,
    },
}

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

/// The line, and whether the state of a model or an optimizer is moved.
fn find(py: Python<'_>) -> PyResult<(Option<Place>, bool)> {
    let module = module(py)?;
    let (mut frame, mut is_of_autograd) = current_frame(py)?;
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let files = files.get_or_insert_default();
    if files.len() >= MAX_CODES {
        files.clear();
    }
    let mut is_state = false;
    loop {
        if frame.is_none() {
            if is_of_autograd {
                return Ok((None, is_state));
            }
            // A thread of autograd may have frames of libraries alone, such as a Function's `backward`.
            is_of_autograd = true;
            frame = main_frame(py)?;
            continue;
        }
        let code = frame.getattr(intern!(py, "f_code"))?;
        let address = code.as_ptr() as usize;
        let owner = match files.get(&address) {
            Some((_, owner)) => owner.clone(),
            None => {
                let owner = owner(py, &code)?;
                files.insert(address, (code.unbind(), owner.clone()));
                owner
            }
        };
        match owner {
            Owner::User(file) => {
                let line = frame.getattr(intern!(py, "f_lineno"))?.extract()?;
                return Ok((Some(Place { file, line, module, is_of_autograd }), is_state));
            }
            Owner::Library { moves_state } => is_state |= moves_state,
        }
        frame = frame.getattr(intern!(py, "f_back"))?;
    }
}

/// The innermost frame, and whether it is that of the main thread in place of this one's, which has none.
fn current_frame(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, bool)> {
    // SAFETY: the GIL is held; the frame is borrowed from the thread, or null on one without frames.
    if let Some(frame) = unsafe { Bound::from_borrowed_ptr_or_opt(py, pyo3::ffi::PyEval_GetFrame().cast()) } {
        return Ok((frame, false));
    }
    Ok((main_frame(py)?, true))
}

fn main_frame(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let main = py.import("threading")?.call_method0("main_thread")?.getattr("ident")?;
    py.import("sys")?.call_method0("_current_frames")?.get_item(main)
}

/// Functions of torch that move the state of a model or an optimizer: file or folder, and name. All, if the name is empty.
const STATE: [(&str, &str); 6] = [
    ("nn/modules/module.py", "_apply"),
    ("nn/modules/module.py", "load_state_dict"),
    ("nn/modules/module.py", "_load_from_state_dict"),
    ("serialization.py", ""),
    ("optim/", ""),
    ("distributed/", ""),
];

fn owner(py: Python<'_>, code: &Bound<'_, PyAny>) -> PyResult<Owner> {
    static LIBRARIES: PyOnceLock<[String; 2]> = PyOnceLock::new();
    let libraries = LIBRARIES.get_or_try_init(py, || {
        // With the slash: torchvision is not a part of torch.
        let folder = |name: &str| -> PyResult<String> {
            let path: String = py.import(name)?.getattr("__path__")?.get_item(0)?.extract()?;
            Ok(format!("{path}/"))
        };
        Ok::<_, PyErr>([folder("torch")?, folder("torchtpu")?])
    })?;
    let file: String = code.getattr(intern!(py, "co_filename"))?.extract()?;
    if let Some(place) = file.strip_prefix(libraries[0].as_str()) {
        let name: String = code.getattr(intern!(py, "co_name"))?.extract()?;
        let moves_state = STATE.iter().any(|(at, of)| place.starts_with(at) && (of.is_empty() || name == *of));
        return Ok(Owner::Library { moves_state });
    }
    let is_library = file.starts_with(libraries[1].as_str()) || file.starts_with("<frozen");
    Ok(if is_library { Owner::Library { moves_state: false } } else { Owner::User(file.into()) })
}
