//! Waits for the device that end where a collective is overdue: a rank may never come, and a program cannot be stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pjrt::Event;

use crate::engine::lock;
use crate::error::{Error, Result};
use crate::placement::Placement;
use crate::run::collectives::have_run;
use crate::storage::Value;

/// How long work may take that was launched after a collective was overdue. It may be done beside the collective.
const GRACE: Duration = Duration::from_secs(3);

/// How long after the error of a result the error of its run may come.
const BETWEEN_ERRORS: Duration = Duration::from_secs(1);

/// Waits until an event has happened, or its work has failed. Called without locks.
///
/// # Errors
/// If a collective that the work may wait for has not ended within the timeout of its process group.
pub(crate) fn wait(placement: Placement, event: &Arc<Event>) -> Result<()> {
    wait_until(placement, event, None)
}

/// Waits for collectives that the work of an event may wait for, until `limit` at most.
///
/// # Errors
/// As [`wait`], if the timeout of the process group ends before the limit.
pub(crate) fn wait_until(placement: Placement, event: &Arc<Event>, limit: Option<Instant>) -> Result<()> {
    let happened = Arc::new((Mutex::new(false), Condvar::new()));
    let mut is_asked = false;
    let least = Instant::now() + GRACE;
    while !event.is_ready().unwrap_or(true) {
        let (call, deadline) = match lock()?.runner.collectives(placement).and_then(|all| all.oldest()) {
            Some((call, deadline)) => (call.clone(), deadline.max(least)),
            // No collective: the work ends by itself.
            None => break,
        };
        if Instant::now() >= deadline {
            return Err(call.late());
        }
        if limit.is_some_and(|limit| Instant::now() >= limit) {
            break;
        }
        if !std::mem::replace(&mut is_asked, true) {
            let told = Arc::clone(&happened);
            Arc::clone(event).on_ready(move |_| {
                *told.0.lock() = true;
                told.1.notify_all();
            });
        }
        let mut has_happened = happened.0.lock();
        if !*has_happened {
            happened.1.wait_until(&mut has_happened, limit.map_or(deadline, |limit| limit.min(deadline)));
        }
    }
    Ok(())
}

/// Waits in the same way until a value is there.
///
/// # Errors
/// As [`wait`], or if the value cannot be computed.
pub(crate) fn wait_for_value(placement: Placement, value: &Value) -> Result<()> {
    // A read costs no event where no collective can be overdue.
    if !have_run() {
        return Ok(());
    }
    match value.buffer()?.ready_event()? {
        Some(ready) => wait(placement, &Arc::new(ready)),
        None => Ok(()),
    }
}

/// The error with the collective that it comes of, if there is one.
pub(crate) fn explained(placement: Placement, error: Error) -> Error {
    let deadline = Instant::now() + BETWEEN_ERRORS;
    loop {
        let (cause, may_follow) = {
            let Ok(mut engine) = lock() else { return error };
            let Some(collectives) = engine.runner.collectives(placement) else { return error };
            (collectives.cause(&error), collectives.oldest().is_some())
        };
        if let Some(call) = cause {
            return error.within(&call.name());
        }
        if !may_follow || Instant::now() >= deadline {
            return error;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
