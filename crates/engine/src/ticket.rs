//! Tickets: the outcome of a job of the host.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::Result;

/// The outcome of a job of the host, once it has finished.
pub struct Ticket {
    name: String,
    result: Mutex<Option<Result<()>>>,
    changed: Condvar,
}

impl Ticket {
    /// Of a job of this name.
    pub(crate) fn new(name: String) -> Ticket {
        Ticket { name, result: Mutex::default(), changed: Condvar::default() }
    }

    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn finish(&self, result: Result<()>) {
        *self.result.lock() = Some(result);
        self.changed.notify_all();
    }

    /// The job's result; None while it has not finished.
    pub fn result(&self) -> Option<Result<()>> {
        self.result.lock().clone()
    }

    /// Waits for the job's result, at most for `timeout`. None if the time was not enough.
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
