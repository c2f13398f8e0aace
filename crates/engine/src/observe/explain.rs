//! Records what happens, in order and with reasons, for `torch.tpu.explain`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::lines::Line;
use crate::memory;
use crate::placement::Placement;
use crate::program::{Program, Usage};
use crate::record::chunk::Chunk;
pub use crate::record::reason::Reason;
use crate::registry::instance::Instance;
use crate::registry::types::Types;
use crate::run::module_text::module_text;
use crate::storage::{Storage, Value};

/// Why a program that was evicted is made again.
const EVICTED: &str = "it was made before and then removed from memory: a process keeps at most \
    TORCHTPU_CACHE_PROGRAMS programs, and fewer where memory is short";

/// A program that ran: its operators in order, with the lines of their callers.
pub struct ProgramInfo {
    pub operators: Vec<(Arc<str>, Line)>,
    pub inputs: usize,
    pub results: usize,
    /// Where texts are wanted.
    pub text: Option<ProgramText>,
}

/// The text of a program.
pub struct ProgramText {
    pub module: String,
    /// The operators that `@main` calls, in order: those of the program without the ones that need no function.
    pub calls: Vec<(Arc<str>, Line)>,
}

/// The values that a run reads, makes and does not use. A value is known by the address that its storage shows. A value
/// without a storage has an address of its own.
pub struct Memory {
    /// 0 for a number.
    pub inputs: Vec<usize>,
    pub results: Vec<usize>,
    /// The values on the device that the run does not use: address and bytes. Of the runs of a program only the one
    /// with most bytes has them, because there may be many runs and many values.
    pub others: Option<Vec<(usize, usize)>>,
    /// The lines of the program's calls in this run.
    pub calls: Vec<Line>,
}

/// A run of a program. Times are nanoseconds since the explanation began.
pub struct Run {
    pub program: usize,
    pub placement: Placement,
    pub reason: Reason,
    /// The line that caused the run.
    pub line: Line,
    /// Where texts are wanted.
    pub memory: Option<Memory>,
    /// When the host began to flush it.
    pub flushed: u64,
    /// When the host had flushed it: launched, or waiting for its executable.
    pub queued: u64,
    /// When it was launched; zero before that.
    pub launched: u64,
    /// Whether it ran code that was compiled quickly.
    pub is_quick: bool,
    /// Whether other runs came in its place.
    pub(crate) is_withdrawn: bool,
    /// When it was done; zero before that.
    pub done: Arc<AtomicU64>,
}

/// A program that was not in memory.
pub struct Compile {
    pub program: usize,
    /// When it was requested. After the explanation has ended: when a thread began to compile it.
    pub at: u64,
    pub compiling: Duration,
    pub loading: Duration,
    /// The wait for another process that compiled it.
    pub waiting: Duration,
    pub why: Vec<String>,
    pub line: Line,
}

/// A wait of the host for the device.
pub struct Wait {
    pub at: u64,
    pub until: u64,
    pub what: Reason,
    pub line: Line,
}

/// A job of the host, such as a collective. Times are nanoseconds since the explanation began.
pub struct JobRun {
    pub name: String,
    pub placement: Placement,
    pub line: Line,
    /// The bytes of its inputs, or of its outputs if those are more.
    pub bytes: usize,
    pub posted: u64,
    pub times: JobTimes,
}

/// When a job began and ended.
#[derive(Clone)]
pub struct JobTimes {
    started: Instant,
    begun: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
}

impl JobTimes {
    /// Its inputs are there, and it works from now on.
    pub(crate) fn begin(&self) {
        self.begun.store(self.started.elapsed().as_nanos() as u64, Relaxed);
    }

    pub(crate) fn end(&self) {
        self.done.store(self.started.elapsed().as_nanos() as u64, Relaxed);
    }

    /// When it began, in nanoseconds since the explanation began; zero if it has not.
    pub fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// When it ended; zero if it has not.
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }
}

/// What happened since the explanation began.
pub struct Explanation {
    pub(crate) started: Instant,
    pub programs: Vec<ProgramInfo>,
    pub runs: Vec<Run>,
    pub compiles: Vec<Compile>,
    pub waits: Vec<Wait>,
    pub jobs: Vec<JobRun>,
    /// The number of operator calls, and the time to record them, without flushes.
    pub calls: u64,
    pub recording: Duration,
    /// The time from the start of the explanation to its end.
    pub elapsed: Duration,
    /// The time of flushes on threads that called operators.
    pub(crate) running: Duration,
    numbers: FxHashMap<usize, usize>,
    /// The programs, kept so that no other program gets the same address.
    held: Vec<Arc<Program>>,
    /// The addresses of the storages that hold values, if texts are wanted.
    addresses: Option<FxHashMap<usize, usize>>,
    /// The results that no storage has, as those that one piece of a chunk makes for another: with addresses and bytes.
    between: Vec<(Weak<Value>, usize, usize)>,
    /// For each program the run with most bytes that it does not use, and these bytes.
    largest: FxHashMap<usize, (usize, usize)>,
    /// Why calls were lowered, by instance, until a program contains them.
    new_calls: FxHashMap<u32, String>,
}

impl Explanation {
    /// With the texts of programs, if they are wanted.
    pub(crate) fn new(with_texts: bool) -> Explanation {
        Explanation {
            started: Instant::now(),
            programs: Vec::new(),
            runs: Vec::new(),
            compiles: Vec::new(),
            waits: Vec::new(),
            jobs: Vec::new(),
            calls: 0,
            recording: Duration::ZERO,
            elapsed: Duration::ZERO,
            running: Duration::ZERO,
            numbers: FxHashMap::default(),
            held: Vec::new(),
            addresses: with_texts.then(FxHashMap::default),
            between: Vec::new(),
            largest: FxHashMap::default(),
            new_calls: FxHashMap::default(),
        }
    }

    /// Notes the storages of a call's arguments, where texts are wanted.
    pub(crate) fn note_arguments<'a>(&mut self, storages: impl Iterator<Item = &'a Storage>) {
        let Some(addresses) = &mut self.addresses else { return };
        for storage in storages {
            if let Some(value) = storage.held() {
                addresses.insert(Arc::as_ptr(&value) as usize, storage.address());
            }
        }
    }

    fn text(&self, chunk: &Chunk, usage: &Usage, types: &Types) -> Option<ProgramText> {
        self.addresses.as_ref()?;
        let operators = called(chunk).map(|i| Arc::clone(&chunk.nodes[i].instance.operator));
        Some(ProgramText {
            calls: operators.zip(called(chunk).map(|i| chunk.line_of(i))).collect(),
            module: module_text(chunk, types, usage),
        })
    }

    /// The storages of a run of program `number` that is about to be launched, where texts are wanted.
    pub(crate) fn memory(
        &mut self,
        number: usize,
        chunk: &Chunk,
        usage: &Usage,
        placement: Placement,
        types: &Types,
    ) -> Option<Memory> {
        let addresses = self.addresses.as_mut()?;
        let of_program: FxHashSet<usize> =
            inputs_of(chunk).chain(results_of(chunk, usage).map(|value| value.as_ptr() as usize)).collect();
        let mut others = Storage::without(placement, &of_program);
        self.between.retain(|(value, ..)| value.strong_count() > 0);
        let unused = self.between.iter().filter(|(value, ..)| !of_program.contains(&(value.as_ptr() as usize)));
        others.extend(unused.map(|&(_, address, bytes)| (address, bytes)));
        let inputs = inputs_of(chunk).map(|value| addresses.get(&value).copied().unwrap_or_default()).collect();
        let live = Storage::addresses();
        let mut results = Vec::new();
        for value in results_of(chunk, usage) {
            let place = value.as_ptr() as usize;
            let address = live.get(&place).copied().unwrap_or_else(|| {
                let bytes = value.upgrade().map_or(0, |value| types.get(value.ty).size_bytes());
                let address = memory::next_address(bytes);
                self.between.push((Weak::clone(value), address, bytes));
                address
            });
            addresses.insert(place, address);
            results.push(address);
        }
        let calls = called(chunk).map(|i| chunk.line_of(i)).collect();
        Some(Memory { inputs, results, others: self.largest(number, others), calls })
    }

    /// The values beside the next run of a program, if they have more bytes than those beside an earlier one, which then
    /// has none.
    fn largest(&mut self, number: usize, others: Vec<(usize, usize)>) -> Option<Vec<(usize, usize)>> {
        let bytes = others.iter().map(|(_, bytes)| bytes).sum();
        if let Some(&(run, most)) = self.largest.get(&number) {
            if most > bytes {
                return None;
            }
            if let Some(memory) = self.runs.get_mut(run).and_then(|run| run.memory.as_mut()) {
                memory.others = None;
            }
        }
        self.largest.insert(number, (self.runs.len(), bytes));
        Some(others)
    }

    pub(crate) fn note_job(&mut self, name: &str, placement: Placement, line: Line, bytes: usize) -> JobTimes {
        let times = JobTimes { started: self.started, begun: Arc::default(), done: Arc::default() };
        let posted = self.now();
        self.jobs.push(JobRun { name: name.to_owned(), placement, line, bytes, posted, times: times.clone() });
        times
    }

    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Sets the times of each compile. No program may be compiling.
    pub(crate) fn finish_compiles(&mut self) {
        for compile in &mut self.compiles {
            let program = &self.held[compile.program];
            // The executable was made for another program with the same text.
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

    pub(crate) fn number(&mut self, program: &Arc<Program>, chunk: &Chunk, usage: &Usage, types: &Types) -> usize {
        let address = Arc::as_ptr(program) as usize;
        if let Some(&number) = self.numbers.get(&address) {
            return number;
        }
        let operators = chunk.nodes.iter().enumerate();
        let operators = operators.map(|(i, node)| (Arc::clone(&node.instance.operator), chunk.line_of(i))).collect();
        let inputs = chunk.inputs.len() + chunk.extras.len();
        let text = self.text(chunk, usage, types);
        self.programs.push(ProgramInfo { operators, inputs, results: usage.live.len(), text });
        self.numbers.insert(address, self.held.len());
        self.held.push(Arc::clone(program));
        self.held.len() - 1
    }

    /// Records why a call was lowered: its difference from the most similar call of the same operator.
    /// `why_exact` says why its program takes exact values although an argument has padding.
    pub(crate) fn note_new_call<'a>(
        &mut self,
        new: &Instance,
        why_exact: Option<&str>,
        known: impl Iterator<Item = &'a Arc<Instance>>,
    ) {
        let same = known.filter(|old| old.operator == new.operator && old.id != new.id);
        let closest = same.min_by_key(|old| (differing(&old.arguments, &new.arguments), u64::MAX - old.last_use.get()));
        let mut why = match closest {
            None => format!("{}: its first call", new.operator),
            Some(old) => format!("{}: {}", new.operator, difference(&old.arguments, &new.arguments)),
        };
        if let Some(reason) = why_exact {
            why += &format!("; the sizes are constants, because {reason}");
        }
        self.new_calls.insert(new.id, why);
    }

    /// Why there was no program for a chunk.
    pub(crate) fn why(&mut self, program: &Program, chunk: &Chunk, reason: Reason) -> Vec<String> {
        let mut why = Vec::new();
        for (index, node) in chunk.nodes.iter().enumerate() {
            if let Some(new) = self.new_calls.remove(&node.instance.id) {
                why.push(chunk.line_of(index).label(&new));
            }
        }
        if program.was_evicted {
            why.push(EVICTED.into());
        }
        if why.is_empty() {
            why.push(chunk.novelty(reason));
        }
        why
    }
}

/// The nodes of a chunk that the module calls as functions.
fn called(chunk: &Chunk) -> impl Iterator<Item = usize> {
    (0..chunk.nodes.len()).filter(|&i| chunk.nodes[i].instance.function().is_some())
}

/// The addresses of the values that a chunk reads.
fn inputs_of(chunk: &Chunk) -> impl Iterator<Item = usize> {
    chunk.inputs.iter().map(|input| Arc::as_ptr(input) as usize)
}

/// The values that are results of a chunk.
fn results_of<'a>(chunk: &'a Chunk, usage: &'a Usage) -> impl Iterator<Item = &'a Weak<Value>> {
    usage.live.iter().map(|&output| &chunk.outputs[output as usize])
}

/// The number of arguments that differ.
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

/// A wait of the host for the device that has not ended.
pub(crate) struct Waiting {
    pub since: Instant,
    pub what: Reason,
    pub line: Line,
}
