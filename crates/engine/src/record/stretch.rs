//! The place of a collective in a loop: what was called before it since a chunk last had to end.
//!
//! It does not depend on whether earlier collectives joined the chunk or were cut from it, so a loop finds the places of
//! all its collectives in the same round.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use super::{BEAT_CHUNK, MAX_CHUNK};
use crate::record::reason::Reason;

/// The calls since a chunk last had to end. Ends because of a collective do not count.
#[derive(Default)]
pub(crate) struct Stretch {
    hash: FxHasher,
    calls: usize,
    /// The instance of the first call.
    first: u32,
    /// The process group of its collectives; 0 if there are none.
    group: u64,
}

impl Stretch {
    /// Notes a call. The stretch ends where a chunk of its calls would.
    pub fn note(&mut self, instance: u32) {
        if self.ends_before(instance) {
            *self = Stretch::default();
        }
        if self.calls == 0 {
            self.first = instance;
        }
        self.calls += 1;
        self.hash.write_u32(instance);
    }

    fn ends_before(&self, instance: u32) -> bool {
        self.calls >= MAX_CHUNK || self.calls >= BEAT_CHUNK && self.first == instance
    }

    /// The place of a collective of a group that is called now.
    pub fn place(&mut self, instance: u32, group: u64) -> u64 {
        if self.ends_before(instance) || self.group != 0 && self.group != group {
            *self = Stretch::default();
        }
        self.group = group;
        let mut hash = self.hash.clone();
        hash.write_u64(group);
        hash.write_u32(instance);
        hash.finish()
    }

    /// Notes that the chunk had to end.
    pub fn end(&mut self, reason: Reason) {
        let goes_on = match reason {
            Reason::Collective | Reason::CollectiveProgram => true,
            // A chunk with a collective does not end there.
            Reason::Event => self.group != 0,
            _ => false,
        };
        if !goes_on {
            *self = Stretch::default();
        }
    }

    /// Notes an upload.
    pub fn note_upload(&mut self) {
        if self.calls >= BEAT_CHUNK {
            *self = Stretch::default();
        }
    }
}
