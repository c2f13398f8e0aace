//! Chunks that come once, or a few times.
//!
//! A test, a notebook, or a model whose sizes the data decide seldom records the same chunk again. A program for each of these
//! chunks would take longer to compile than the programs of their operators, which other chunks share. Where many chunks of late
//! were new, a new one therefore runs operator by operator. When it has come back so often that it is worth it, its program is
//! made, and the programs of the operators run until it is ready.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use super::Runner;
use crate::program::Usage;
use crate::record::chunk::Chunk;

/// From here on, new chunks run operator by operator. The first steps of a training loop seldom come so far.
const HIGH: u32 = 512;

/// After a phase of new chunks, so many known ones end it.
const MOST: u32 = 2 * HIGH;

/// A new chunk counts at least so many times as a known one: compiling it takes as long as many runs save.
const LEAST_COUNTS: usize = 16;

/// It counts once more for each operator, and at most so many times.
const MOST_COUNTS: usize = 64;

/// From this run on, a chunk has a program of its own.
const RUNS: usize = 64;

/// A run counts once more for each so many bytes. Operators that run by themselves write and read them once more each.
const BYTES: usize = 4 << 20;

/// So many keys of chunks are remembered.
const MOST_SEEN: usize = 1 << 14;

/// How many of the last chunks of several operators were new, and how often which ones ran operator by operator.
#[derive(Default)]
pub(super) struct Novelty {
    balance: u32,
    seen: FxHashMap<u64, usize>,
}

impl Novelty {
    /// Counts a chunk of several operators.
    pub fn note(&mut self, is_new: bool, operators: usize) {
        let counts = (LEAST_COUNTS + operators).min(MOST_COUNTS) as u32;
        self.balance = if is_new { MOST.min(self.balance + counts) } else { self.balance.saturating_sub(1) };
    }
}

impl Runner {
    /// Whether the operators of a chunk run by themselves, because it is not likely to come back often.
    pub(super) fn comes_once(&mut self, chunk: &Chunk, usage: &Usage) -> bool {
        if self.novelty.balance < HIGH
            || chunk.nodes.len() < 2
            || !self.may_run_otherwise(chunk)
            || self.programs.known(chunk, usage).is_some()
        {
            return false;
        }
        if self.novelty.seen.len() > MOST_SEEN {
            self.novelty.seen.clear();
        }
        let runs = self.novelty.seen.entry(digest_of(chunk, usage)).or_default();
        let is_first = *runs == 0;
        *runs += 1 + chunk.bytes / BYTES;
        let is_seldom = is_first || *runs < RUNS;
        if is_first {
            self.novelty.note(true, chunk.nodes.len());
        }
        is_seldom
    }
}

fn digest_of(chunk: &Chunk, usage: &Usage) -> u64 {
    let mut hasher = FxHasher::default();
    (&chunk.key, &usage.live, &usage.donated).hash(&mut hasher);
    hasher.finish()
}
