//! Where in the user's Python code the process stands.

use pyo3::prelude::*;

/// "train.py:31": the innermost Python line outside torch and this package. On a thread without Python
/// frames, such as autograd's, the line at which the main thread waits. `None` when there is no such line.
pub fn of_user() -> Option<String> {
    Python::attach(|py| find(py).ok().flatten())
}

fn find(py: Python<'_>) -> PyResult<Option<String>> {
    let sys = py.import("sys")?;
    let mut frame = match sys.call_method1("_getframe", (0,)) {
        Ok(frame) => frame,
        Err(_) => {
            let main = py.import("threading")?.call_method0("main_thread")?.getattr("ident")?;
            sys.call_method0("_current_frames")?.get_item(main)?
        }
    };
    let library = py.import("torch")?.getattr("__path__")?.get_item(0)?.extract::<String>()?;
    let ours = py.import("torchtpu")?.getattr("__path__")?.get_item(0)?.extract::<String>()?;
    while !frame.is_none() {
        let file: String = frame.getattr("f_code")?.getattr("co_filename")?.extract()?;
        if !file.starts_with(&library) && !file.starts_with(&ours) {
            let line: usize = frame.getattr("f_lineno")?.extract()?;
            return Ok(Some(format!("{file}:{line}")));
        }
        frame = frame.getattr("f_back")?;
    }
    Ok(None)
}
