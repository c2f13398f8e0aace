//! Records what devices run while a profiler is on.

use std::cell::RefCell;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pjrt::{Event, Value};
use rustc_hash::FxHashMap;

use crate::placement::Placement;
use crate::program::Program;
use crate::record::chunk::Chunk;

/// How often, and for how long each time, the end of a profile waits for the callback of a run that has ended.
const CALLBACK_ROUNDS: usize = 1000;
const CALLBACK_ROUND: Duration = Duration::from_micros(100);

/// The number of profiles that were started.
static PROFILES: AtomicU64 = AtomicU64::new(0);

/// The operators that a thread has entered.
#[derive(Default)]
struct Entered {
    /// The profile that numbered them.
    profile: u64,
    /// Their numbers, the innermost last.
    operators: Vec<u64>,
}

thread_local! {
    static ENTERED: RefCell<Entered> = RefCell::default();
}

/// Calls `f` with the operators that the thread has entered since the profile began. Empty while the thread ends.
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

/// Records that the thread enters an operator with this number of the profiler's.
pub fn enter_operator(number: u64) {
    with_operators(|operators| operators.push(number));
}

/// Records that the thread leaves the operator that it entered last.
pub fn leave_operator() {
    with_operators(|operators| {
        operators.pop();
    });
}

/// A run of a program on a device. Times are nanoseconds since 1970.
pub struct DeviceRun {
    pub program: Arc<ProfiledProgram>,
    pub placement: Placement,
    /// The profiler's number of the innermost operator whose call caused the run; zero if there is none.
    pub operator: u64,
    pub begin: u64,
    pub end: u64,
}

/// A program that ran while a profiler was on.
pub struct ProfiledProgram {
    /// Its operators: the first few names, and the number of operators.
    pub name: String,
    /// All operators with their counts: "mm x 12, relu x 6".
    pub operators: String,
    /// The compiler's count of floating point operations of a run.
    pub flops: Option<f64>,
    /// The compiler's count of bytes that a run reads and writes.
    pub bytes: Option<f64>,
}

/// A run while the profiler is on. Times are nanoseconds since the profile began.
struct Run {
    program: usize,
    placement: Placement,
    operator: u64,
    /// When it was launched; `None` before that.
    launched: Option<u64>,
    /// When it was done; zero before that.
    done: Arc<AtomicU64>,
    event: Option<Arc<Event>>,
}

/// What ran since the profile began.
pub struct Profile {
    started: Instant,
    /// The start in nanoseconds since 1970.
    started_at: u64,
    runs: Vec<Run>,
    /// The programs and their operators. The programs are kept so that no other program gets the same address.
    programs: Vec<(Arc<Program>, String)>,
    /// The index of each program in the list, by its address.
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

    /// Records that a chunk will be launched. Returns the run's number.
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

    /// Records when a run was launched.
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
            // The plugin does not report the end.
            None => run.done.store(nanoseconds(started, Instant::now()), Relaxed),
        }
    }

    /// The runs in the order of their launches. Waits until all are done.
    ///
    /// A device runs programs in order: a run begins when it is launched, or when the previous run on the same device
    /// ends.
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
                // A run that failed is done too.
                let _ = event.wait();
            }
            let done = end_of(&run.done).unwrap_or_else(|| nanoseconds(self.started, Instant::now()));
            let free = free.entry(run.placement.device()).or_default();
            let begin = launched.max(*free);
            // A run takes time, however late the callback of the one before it was.
            let end = done.max(begin + 1);
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

/// When a run ended. The callback that stores this runs a moment after the end; on a busy machine it is waited for.
fn end_of(done: &AtomicU64) -> Option<u64> {
    for _ in 0..CALLBACK_ROUNDS {
        match done.load(Relaxed) {
            0 => std::thread::sleep(CALLBACK_ROUND),
            done => return Some(done),
        }
    }
    None
}

fn nanoseconds(started: Instant, moment: Instant) -> u64 {
    moment.saturating_duration_since(started).as_nanos() as u64
}

/// "mm x 12, relu x 6", in the order of first appearance.
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
