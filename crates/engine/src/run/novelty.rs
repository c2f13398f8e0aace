//! Chunks that come once.
//!
//! A test or a notebook reads the results of few operators, and seldom records the same chunk again. A program for each of
//! these chunks would take longer to compile than the programs of their operators, which other chunks share. Where most
//! chunks of late were new, a new one therefore runs operator by operator. When it has come back a few times, or once if it
//! is large, its program is made, and the programs of the operators run until it is ready.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::Runner;
use crate::program::{RUNS_BEFORE_FULL, Usage};
use crate::record::chunk::Chunk;
use crate::record::reason::Reason;

/// So many more chunks must have been new than known. The first steps of a training loop have fewer. A large chunk, which takes
/// longer to compile, counts for several.
const HIGH: u32 = 32;

/// A new chunk counts once more for each so many operators. One with more is large.
const OPERATORS: usize = 16;

/// A new chunk counts for at most so many.
const MOST_COUNTS: usize = 4;

/// From this run on, a large chunk has a program of its own.
const RUNS_OF_LARGE: u64 = 2;

/// After a phase of new chunks, so many known ones end it.
const MOST: u32 = 2 * HIGH;

/// A chunk of more different operators is likely a step of a loop.
const MOST_OPERATORS: usize = 64;

/// So many keys of chunks are remembered.
const MOST_SEEN: usize = 1 << 14;

/// How many of the last chunks of several operators were new, and how often which ones ran operator by operator.
#[derive(Default)]
pub(super) struct Novelty {
    balance: u32,
    seen: FxHashMap<u64, u64>,
}

impl Novelty {
    /// Counts a chunk of several operators.
    pub fn note(&mut self, is_new: bool, operators: usize) {
        let counts = (1 + operators / OPERATORS).min(MOST_COUNTS) as u32;
        self.balance = if is_new { MOST.min(self.balance + counts) } else { self.balance.saturating_sub(1) };
    }
}

impl Runner {
    /// Whether the operators of a chunk run by themselves, because the host waits for it and it is not likely to come back.
    pub(super) fn comes_once(&mut self, chunk: &Chunk, usage: &Usage, reason: Reason) -> bool {
        if self.novelty.balance < HIGH || !matches!(reason, Reason::Read | Reason::Size | Reason::Synchronize) {
            return false;
        }
        if chunk.nodes.len() < 2
            || !self.may_run_otherwise(chunk)
            || self.programs.known(chunk, usage).is_some()
            || !chunk.has_few_operators()
        {
            return false;
        }
        if self.novelty.seen.len() > MOST_SEEN {
            self.novelty.seen.clear();
        }
        let runs = self.novelty.seen.entry(digest_of(chunk, usage)).or_default();
        *runs += 1;
        let runs = *runs;
        if runs == 1 {
            self.novelty.note(true, chunk.nodes.len());
        }
        // The program of a large chunk takes the place of many, so fewer runs are worth it.
        runs < if chunk.nodes.len() > OPERATORS { RUNS_OF_LARGE } else { RUNS_BEFORE_FULL }
    }
}

impl Chunk {
    /// Whether few programs of operators compute it. A function that is applied to each row of a tensor records many calls of few.
    fn has_few_operators(&self) -> bool {
        let mut different = FxHashSet::default();
        self.nodes.iter().all(|node| {
            different.insert(node.instance.id);
            different.len() <= MOST_OPERATORS
        })
    }
}

fn digest_of(chunk: &Chunk, usage: &Usage) -> u64 {
    let mut hasher = FxHasher::default();
    (&chunk.key, &usage.live, &usage.donated).hash(&mut hasher);
    hasher.finish()
}
