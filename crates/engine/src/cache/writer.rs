//! Writes entries on its own thread. A compiled program can run at once, while it is serialized.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pjrt::LoadedExecutable;

use super::disk::{Lock, Store};
use super::entry::{About, Entry, Key};
use super::warn;
use crate::stats::CacheStats;

/// The longest wait for the folder at the end of a process.
const LONGEST_FINISH: Duration = Duration::from_secs(60);

/// An executable to write. Its lock is released after that.
pub(super) struct Job {
    pub key: Key,
    pub about: About,
    pub executable: Arc<LoadedExecutable>,
    pub _lock: Option<Lock>,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    /// The channel to the thread, once something was written.
    jobs: Mutex<Option<Sender<Job>>>,
}

struct Shared {
    store: Arc<Store>,
    stats: Arc<Mutex<CacheStats>>,
    state: Mutex<State>,
    progress: Condvar,
    /// Whether the warning about a program that cannot be serialized was given.
    warned: AtomicBool,
}

#[derive(Default)]
struct State {
    sent: u64,
    written: u64,
    /// Writing has failed before and is not tried again.
    broken: bool,
}

impl Writer {
    pub fn new(store: Arc<Store>, stats: Arc<Mutex<CacheStats>>) -> Writer {
        let shared =
            Shared { store, stats, state: Mutex::default(), progress: Condvar::new(), warned: AtomicBool::new(false) };
        Writer { shared: Arc::new(shared), jobs: Mutex::new(None) }
    }

    pub fn send(&self, job: Job) {
        {
            let mut state = self.shared.state.lock();
            if state.broken {
                return;
            }
            state.sent += 1;
        }
        let mut jobs = self.jobs.lock();
        let sender = jobs.get_or_insert_with(|| self.start());
        if sender.send(job).is_err() {
            self.shared.done();
        }
    }

    fn start(&self) -> Sender<Job> {
        let (sender, receiver) = mpsc::channel::<Job>();
        let shared = Arc::clone(&self.shared);
        let work = move || {
            for job in receiver {
                shared.write(&job);
                drop(job);
                shared.done();
            }
        };
        // Without a thread the channel is closed, and nothing is written.
        let _ = thread::Builder::new().name("torchtpu-cache".into()).spawn(work);
        sender
    }

    /// Waits until everything is written that was sent before. What other threads send meanwhile is not waited for.
    pub fn finish(&self) {
        let deadline = Instant::now() + LONGEST_FINISH;
        let mut state = self.shared.state.lock();
        let sent = state.sent;
        while state.written < sent && !self.shared.progress.wait_until(&mut state, deadline).timed_out() {}
    }
}

impl Shared {
    fn done(&self) {
        self.state.lock().written += 1;
        self.progress.notify_all();
    }

    fn write(&self, job: &Job) {
        if self.state.lock().broken {
            return;
        }
        let executable = match job.executable.serialize() {
            Ok(executable) => executable,
            Err(error) => {
                if !self.warned.swap(true, Relaxed) {
                    let operators = &job.about.operators;
                    warn(format!("the program of {operators} is compiled in each process: {error}"));
                }
                return;
            }
        };
        let entry = Entry { key: job.key, about: job.about.clone(), executable: &executable };
        match self.store.write(&job.key, &entry.encode()) {
            Ok(evicted) => self.stats.lock().disk_evictions += evicted,
            Err(error) => {
                self.state.lock().broken = true;
                let folder = self.store.folder().display();
                warn(format!("compiled programs are no longer kept in {folder}: {error}"));
            }
        }
    }
}
