//! Events: mark the work that is queued at one moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::engine::{lock, lock_when_launched};
use crate::error::Result;
use crate::overdue;
use crate::placement::Placement;
use crate::record::reason::Reason;

/// A point in the queue of a placement. It records the time at which the last of the work before it was found done.
pub struct Event {
    /// The number of the event, in the order of recording.
    number: usize,
    placement: Placement,
    /// The chunk that was not submitted when the event was recorded.
    chunk: Option<u64>,
    /// None while that chunk is recorded, and while a job of the host delays the launch of work before the event.
    work: Mutex<Option<Arc<Work>>>,
}

/// The work before an event.
struct Work {
    waiting: AtomicUsize,
    done: Mutex<Option<Instant>>,
    changed: Condvar,
    runs: Vec<Arc<pjrt::Event>>,
}

impl Work {
    fn new(runs: Vec<Arc<pjrt::Event>>) -> Arc<Work> {
        // One more than the number of runs, so that the work is not done before it is set up.
        let waiting = AtomicUsize::new(runs.len() + 1);
        let work = Arc::new(Work { waiting, done: Mutex::new(None), changed: Condvar::new(), runs });
        for run in &work.runs {
            let counted = Arc::clone(&work);
            // Failed work is done too. A read of its result raises the error.
            Arc::clone(run).on_ready(move |_| counted.finish_one());
        }
        work.finish_one();
        work
    }

    fn finish_one(&self) {
        if self.waiting.fetch_sub(1, SeqCst) == 1 {
            self.done.lock().get_or_insert_with(Instant::now);
            self.changed.notify_all();
        }
    }

    fn is_done(&self) -> bool {
        let mut done = self.done.lock();
        if done.is_none() {
            // The plugin's callbacks may be late, so poll the runs.
            if self.runs.iter().all(|run| run.is_ready().unwrap_or(true)) {
                *done = Some(Instant::now());
                self.changed.notify_all();
            }
        }
        done.is_some()
    }

    fn wait(&self, placement: Placement) -> Result<Instant> {
        self.runs.iter().try_for_each(|run| overdue::wait(placement, run))?;
        let mut done = self.done.lock();
        loop {
            match *done {
                Some(moment) => return Ok(moment),
                None => self.changed.wait(&mut done),
            }
        }
    }
}

impl Event {
    /// Marks the work queued at a placement so far. An event that is timed submits recorded calls without waiting for them,
    /// except in a step whose collectives are parts of its program. Where they are not submitted, the event marks the whole
    /// program that they become a part of.
    ///
    /// # Errors
    /// If there is no such device, or recorded calls cannot be submitted.
    pub fn record(placement: Placement, is_timed: bool) -> Result<Event> {
        static RECORDED: AtomicUsize = AtomicUsize::new(0);
        let mut engine = lock()?;
        engine.open()?;
        let mode = engine.caller_mode().mode;
        // On a dry device no collective ends a chunk. The events that wrappers record around them do.
        let chunk = match is_timed || engine.is_dry() {
            true => engine.recorder.chunk_of_all_ranks(placement, mode),
            false => engine.recorder.chunk_at_hand(placement),
        };
        let mut work = None;
        if chunk.is_none() {
            engine.flush(placement, Reason::Event)?;
            if engine.catch_up_to_job(placement).is_none() {
                work = Some(Work::new(engine.runtime()?.in_flight(placement)));
            }
        }
        Ok(Event { number: RECORDED.fetch_add(1, SeqCst), placement, chunk, work: Mutex::new(work) })
    }

    pub fn is_done(&self) -> Result<bool> {
        let mut work = self.work.lock();
        if work.is_none() {
            let mut engine = lock()?;
            if self.chunk.is_some() && engine.recorder.chunk(self.placement).map(|chunk| chunk.number) == self.chunk {
                engine.flush(self.placement, Reason::Event)?;
            }
            if engine.catch_up_to_job(self.placement).is_none() {
                *work = Some(Work::new(engine.runtime()?.in_flight(self.placement)));
            }
        }
        Ok(work.as_ref().is_some_and(|work| work.is_done()))
    }

    /// Waits, and returns the time at which the work was done. If a job of the host delayed work when the event was
    /// recorded, work launched since then counts too.
    pub fn wait(&self) -> Result<Instant> {
        let mut work = self.work.lock();
        let work = match &*work {
            Some(work) => Arc::clone(work),
            None => {
                let (mut engine, _) = lock_when_launched(self.placement, Reason::Event)?;
                Arc::clone(work.insert(Work::new(engine.runtime()?.in_flight(self.placement))))
            }
        };
        work.wait(self.placement)
    }

    /// The time between two events in milliseconds. Negative if `later` was recorded and done before this event.
    pub fn milliseconds_until(&self, later: &Event) -> Result<f64> {
        let (start, end) = (self.wait()?, later.wait()?);
        let milliseconds = |d: Duration| d.as_secs_f64() * 1e3;
        Ok(match end.checked_duration_since(start) {
            Some(elapsed) => milliseconds(elapsed),
            // The plugin's threads may report work out of order.
            None if self.number < later.number => 0.0,
            None => -milliseconds(start.duration_since(end)),
        })
    }
}
