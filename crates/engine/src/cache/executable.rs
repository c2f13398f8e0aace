//! Executables that a thread of the pool compiles or loads while the caller continues.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pjrt::LoadedExecutable;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};
use crate::platform;
use crate::stats::Making;

/// The largest number of programs compiled at the same time. Each may take gigabytes of host memory.
const MAX_THREADS: usize = 16;

/// Compilers recurse deeply for large programs.
const STACK_BYTES: usize = 64 << 20;

/// An executable that may still be being made.
#[derive(Default)]
pub(crate) struct Executable {
    made: OnceLock<Made>,
    waiters: Mutex<()>,
    changed: Condvar,
}

struct Made {
    result: Result<Arc<LoadedExecutable>>,
    making: Making,
    code_bytes: usize,
    run_bytes: u64,
}

impl Executable {
    /// Whether it is made or has failed. Others then do not wait for it.
    pub fn is_made(&self) -> bool {
        self.made.get().is_some()
    }

    /// Whether making it failed.
    pub fn is_failed(&self) -> bool {
        self.made.get().is_some_and(|made| made.result.is_err())
    }

    /// The device memory of its code, once it is made, if the plugin provides it.
    pub fn code_bytes(&self) -> usize {
        self.made.get().map_or(0, |made| made.code_bytes)
    }

    /// The device memory that a run needs beside its inputs, once it is made, if the plugin provides it.
    pub fn run_bytes(&self) -> u64 {
        self.made.get().map_or(0, |made| made.run_bytes)
    }

    /// The time it took to make it; zero while it is being made.
    pub fn making(&self) -> Making {
        self.made.get().map_or_else(Making::default, |made| made.making)
    }

    /// Waits for the executable.
    ///
    /// # Errors
    /// If the program cannot be compiled.
    pub fn get(&self) -> Result<&Arc<LoadedExecutable>> {
        if let Some(made) = self.made.get() {
            return made.result.as_ref().map_err(Error::clone);
        }
        let mut waiter = self.waiters.lock();
        loop {
            match self.made.get() {
                Some(made) => return made.result.as_ref().map_err(Error::clone),
                None => self.changed.wait(&mut waiter),
            }
        }
    }

    /// Waits until it is made or has failed, at most for `timeout`. Returns whether it is.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut waiter = self.waiters.lock();
        if !self.is_made() {
            self.changed.wait_for(&mut waiter, timeout);
        }
        self.is_made()
    }

    fn settle(&self, result: Result<Arc<LoadedExecutable>>, making: Making) {
        let stats = result.as_ref().ok().and_then(|executable| executable.memory_stats().ok());
        let stats = stats.unwrap_or_default();
        let code_bytes = stats.generated_code.max(0) as usize;
        let run_bytes = (stats.output - stats.alias + stats.temp).max(0) as u64;
        let waiters = self.waiters.lock();
        let _ = self.made.set(Made { result, making, code_bytes, run_bytes });
        drop(waiters);
        self.changed.notify_all();
    }
}

/// The purpose of an executable that is made later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Urgency {
    /// It replaces a quick one. A run with a certain number waits for it.
    Awaited,
    /// It replaces a quick one as soon as it is ready. No run waits for it.
    Any,
    /// It is the first one of a program that no run has requested.
    Ahead,
}

impl Urgency {
    fn priority(self) -> Priority {
        if self == Urgency::Awaited { Priority::Normal } else { Priority::Low }
    }

    fn making(self) -> Making {
        let (is_improvement, is_in_background) = (self != Urgency::Ahead, self != Urgency::Awaited);
        Making { is_improvement, is_in_background, ..Making::default() }
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// The threads that make executables.
pub(super) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    threads: OnceLock<Option<Arc<ThreadPool>>>,
    /// A thread of low priority for what no caller waits for.
    background: OnceLock<Option<Arc<ThreadPool>>>,
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of executables being made for which a caller may wait.
    making: usize,
    /// Work to do, one by one, when no caller may wait. What a later run waits for is done first.
    awaited: VecDeque<Work>,
    later: VecDeque<Work>,
    is_improving: bool,
    /// Whether no more work may begin.
    closed: bool,
}

impl Pool {
    pub fn new() -> Pool {
        Pool { shared: Arc::default() }
    }

    /// Makes an executable with `make`, and then calls `made`.
    pub fn spawn(
        &self,
        make: impl FnOnce(&mut Making) -> Result<Arc<LoadedExecutable>> + Send + 'static,
        made: impl FnOnce() + Send + 'static,
    ) -> Arc<Executable> {
        let executable = Arc::new(Executable::default());
        let (promise, shared) = (Arc::clone(&executable), Arc::clone(&self.shared));
        shared.state.lock().making += 1;
        let work = move || {
            shared.make(&promise, Making::default(), make);
            made();
            shared.state.lock().making -= 1;
            shared.idle.notify_all();
            begin_later(&shared);
        };
        match self.shared.threads(Priority::Normal) {
            Some(threads) => threads.spawn_fifo(work),
            // A process that cannot start threads compiles on the calling thread.
            None => work(),
        }
        executable
    }

    /// Makes an executable with `make` when no other is being made, and then calls `made`.
    pub fn spawn_later(
        &self,
        urgency: Urgency,
        make: impl FnOnce(&mut Making) -> Result<Arc<LoadedExecutable>> + Send + 'static,
        made: impl FnOnce() + Send + 'static,
    ) -> Arc<Executable> {
        let executable = Arc::new(Executable::default());
        let (promise, shared) = (Arc::clone(&executable), Arc::clone(&self.shared));
        let work = move || {
            shared.make(&promise, urgency.making(), make);
            made();
        };
        match self.shared.threads(urgency.priority()) {
            Some(_) => {
                let mut state = self.shared.state.lock();
                let queue = if urgency == Urgency::Awaited { &mut state.awaited } else { &mut state.later };
                queue.push_back(Box::new(work));
                drop(state);
                begin_later(&self.shared);
            }
            None => work(),
        }
        executable
    }

    /// Waits until no executable for which a caller may wait is being made.
    pub fn wait(&self) {
        let mut state = self.shared.state.lock();
        while state.making > 0 {
            self.shared.idle.wait(&mut state);
        }
    }

    /// Waits for the executables being made. No more work begins.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        while state.making > 0 || state.is_improving || !state.later.is_empty() || !state.awaited.is_empty() {
            self.shared.idle.wait(&mut state);
        }
    }
}

impl Shared {
    /// The threads of a priority; `None` if the process cannot start any.
    fn threads(&self, priority: Priority) -> Option<&Arc<ThreadPool>> {
        let threads = if priority == Priority::Low { &self.background } else { &self.threads };
        threads.get_or_init(|| start(priority)).as_ref()
    }

    fn make(
        &self,
        promise: &Executable,
        making: Making,
        make: impl FnOnce(&mut Making) -> Result<Arc<LoadedExecutable>>,
    ) {
        let mut making = Making { begun: Some(Instant::now()), ..making };
        let closed = self.state.lock().closed;
        let result = match closed {
            true => Err(Error::runtime("the process ends: no more programs are compiled")),
            false => catch_unwind(AssertUnwindSafe(|| make(&mut making)))
                .unwrap_or_else(|_| Err(Error::runtime("internal error: compiling a program panicked"))),
        };
        promise.settle(result, making);
    }
}

/// Begins the next waiting work, if nothing else is being made.
fn begin_later(shared: &Arc<Shared>) {
    let mut state = shared.state.lock();
    if state.making > 0 || state.is_improving {
        return;
    }
    let awaited = state.awaited.pop_front().map(|work| (Urgency::Awaited, work));
    let Some((urgency, work)) = awaited.or_else(|| Some((Urgency::Any, state.later.pop_front()?))) else { return };
    let Some(threads) = shared.threads(urgency.priority()) else { return };
    state.is_improving = true;
    drop(state);
    let (shared, threads) = (Arc::clone(shared), Arc::clone(threads));
    threads.spawn_fifo(move || {
        work();
        shared.state.lock().is_improving = false;
        shared.idle.notify_all();
        begin_later(&shared);
    });
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Priority {
    Normal,
    /// One thread that leaves the processors to the program.
    Low,
}

fn start(priority: Priority) -> Option<Arc<ThreadPool>> {
    let is_low = priority == Priority::Low;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(if is_low { 1 } else { MAX_THREADS });
    let builder = ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK_BYTES);
    let builder = builder.start_handler(move |_| {
        if is_low {
            platform::lower_priority();
        }
    });
    let name = if is_low { "improve" } else { "compile" };
    builder.thread_name(move |index| format!("torchtpu-{name}-{index}")).build().ok().map(Arc::new)
}
