//! Waits that the user can end, as Python does by Ctrl-C.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::cache::Executable;
use crate::error::{Error, Result};

/// How often a wait looks whether it is to end.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// The message of the error that ends a wait. The exception that the user's signal handler raised is the one to raise.
pub const INTERRUPTED: &str = "the wait for the device was interrupted";

static IS_INTERRUPTED: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets the function that runs the user's signal handlers and returns whether one has raised an exception.
pub fn set_is_interrupted(is_interrupted: fn() -> bool) {
    let _ = IS_INTERRUPTED.set(is_interrupted);
}

/// Waits until an executable is made, or failed. Called without locks.
///
/// # Errors
/// Where the user ends the wait.
pub(crate) fn wait_for(executable: &Arc<Executable>) -> Result<()> {
    while !executable.wait(BETWEEN_LOOKS) {
        if IS_INTERRUPTED.get().is_some_and(|is_interrupted| is_interrupted()) {
            return Err(Error::runtime(INTERRUPTED));
        }
    }
    Ok(())
}
