//! Programs: compiled chunks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::cache::effort::{Effort, Step, Use};
use crate::cache::memory::LastUse;
use crate::cache::{Executable, Source, Urgency};

pub(crate) struct Program {
    /// The first executable. Runs wait for it.
    pub executable: Arc<Executable>,
    /// The source for compiling again, if the first executable was compiled quickly.
    pub quick: Option<Quick>,
    /// Whether the executable was made for another program with the same text.
    pub shares_executable: bool,
    /// The operators in the program, for messages: the first few names, and the number of operators.
    pub operators: String,
    /// The hash of the text. 0 if the program has no collectives.
    pub digest: u64,
    pub last_use: LastUse,
    /// Approximate size in host memory.
    pub bytes: usize,
    /// Whether it replaces one that was evicted.
    pub was_evicted: bool,
}

/// A program that was compiled quickly at first.
pub(crate) struct Quick {
    source: Source,
    takeover: Takeover,
    /// The executable that replaces the first.
    better: OnceLock<Arc<Executable>>,
}

/// When the better executable replaces the first.
enum Takeover {
    /// At a run that follows from the bytes processed, so that the same runs give the same bits.
    AtRun(Use),
    /// As soon as it is ready, so that no run waits for it. Counts the runs.
    WhenReady(AtomicU64),
}

/// A program of several operators that runs this often is used again and again, and is compiled with full effort.
const RUNS_BEFORE_FULL: u64 = 4;

impl Quick {
    /// A program of one operator, whose inputs and results take `bytes`.
    pub fn of_one(source: Source, bytes: usize) -> Quick {
        Quick { source, takeover: Takeover::AtRun(Use::new(bytes)), better: OnceLock::new() }
    }

    /// A program of several operators.
    pub fn of_several(source: Source) -> Quick {
        Quick { source, takeover: Takeover::WhenReady(AtomicU64::new(0)), better: OnceLock::new() }
    }

    /// Whether a run may have to wait for the better executable.
    fn urgency(&self) -> Urgency {
        if matches!(self.takeover, Takeover::AtRun(_)) { Urgency::Awaited } else { Urgency::Any }
    }

    /// What to do before the next run.
    fn next(&self) -> Step {
        match &self.takeover {
            Takeover::AtRun(used) => used.next(),
            Takeover::WhenReady(runs) => match runs.fetch_add(1, Relaxed) + 1 {
                RUNS_BEFORE_FULL => Step::Improve,
                _ if self.better.get().is_some_and(|better| better.is_made()) => Step::RunBetter,
                _ => Step::Run,
            },
        }
    }
}

impl Program {
    /// Counts a run and returns the executable to use.
    pub fn executable_of_run(&self, improve: impl FnOnce(Source, Urgency) -> Arc<Executable>) -> &Executable {
        let Some(quick) = &self.quick else { return &self.executable };
        match quick.next() {
            Step::Run => {}
            Step::Improve => {
                let source = Source { effort: Effort::Full, ..quick.source.clone() };
                let _ = quick.better.set(improve(source, quick.urgency()));
            }
            Step::RunBetter => {
                let better = quick.better.get().filter(|better| better.get().is_ok());
                return better.unwrap_or(&self.executable);
            }
        }
        &self.executable
    }

    /// Whether an executable is the first of two, compiled quickly.
    pub fn is_quick(&self, executable: &Executable) -> bool {
        self.quick.is_some() && std::ptr::eq(executable, &*self.executable)
    }

    /// Approximate size in host and device memory, as far as it has been compiled.
    pub fn bytes(&self) -> usize {
        self.bytes + self.executable.code_bytes()
    }
}

/// The outputs that are used and the inputs that are donated, by index.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Usage {
    pub live: Vec<u32>,
    pub donated: Vec<bool>,
}

impl Usage {
    /// The usage as bits, if it fits.
    pub fn key_bits(&self) -> Option<u64> {
        let outputs = self.live.last().map_or(0, |&last| last + 1);
        if outputs > 32 || self.donated.len() > 32 {
            return None;
        }
        let live = self.live.iter().fold(0, |bits, &output| bits | 1 << output);
        let donated = self.donated.iter().enumerate().fold(0, |bits, (i, &d)| bits | u64::from(d) << i);
        Some(live | donated << 32)
    }

    /// The usage of so many inputs that has these bits.
    pub fn of_bits(bits: u64, inputs: usize) -> Usage {
        Usage {
            live: (0..32).filter(|output| bits >> output & 1 == 1).collect(),
            donated: (0..inputs).map(|input| bits >> (32 + input) & 1 == 1).collect(),
        }
    }

    /// Whether a program with this usage can run where another usage is wanted: it returns all that is wanted, and
    /// donates nothing else.
    pub fn serves(&self, wanted: &Usage) -> bool {
        let mut donated = self.donated.iter().zip(&wanted.donated);
        wanted.live.iter().all(|output| self.live.binary_search(output).is_ok())
            && donated.all(|(donated, may_be)| *may_be || !donated)
    }
}
