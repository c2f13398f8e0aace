//! The rhythm of a loop: its chunks, found by the previous chunk and the first operator.
//!
//! A chunk that equals a familiar one needs no lookup of its callers' lines: it has the lines of the first time.

use std::hash::BuildHasher;
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::lines::Line;

/// The largest number of remembered chunks. Then all are dropped: a program without a loop does not need them.
const MAX_FAMILIAR: usize = 1024;

/// A chunk that was recorded before.
pub(crate) struct Familiar {
    pub key: Vec<u64>,
    /// The line of each operator's caller.
    pub lines: Vec<Line>,
    /// The hash of the key. A collision only gives a wrong guess, never a wrong result.
    hash: u64,
}

/// The familiar chunks of a device.
#[derive(Default)]
pub(crate) struct Rhythm {
    /// By the hash of the previous chunk and the first operator. A hash of zero stands for any previous chunk.
    chunks: FxHashMap<(u64, u64), Arc<Familiar>>,
    /// The hash of the last chunk.
    last: u64,
}

impl Rhythm {
    /// The chunk that usually begins with the operator that was just recorded. `first` is its key.
    pub fn expected(&self, first: &[u64]) -> Option<Arc<Familiar>> {
        let familiar = self.chunks.get(&(self.last, first[0])).or_else(|| self.chunks.get(&(0, first[0])))?;
        familiar.key.starts_with(first).then(|| Arc::clone(familiar))
    }

    /// Remembers a complete chunk: its key, and the lines of its operators' callers. `followed` is the familiar chunk
    /// that it equalled so far.
    pub fn learn(&mut self, key: &[u64], followed: Option<&Familiar>, lines: impl FnOnce() -> Vec<Line>) {
        if let Some(familiar) = followed.filter(|familiar| familiar.key.len() == key.len()) {
            self.last = familiar.hash;
            return;
        }
        if self.chunks.len() >= MAX_FAMILIAR {
            self.chunks.clear();
        }
        let hash = FxBuildHasher.hash_one(key);
        let familiar = Arc::new(Familiar { key: key.to_vec(), lines: lines(), hash });
        self.chunks.insert((self.last, key[0]), Arc::clone(&familiar));
        self.chunks.insert((0, key[0]), familiar);
        self.last = hash;
    }
}
