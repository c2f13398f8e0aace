//! What a program usually does next: the chunks of its loop, each known by the one before and by how it begins.
//!
//! A chunk that follows a familiar one needs no lookup of its callers' lines: it has those of the first time.

use std::hash::BuildHasher;
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::chunk::Chunk;
use crate::lines::Line;

/// How many chunks are familiar before all are forgotten: a program without a rhythm gains nothing from them.
const MAX_FAMILIAR: usize = 1024;

/// A chunk that was recorded before.
pub(crate) struct Familiar {
    pub key: Vec<u64>,
    /// Of the caller of each operator.
    pub lines: Vec<Line>,
    /// The hash of the key: chunks are told apart by it where a mistake costs nothing.
    hash: u64,
}

/// The familiar chunks of a device.
#[derive(Default)]
pub(crate) struct Rhythm {
    /// By the hash of the chunk that came before, and by the first operator; with zero for any chunk before.
    chunks: FxHashMap<(u64, u64), Arc<Familiar>>,
    /// The hash of the chunk that ran last.
    last: u64,
}

impl Rhythm {
    /// The chunk that usually begins as `chunk` does, which has one operator yet.
    pub fn expected(&self, chunk: &Chunk) -> Option<Arc<Familiar>> {
        let first = chunk.key[0];
        let familiar = self.chunks.get(&(self.last, first)).or_else(|| self.chunks.get(&(0, first)))?;
        familiar.key.starts_with(&chunk.key).then(|| Arc::clone(familiar))
    }

    /// Remembers a chunk that was recorded whole.
    pub fn learn(&mut self, chunk: &Chunk) {
        if let Some(familiar) = &chunk.familiar {
            if familiar.key.len() == chunk.key.len() {
                self.last = familiar.hash;
                return;
            }
        }
        if self.chunks.len() >= MAX_FAMILIAR {
            self.chunks.clear();
        }
        let lines = (0..chunk.nodes.len()).map(|node| chunk.line_of(node)).collect();
        let hash = FxBuildHasher.hash_one(&chunk.key);
        let familiar = Arc::new(Familiar { key: chunk.key.clone(), lines, hash });
        self.chunks.insert((self.last, chunk.key[0]), Arc::clone(&familiar));
        self.chunks.insert((0, chunk.key[0]), familiar);
        self.last = hash;
    }
}
