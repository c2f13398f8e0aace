//! Programs: compiled chunks.

use std::sync::{Arc, OnceLock};

use crate::cache::effort::{Effort, Step, Use};
use crate::cache::memory::LastUse;
use crate::cache::{Executable, Source};

pub(crate) struct Program {
    /// The first executable. Runs wait for it.
    pub executable: Arc<Executable>,
    /// The source for compiling again, if the first executable was compiled quickly.
    pub quick: Option<Quick>,
    /// Whether the executable was made for another program with the same text.
    pub shares_executable: bool,
    /// The operators in the program, for messages: the first few names, and the number of operators.
    pub operators: String,
    pub last_use: LastUse,
    /// Approximate size in host memory.
    pub bytes: usize,
}

/// A program that was compiled quickly at first.
pub(crate) struct Quick {
    source: Source,
    used: Use,
    /// The executable that replaces the first.
    better: OnceLock<Arc<Executable>>,
}

impl Quick {
    pub fn new(source: Source, bytes: usize) -> Quick {
        Quick { source, used: Use::new(bytes), better: OnceLock::new() }
    }
}

impl Program {
    /// Counts a run and returns the executable to use.
    pub fn executable_of_run(&self, improve: impl FnOnce(Source) -> Arc<Executable>) -> &Executable {
        let Some(quick) = &self.quick else { return &self.executable };
        match quick.used.next() {
            Step::Run => {}
            Step::Improve => {
                let source = Source { effort: Effort::Full, ..quick.source.clone() };
                let _ = quick.better.set(improve(source));
            }
            Step::RunBetter => {
                let better = quick.better.get().filter(|better| better.get().is_ok());
                return better.unwrap_or(&self.executable);
            }
        }
        &self.executable
    }

    /// Approximate size in host and device memory, as far as it has been compiled.
    pub fn bytes(&self) -> usize {
        self.bytes + self.executable.code_bytes()
    }
}

/// The outputs that are used and the inputs that are donated, by index.
#[derive(Default)]
pub(crate) struct Usage {
    pub live: Vec<u32>,
    pub donated: Vec<bool>,
}

impl Usage {
    /// The key of the program of a chunk with this usage, from the chunk's key.
    pub fn key_of(&self, chunk: &[u64]) -> Vec<u64> {
        let mut key = chunk.to_vec();
        key.push(u64::MAX);
        key.extend(self.live.iter().map(|&output| u64::from(output)));
        key.push(u64::MAX);
        key.extend(self.donated.iter().map(|&donated| u64::from(donated)));
        key
    }

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
}
