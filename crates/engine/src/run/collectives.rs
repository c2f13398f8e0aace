//! The runs of programs with collectives that may not be done: a rank that does not come keeps them waiting.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use pjrt::Event;

use crate::agreement::Called;
use crate::error::Error;

/// Whether this process has run a program with collectives.
static HAVE_RUN: AtomicBool = AtomicBool::new(false);

pub(crate) fn have_run() -> bool {
    HAVE_RUN.load(Relaxed)
}

/// A run of a program with collectives.
struct Running {
    run: Arc<Event>,
    /// Its first collective.
    call: Called,
    begun: Instant,
}

/// Those of a placement, in order.
#[derive(Default)]
pub(crate) struct Collectives {
    running: VecDeque<Running>,
    /// The last that has failed, and the reason at the end of its error.
    failed: Option<(Called, String)>,
}

impl Collectives {
    pub fn add(&mut self, run: Arc<Event>, call: Called) {
        HAVE_RUN.store(true, Relaxed);
        self.forget_done();
        self.running.push_back(Running { run, call, begun: Instant::now() });
    }

    fn forget_done(&mut self) {
        while self.running.front().is_some_and(|first| first.run.is_ready().unwrap_or(true)) {
            let Some(Running { run, call, .. }) = self.running.pop_front() else { return };
            if let Err(error) = run.wait() {
                self.failed = Some((call, reason_of(&error.message).to_owned()));
            }
        }
    }

    /// The oldest that is not done, and when it is overdue.
    pub fn oldest(&mut self) -> Option<(&Called, Instant)> {
        self.forget_done();
        let Running { call, begun, .. } = self.running.front()?;
        Some((call, *begun + call.agreement.timeout))
    }

    /// The collective whose error this one is, or repeats.
    pub fn cause(&mut self, error: &Error) -> Option<Called> {
        self.forget_done();
        self.failed.as_ref().filter(|(_, reason)| error.message.contains(reason)).map(|(call, _)| call.clone())
    }
}

/// The last part of a message: what takes a result that has failed repeats it after words of its own.
fn reason_of(message: &str) -> &str {
    message.rsplit(": ").next().unwrap_or(message)
}
