//! Tickets: how a job of the host ended.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::Result;

/// Tells how a job of the host ended, once it has.
#[derive(Default)]
pub struct Ticket {
    result: Mutex<Option<Result<()>>>,
    changed: Condvar,
}

impl Ticket {
    pub(crate) fn finish(&self, result: Result<()>) {
        *self.result.lock() = Some(result);
        self.changed.notify_all();
    }

    /// The job's result; none while it has not finished.
    pub fn result(&self) -> Option<Result<()>> {
        self.result.lock().clone()
    }

    /// Waits for the job's result; with a `timeout`, not longer. None where that was too short.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<()>> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut result = self.result.lock();
        while result.is_none() {
            match deadline {
                Some(deadline) if self.changed.wait_until(&mut result, deadline).timed_out() => break,
                Some(_) => {}
                None => self.changed.wait(&mut result),
            }
        }
        result.clone()
    }
}
