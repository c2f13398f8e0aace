//! Warnings of the core. They may arise where Python cannot be called: with locks held, on any thread.

use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::{exceptions::PyUserWarning, ffi};

static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Shows a warning on the main thread, at its next opportunity.
pub fn warn(message: String) {
    MESSAGES.lock().unwrap_or_else(|lock| lock.into_inner()).push(message);
    // SAFETY: this needs no lock, and the callback takes no argument.
    if unsafe { ffi::Py_AddPendingCall(Some(show), ptr::null_mut()) } != 0 {
        // The interpreter's list of pending calls is full, or it is shutting down.
        take().iter().for_each(|message| eprintln!("torchtpu: {message}"));
    }
}

extern "C" fn show(_: *mut c_void) -> c_int {
    // None while Python shuts down.
    let _ = Python::try_attach(show_now);
    0
}

/// Shows pending warnings.
pub fn show_now(py: Python<'_>) {
    let class = py.get_type::<PyUserWarning>();
    for message in take() {
        let text = CString::new(format!("torchtpu: {message}")).unwrap_or_default();
        if let Err(error) = PyErr::warn(py, &class, &text, 1) {
            // If warnings are errors, there is no call here that could raise it.
            error.write_unraisable(py, None);
        }
    }
}

fn take() -> Vec<String> {
    std::mem::take(&mut *MESSAGES.lock().unwrap_or_else(|lock| lock.into_inner()))
}
