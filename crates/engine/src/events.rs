//! Events: the moment at which the work queued so far is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::engine::lock;
use crate::error::Result;
use crate::placement::Placement;
use crate::record::reason::Reason;

/// A point in the queue of a placement. It notes the time at which the last of the work before it was seen done.
pub struct Event {
    /// The number of the event in the order of recording.
    number: usize,
    inner: Arc<Inner>,
    runs: Vec<Arc<pjrt::Event>>,
}

struct Inner {
    waiting: AtomicUsize,
    done: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Inner {
    fn finish_one(&self) {
        if self.waiting.fetch_sub(1, SeqCst) == 1 {
            self.done.lock().get_or_insert_with(Instant::now);
            self.changed.notify_all();
        }
    }
}

impl Event {
    /// Marks the work queued at a placement so far; runs what is recorded, without waiting for it.
    pub fn record(placement: Placement) -> Result<Event> {
        static RECORDED: AtomicUsize = AtomicUsize::new(0);
        let runs = {
            let mut engine = lock()?;
            engine.open()?;
            engine.launch_all(placement, Reason::Event)?;
            engine.runtime()?.in_flight(placement)
        };
        // One more than there are runs, so that the event cannot finish while it is being set up.
        let inner = Arc::new(Inner {
            waiting: AtomicUsize::new(runs.len() + 1),
            done: Mutex::new(None),
            changed: Condvar::new(),
        });
        for run in &runs {
            let counted = Arc::clone(&inner);
            // Work that failed is done too: its error shows where its result is read.
            Arc::clone(run).on_ready(move |_| counted.finish_one());
        }
        inner.finish_one();
        Ok(Event { number: RECORDED.fetch_add(1, SeqCst), inner, runs })
    }

    pub fn is_done(&self) -> bool {
        let mut done = self.inner.done.lock();
        if done.is_none() {
            // The plugin may call back late, but its events can be asked.
            if self.runs.iter().all(|run| run.is_ready().unwrap_or(true)) {
                *done = Some(Instant::now());
                self.inner.changed.notify_all();
            }
        }
        done.is_some()
    }

    /// Waits, and returns the moment at which the work was done.
    pub fn wait(&self) -> Instant {
        let mut done = self.inner.done.lock();
        loop {
            match *done {
                Some(moment) => return moment,
                None => self.inner.changed.wait(&mut done),
            }
        }
    }

    /// The time between two events, negative (as milliseconds) when `later` was recorded and done before this one.
    pub fn milliseconds_until(&self, later: &Event) -> f64 {
        let (start, end) = (self.wait(), later.wait());
        let milliseconds = |d: Duration| d.as_secs_f64() * 1e3;
        match end.checked_duration_since(start) {
            Some(elapsed) => milliseconds(elapsed),
            // The plugin's threads may report work out of order.
            None if self.number < later.number => 0.0,
            None => -milliseconds(start.duration_since(end)),
        }
    }
}
