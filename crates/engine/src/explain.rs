//! What happened, in order and with its reasons: for `torch.tpu.explain`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::chunk::Chunk;
use crate::engine::{Engine, lock};
use crate::error::{Error, Result};
use crate::instance::Instance;
use crate::launch::Queue;
use crate::lines::{self, Line};
use crate::program::Program;

/// Why what was recorded ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Debug and Strict run each operator at once.
    EachOperator,
    CompiledGraph,
    Joined,
    Read,
    Size,
    Synchronize,
    Event,
    Mode,
    OtherDevice,
    Full,
    Large,
    Beat,
    Upload,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::EachOperator => "the mode runs each operator at once",
            Reason::CompiledGraph => "a compiled graph runs as a program of its own",
            Reason::Joined => "the end of a compiled step",
            Reason::Read => "the host reads a tensor",
            Reason::Size => "the data decide the size of a result",
            Reason::Synchronize => "the host waits for the device",
            Reason::Event => "an event is recorded",
            Reason::Mode => "the mode changes",
            Reason::OtherDevice => "another device needs a result",
            Reason::Full => "as many operators as a program may have",
            Reason::Large => "results and uploads are as large as a program may hold",
            Reason::Beat => "the loop came back to the operator that the program begins with",
            Reason::Upload => "a tensor is copied from the host, as at the start of a step",
        })
    }
}

/// A program that ran: its operators in order, each with its caller's line.
pub struct ProgramInfo {
    pub operators: Vec<(Arc<str>, Line)>,
    pub inputs: usize,
    pub results: usize,
}

/// A run of a program. Times are nanoseconds since the explanation began.
pub struct Run {
    pub program: usize,
    pub device: usize,
    pub reason: Reason,
    /// What made it run.
    pub line: Line,
    /// When the host began with it…
    pub flushed: u64,
    /// … and went on: it was handed over by then, or waits for its executable.
    pub queued: u64,
    /// When it was handed over; zero as long as it is not.
    pub launched: u64,
    /// When it was done; zero as long as it is not.
    pub done: Arc<AtomicU64>,
}

/// A program that was not in memory.
pub struct Compile {
    pub program: usize,
    /// When it was asked for, and, from the end on, when a thread began with it.
    pub at: u64,
    pub compiling: Duration,
    pub loading: Duration,
    /// Waiting for another process that compiled it.
    pub waiting: Duration,
    pub why: Vec<String>,
    pub line: Line,
}

/// The host waited for the device.
pub struct Wait {
    pub at: u64,
    pub until: u64,
    pub what: Reason,
    pub line: Line,
}

/// What happened since the explanation began.
pub struct Explanation {
    pub(crate) started: Instant,
    pub programs: Vec<ProgramInfo>,
    pub runs: Vec<Run>,
    pub compiles: Vec<Compile>,
    pub waits: Vec<Wait>,
    /// Operators called, and what calling them took besides compiling and queueing.
    pub calls: u64,
    pub recording: Duration,
    /// All in all.
    pub elapsed: Duration,
    /// What flushing took, of the threads that called operators.
    running: Duration,
    numbers: FxHashMap<usize, usize>,
    /// The programs themselves, so that their addresses stay theirs.
    held: Vec<Arc<Program>>,
    /// Why calls were lowered that no program has yet.
    new_calls: FxHashMap<u32, String>,
}

impl Explanation {
    fn new() -> Explanation {
        Explanation {
            started: Instant::now(),
            programs: Vec::new(),
            runs: Vec::new(),
            compiles: Vec::new(),
            waits: Vec::new(),
            calls: 0,
            recording: Duration::ZERO,
            elapsed: Duration::ZERO,
            running: Duration::ZERO,
            numbers: FxHashMap::default(),
            held: Vec::new(),
            new_calls: FxHashMap::default(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Says of each compile what it took, now that none is being made.
    fn finish_compiles(&mut self) {
        for compile in &mut self.compiles {
            let program = &self.held[compile.program];
            // Another program's executable, which came to the same, was made for that one.
            if program.shares_executable {
                continue;
            }
            let making = program.executable.making();
            (compile.compiling, compile.loading, compile.waiting) = (making.compiling, making.loading, making.waiting);
            if let Some(begun) = making.begun {
                compile.at = begun.saturating_duration_since(self.started).as_nanos() as u64;
            }
        }
    }

    fn number(&mut self, program: &Arc<Program>, chunk: &Chunk, results: usize) -> usize {
        let address = Arc::as_ptr(program) as usize;
        if let Some(&number) = self.numbers.get(&address) {
            return number;
        }
        let operators = chunk.nodes.iter().enumerate();
        let operators = operators.map(|(i, node)| (Arc::clone(&node.instance.operator), chunk.line_of(i))).collect();
        let inputs = chunk.inputs.len() + chunk.extras.len();
        self.programs.push(ProgramInfo { operators, inputs, results });
        self.numbers.insert(address, self.held.len());
        self.held.push(Arc::clone(program));
        self.held.len() - 1
    }

    /// Notes why a call had to be lowered: what differs from the call of the same operator that is most like it.
    pub(crate) fn note_new_call<'a>(&mut self, new: &Instance, known: impl Iterator<Item = &'a Arc<Instance>>) {
        let same = known.filter(|old| old.operator == new.operator && old.id != new.id);
        let likest = same.min_by_key(|old| (differing(&old.arguments, &new.arguments), u64::MAX - old.last_use.get()));
        let why = match likest {
            None => format!("{}: its first call", new.operator),
            Some(old) => format!("{}: {}", new.operator, difference(&old.arguments, &new.arguments)),
        };
        self.new_calls.insert(new.id, why);
    }

    /// Why no program was there for a chunk.
    fn why(&mut self, chunk: &Chunk, reason: Reason) -> Vec<String> {
        let mut why = Vec::new();
        for (index, node) in chunk.nodes.iter().enumerate() {
            if let Some(new) = self.new_calls.remove(&node.instance.id) {
                why.push(chunk.line_of(index).behind(&new));
            }
        }
        if why.is_empty() {
            why.push(chunk.novelty(reason));
        }
        why
    }
}

/// How many arguments differ.
fn differing(old: &[String], new: &[String]) -> usize {
    old.len().abs_diff(new.len()) + old.iter().zip(new).filter(|(old, new)| old != new).count()
}

fn difference(old: &[String], new: &[String]) -> String {
    if old.len() != new.len() {
        return format!("{} arguments instead of {}", new.len(), old.len());
    }
    let changed = |(i, (old, new)): (usize, (&String, &String))| {
        (old != new).then(|| format!("argument {} changed from {old} to {new}", i + 1))
    };
    let changes: Vec<String> = old.iter().zip(new).enumerate().filter_map(changed).collect();
    if changes.is_empty() { "its arguments share or lay out memory differently".into() } else { changes.join(", ") }
}

impl Engine {
    /// Begins to write down what happens.
    ///
    /// # Errors
    /// While that is being done already.
    pub fn begin_explaining(&mut self) -> Result<()> {
        if self.explanation.is_some() {
            return Err(Error::runtime("an explanation is being made already: explain() does not nest"));
        }
        self.launch_everything(Reason::Synchronize)?;
        self.explanation = Some(Box::new(Explanation::new()));
        self.update_wanted_lines();
        Ok(())
    }

    /// Ends it, and returns what happened.
    pub fn end_explaining(&mut self) -> Option<Box<Explanation>> {
        // What fails says so when it is read.
        let _ = self.launch_everything(Reason::Synchronize);
        let mut explanation = self.explanation.take()?;
        explanation.finish_compiles();
        explanation.elapsed = explanation.started.elapsed();
        self.update_wanted_lines();
        Some(explanation)
    }

    /// Asks for callers' lines while something needs them.
    pub(crate) fn update_wanted_lines(&self) {
        let unfamiliar = |chunk: &Chunk| !chunk.is_empty() && chunk.familiar.is_none();
        let debug = self.mode == crate::engine::Mode::Debug;
        let queued = |queue: &Queue| queue.back().is_some_and(|launch| launch.chunk.lacks_line());
        let recorded = self.chunks.iter().any(unfamiliar) || self.queues.iter().any(queued);
        lines::want(debug || self.explanation.is_some() || recorded);
    }

    /// The beginning of a call, and what running programs has taken until then.
    pub(crate) fn explain_call(&self) -> Option<(Instant, Duration)> {
        self.explanation.as_ref().map(|explanation| (Instant::now(), explanation.running))
    }

    pub(crate) fn explain_called(&mut self, begun: Option<(Instant, Duration)>) {
        let (Some((begun, running)), Some(explanation)) = (begun, &mut self.explanation) else { return };
        explanation.calls += 1;
        explanation.recording += begun.elapsed().saturating_sub(explanation.running - running);
    }

    /// The beginning of a flush.
    pub(crate) fn explain_flush(&self) -> Option<Instant> {
        self.explanation.as_ref().map(|_| Instant::now())
    }

    pub(crate) fn explain_flushed(&mut self, begun: Option<Instant>) {
        let (Some(begun), Some(explanation)) = (begun, &mut self.explanation) else { return };
        explanation.running += begun.elapsed();
        let now = explanation.now();
        if let Some(run) = explanation.runs.last_mut() {
            run.queued = now;
        }
    }

    /// Notes that a chunk is about to be handed over as a run of a program, which may be new. Returns its number.
    pub(crate) fn explain_run(
        &mut self,
        chunk: &Chunk,
        program: &Arc<Program>,
        built: bool,
        device: usize,
        reason: Reason,
        results: usize,
    ) -> Option<usize> {
        let explanation = self.explanation.as_mut()?;
        let (number, line, now) = (explanation.number(program, chunk, results), lines::caller(), explanation.now());
        if built {
            let why = explanation.why(chunk, reason);
            let zero = Duration::ZERO;
            let compile =
                Compile { program: number, at: now, compiling: zero, loading: zero, waiting: zero, why, line };
            explanation.compiles.push(compile);
        }
        let done = Arc::new(AtomicU64::new(0));
        let run = Run { program: number, device, reason, line, flushed: now, queued: now, launched: 0, done };
        explanation.runs.push(run);
        Some(explanation.runs.len() - 1)
    }

    /// Notes that a run was handed over, at a moment.
    pub(crate) fn explain_launch(&mut self, number: usize, launched: Instant, event: Option<&Arc<pjrt::Event>>) {
        let Some(explanation) = &mut self.explanation else { return };
        let started = explanation.started;
        let Some(run) = explanation.runs.get_mut(number) else { return };
        run.launched = launched.saturating_duration_since(started).as_nanos() as u64;
        if let Some(event) = event {
            let done = Arc::clone(&run.done);
            Arc::clone(event).on_ready(move |_| done.store(started.elapsed().as_nanos() as u64, Relaxed));
        }
    }
}

/// A wait of the host, noted when it is over.
pub(crate) struct Waiting {
    since: Instant,
    what: Reason,
    line: Line,
}

impl Waiting {
    /// `None` while nothing is explained.
    pub fn begin(engine: &Engine, what: Reason) -> Option<Waiting> {
        engine.explanation.as_ref().map(|_| Waiting { since: Instant::now(), what, line: lines::caller() })
    }

    /// Takes the engine's lock.
    pub fn end(self) {
        let until = Instant::now();
        let Ok(mut engine) = lock() else { return };
        let Some(explanation) = engine.explanation.as_mut() else { return };
        let since_start = |moment: Instant| moment.saturating_duration_since(explanation.started).as_nanos() as u64;
        let (at, until) = (since_start(self.since), since_start(until));
        explanation.waits.push(Wait { at, until, what: self.what, line: self.line });
    }
}
