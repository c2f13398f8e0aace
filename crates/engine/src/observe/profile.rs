//! What devices run while a profiler is on.

use std::cell::RefCell;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pjrt::{Event, Value};
use rustc_hash::FxHashMap;

use crate::placement::Placement;
use crate::program::Program;
use crate::record::chunk::Chunk;

/// How many profiles have begun.
static PROFILES: AtomicU64 = AtomicU64::new(0);

/// The operators that a thread is in.
#[derive(Default)]
struct Entered {
    /// The profile that has numbered them.
    profile: u64,
    /// Their numbers, the innermost last.
    operators: Vec<u64>,
}

thread_local! {
    static ENTERED: RefCell<Entered> = RefCell::default();
}

/// Calls `f` with the operators that the thread has entered since the profile began. A thread that ends has none.
fn with_operators<T: Default>(f: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    let with = |entered: &RefCell<Entered>| {
        let (entered, profile) = (&mut *entered.borrow_mut(), PROFILES.load(Relaxed));
        if entered.profile != profile {
            *entered = Entered { profile, operators: Vec::new() };
        }
        f(&mut entered.operators)
    };
    ENTERED.try_with(with).unwrap_or_default()
}

/// Says that the thread is in an operator, which the profiler has numbered.
pub fn enter_operator(number: u64) {
    with_operators(|operators| operators.push(number));
}

/// Says that the thread has left the operator that it entered last.
pub fn leave_operator() {
    with_operators(|operators| {
        operators.pop();
    });
}

/// A run of a program on a device. Times are nanoseconds since 1970.
pub struct DeviceRun {
    pub program: Arc<ProfiledProgram>,
    pub placement: Placement,
    /// The innermost operator whose call made it run, by the profiler's number; zero if there is none.
    pub operator: u64,
    pub begin: u64,
    pub end: u64,
}

/// A program that ran while a profiler was on.
pub struct ProfiledProgram {
    /// Its operators: the first few and how many there are.
    pub name: String,
    /// All of its operators with how often each is in it: "mm x 12, relu x 6".
    pub operators: String,
    /// The floating point operations of a run, as the compiler reckons.
    pub flops: Option<f64>,
    /// The bytes that a run reads and writes, as the compiler reckons.
    pub bytes: Option<f64>,
}

/// What is known of a run while the profiler is on. Times are nanoseconds since the profile began.
struct Run {
    program: usize,
    placement: Placement,
    operator: u64,
    /// When it was handed over; `None` as long as it is not.
    launched: Option<u64>,
    /// When it was done; zero as long as it is not.
    done: Arc<AtomicU64>,
    event: Option<Arc<Event>>,
}

/// What ran since the profile began.
pub struct Profile {
    started: Instant,
    /// The same moment, in nanoseconds since 1970.
    started_at: u64,
    runs: Vec<Run>,
    /// The programs and their operators. They are held, so that no other program gets one of their addresses.
    programs: Vec<(Arc<Program>, String)>,
    /// The programs' places in the list, by their addresses.
    places: FxHashMap<usize, usize>,
}

impl Profile {
    pub(crate) fn new() -> Profile {
        PROFILES.fetch_add(1, Relaxed);
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Profile {
            started: Instant::now(),
            started_at,
            runs: Vec::new(),
            programs: Vec::new(),
            places: FxHashMap::default(),
        }
    }

    /// Notes that a chunk is about to be handed over. Returns the run's number.
    pub(crate) fn note_run(&mut self, chunk: &Chunk, program: &Arc<Program>, placement: Placement) -> usize {
        let next = self.programs.len();
        let place = *self.places.entry(Arc::as_ptr(program) as usize).or_insert(next);
        if place == next {
            self.programs.push((Arc::clone(program), operators_of(chunk)));
        }
        let operator = with_operators(|operators| operators.last().copied().unwrap_or(0));
        let run =
            Run { program: place, placement, operator, launched: None, done: Arc::new(AtomicU64::new(0)), event: None };
        self.runs.push(run);
        self.runs.len() - 1
    }

    /// Notes that a run was handed over, at a moment.
    pub(crate) fn note_launch(&mut self, number: usize, launched: Instant, event: Option<&Arc<Event>>) {
        let started = self.started;
        let Some(run) = self.runs.get_mut(number) else { return };
        run.launched = Some(nanoseconds(started, launched));
        match event {
            Some(event) => {
                run.event = Some(Arc::clone(event));
                let done = Arc::clone(&run.done);
                Arc::clone(event).on_ready(move |_| done.store(nanoseconds(started, Instant::now()), Relaxed));
            }
            // The plugin does not tell of the end.
            None => run.done.store(nanoseconds(started, Instant::now()), Relaxed),
        }
    }

    /// The runs in the order in which they were handed over. Waits until all are done.
    ///
    /// A device works in order: a run begins when it is handed over, or when the run before it on the same device is done.
    pub fn finish(self) -> Vec<DeviceRun> {
        let programs: Vec<Arc<ProfiledProgram>> =
            self.programs.into_iter().map(|(program, operators)| Arc::new(describe(&program, operators))).collect();
        let mut free: FxHashMap<usize, u64> = FxHashMap::default();
        let mut runs: Vec<(u64, Run)> =
            self.runs.into_iter().filter_map(|run| run.launched.map(|launched| (launched, run))).collect();
        runs.sort_by_key(|(launched, _)| *launched);
        let mut finished = Vec::with_capacity(runs.len());
        for (launched, run) in runs {
            if let Some(event) = run.event {
                // A run that has failed is done too.
                let _ = event.wait();
            }
            let done = match run.done.load(Relaxed) {
                // The callback that stores the time comes a moment after the end.
                0 => nanoseconds(self.started, Instant::now()),
                done => done,
            };
            let free = free.entry(run.placement.device()).or_default();
            let begin = launched.max(*free);
            let end = begin.max(done);
            *free = end;
            finished.push(DeviceRun {
                program: Arc::clone(&programs[run.program]),
                placement: run.placement,
                operator: run.operator,
                begin: self.started_at + begin,
                end: self.started_at + end,
            });
        }
        finished
    }
}

fn nanoseconds(started: Instant, moment: Instant) -> u64 {
    moment.saturating_duration_since(started).as_nanos() as u64
}

/// "mm x 12, relu x 6", in the order in which they come first.
fn operators_of(chunk: &Chunk) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    let mut places: FxHashMap<&str, usize> = FxHashMap::default();
    for node in &chunk.nodes {
        let place = *places.entry(&node.instance.operator).or_insert(counts.len());
        match counts.get_mut(place) {
            Some((_, count)) => *count += 1,
            None => counts.push((&node.instance.operator, 1)),
        }
    }
    let mut text = String::new();
    for (name, count) in counts {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = if count == 1 { write!(text, "{comma}{name}") } else { write!(text, "{comma}{name} x {count}") };
    }
    text
}

fn describe(program: &Program, operators: String) -> ProfiledProgram {
    let costs = program.executable.get().ok().and_then(|executable| executable.cost_analysis().ok());
    let cost = |name: &str| {
        let (_, value) = costs.as_ref()?.iter().find(|(known, _)| known == name)?;
        match value {
            Value::Float(cost) => Some(f64::from(*cost)).filter(|cost| *cost >= 0.0),
            _ => None,
        }
    };
    let (flops, bytes) = (cost("flops"), cost("bytes accessed"));
    ProfiledProgram { name: program.operators.clone(), operators, flops, bytes }
}
