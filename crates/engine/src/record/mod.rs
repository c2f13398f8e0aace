//! The recorder: the calls that have not run, as a chunk for each placement, and the decision when they run.

pub(crate) mod chunk;
pub(crate) mod due;
pub(crate) mod reason;
pub(crate) mod rhythm;
pub mod scopes;

use std::sync::Arc;

use crate::call::Out;
use crate::error::{Error, Result};
use crate::lines;
use crate::mode::Mode;
use crate::placement::Placement;
use crate::registry::instance::{Instance, ResultPlan};
use crate::registry::key::CallParts;
use crate::storage::Storage;
use chunk::{Chunk, Demand};
use due::{Count, Due, Replaced};
use reason::Reason;
use rhythm::Rhythm;
use scopes::Scopes;

/// A chunk of this many operators is run even when no result is needed yet.
const MAX_CHUNK: usize = 2048;

/// The same in a scope, whose calls are to become one program: somewhere a loop that was meant to be many has to end.
const MAX_JOINED: usize = 32_768;

/// A loop comes back to the operator that its chunk started with. A chunk of at least this many operators is run there,
/// so that every chunk of a loop begins at the same place, and the loop settles into the same few programs.
const BEAT_CHUNK: usize = 64;

/// When a call runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// With the calls that are recorded before and after it.
    Later,
    /// At once.
    Now,
    /// At once, and the chunk at hand stays as it is.
    Apart,
}

/// How a call is to be recorded.
pub(crate) struct Plan {
    pub when: When,
    /// Why the chunk at hand runs first, if it does.
    pub first: Option<Reason>,
    /// The scope that the chunk with the call belongs to.
    pub scope: u64,
}

pub(crate) struct Recorder {
    chunks: Vec<Chunk>,
    rhythms: Vec<Rhythm>,
    next_chunk: u64,
    pub scopes: Scopes,
    /// What the results of a chunk may take on its device.
    max_chunk_bytes: usize,
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder {
            chunks: Vec::new(),
            rhythms: Vec::new(),
            next_chunk: 0,
            scopes: Scopes::default(),
            max_chunk_bytes: usize::MAX,
        }
    }

    /// Makes room for the devices of the plugin.
    pub fn open(&mut self, devices: usize, max_chunk_bytes: usize) {
        self.chunks = (0..devices).map(|number| Chunk::new(number as u64)).collect();
        self.rhythms = (0..devices).map(|_| Rhythm::default()).collect();
        self.next_chunk = devices as u64;
        self.max_chunk_bytes = max_chunk_bytes;
    }

    /// # Errors
    /// Where the plugin has no such device.
    #[inline]
    pub fn check(&self, placement: Placement) -> Result<()> {
        match self.chunks.get(placement.device()) {
            Some(_) => Ok(()),
            None => Err(Error::runtime(format!("there is no device {placement}"))),
        }
    }

    /// The chunk at hand.
    pub fn chunk(&mut self, placement: Placement) -> Option<&mut Chunk> {
        self.chunks.get_mut(placement.device())
    }

    /// Decides how a call is recorded.
    pub fn plan(&self, instance: &Instance, parts: &CallParts, placement: Placement, mode: Mode) -> Plan {
        let chunk = &self.chunks[placement.device()];
        let scope = self.scopes.of_caller(mode);
        let (joins, is_graph) = (scope != 0, instance.compiled.is_some());
        let is_of_another = chunk.scope != 0 && chunk.scope != scope && !chunk.is_empty();
        if is_of_another && !parts.storages().any(Storage::is_pending) {
            return Plan { when: When::Apart, first: None, scope: 0 };
        }
        // What takes no value, such as the zeros of an optimizer's new state, is called in the first step only: it stays
        // out of the program, so that the first step has the program of all others.
        if joins && !is_graph && !parts.storages().any(Storage::has_value) {
            return Plan { when: When::Apart, first: None, scope: 0 };
        }
        let first = match chunk.nodes.first() {
            None => None,
            Some(_) if chunk.scope != scope => Some(Reason::CompiledGraph),
            Some(_) if joins => None,
            // A compiled graph is one program whatever is called before and after it.
            Some(_) if is_graph => Some(Reason::CompiledGraph),
            Some(first) if chunk.nodes.len() >= BEAT_CHUNK && first.instance.id == instance.id => Some(Reason::Beat),
            Some(_) => None,
        };
        let waits = joins || mode == Mode::Fused && !is_graph;
        Plan { when: if waits { When::Later } else { When::Now }, first, scope }
    }

    /// Appends a call to the chunk of a scope. Fresh results go into `outs`, with values that are still to come. Returns
    /// why the chunk is due, if it is: a call that does not wait always makes it so.
    pub fn record(
        &mut self,
        instance: &Arc<Instance>,
        parts: &CallParts,
        placement: Placement,
        scope: u64,
        waits: bool,
        random_state: [u64; 2],
        mode: Mode,
        outs: &mut [Out],
    ) -> Option<Due> {
        let has_rhythm = self.has_rhythm(mode);
        let chunk = &mut self.chunks[placement.device()];
        chunk.scope = scope;
        let key_before = chunk.key.len();
        chunk.record(instance, parts, random_state);
        if has_rhythm && chunk.nodes.len() == 1 {
            chunk.familiar = self.rhythms[placement.device()].expected(&chunk.key);
        }
        if !chunk.follow(key_before) {
            // Nobody asked for a line before the first unfamiliar operator was called: its line comes later.
            if lines::wanted() {
                chunk.add_line(lines::caller());
            } else if has_rhythm {
                lines::want(true);
            }
        }
        let (mut fresh, mut replaced, mut counts) = (0, Vec::new(), Vec::new());
        for plan in &instance.outputs {
            match plan {
                ResultPlan::Updated { storage: i, ty } => {
                    let value = chunk.add_output(*ty);
                    let old = parts.storage(*i).set_value(Some(value));
                    if !waits {
                        replaced.push((*i, Replaced::new(old, chunk)));
                    }
                }
                ResultPlan::Fresh(result) => {
                    outs[fresh] = result.out(placement, chunk.add_output(result.ty));
                    fresh += 1;
                }
                ResultPlan::Absent => {
                    outs[fresh] = Out::absent();
                    fresh += 1;
                }
                ResultPlan::Check { check, ty } => {
                    let number = chunk.add_output(*ty);
                    chunk.demands.push(Demand { number, check: Arc::clone(check), node: chunk.nodes.len() - 1 });
                }
                ResultPlan::Count { fresh, axis, ty } => {
                    counts.push(Count { fresh: *fresh, axis: *axis, number: chunk.add_output(*ty) });
                }
            }
        }
        // A program may need all of its results at once, where operators that run one by one give theirs back. In a scope
        // the user has asked for one program.
        let (most, is_large) = match scope {
            0 => (MAX_CHUNK, chunk.bytes > self.max_chunk_bytes),
            _ => (MAX_JOINED, false),
        };
        if waits && chunk.nodes.len() < most && !is_large && counts.is_empty() {
            return None;
        }
        let reason = match () {
            () if !counts.is_empty() => Reason::Size,
            () if instance.compiled.is_some() => Reason::CompiledGraph,
            () if waits && is_large => Reason::Large,
            () if waits => Reason::Full,
            () => Reason::EachOperator,
        };
        Some(Due { reason, fresh, replaced, counts })
    }

    /// Takes the chunk at hand to run it, unless it is empty. The next one begins.
    pub fn take(&mut self, placement: Placement, mode: Mode) -> Option<Chunk> {
        let has_rhythm = self.has_rhythm(mode);
        let slot = self.chunks.get_mut(placement.device()).filter(|chunk| !chunk.is_empty())?;
        let chunk = std::mem::replace(slot, Chunk::new(self.next_chunk));
        self.next_chunk += 1;
        if has_rhythm {
            let lines = || (0..chunk.nodes.len()).map(|node| chunk.line_of(node)).collect();
            self.rhythms[placement.device()].learn(&chunk.key, chunk.familiar.as_deref(), lines);
        }
        Some(chunk)
    }

    /// Empties a chunk that has run, and goes on with its memory.
    pub fn reuse(&mut self, placement: Placement, mut chunk: Chunk) {
        let slot = &mut self.chunks[placement.device()];
        chunk.reset(slot.number);
        *slot = chunk;
    }

    /// Takes the chunk at hand out of the way, for [`Recorder::put_back`].
    pub fn set_aside(&mut self, placement: Placement) -> Chunk {
        let number = self.next_chunk;
        self.next_chunk += 1;
        std::mem::replace(&mut self.chunks[placement.device()], Chunk::new(number))
    }

    pub fn put_back(&mut self, placement: Placement, chunk: Chunk) {
        self.chunks[placement.device()] = chunk;
    }

    /// Counts an upload, whose memory the chunk at hand may hold until it has run. Returns why the chunk runs first, if it
    /// does.
    pub fn upload(&mut self, placement: Placement, bytes: usize) -> Option<Reason> {
        let chunk = self.chunks.get_mut(placement.device()).filter(|chunk| !chunk.is_empty())?;
        chunk.bytes += bytes;
        match () {
            () if chunk.bytes > self.max_chunk_bytes => Some(Reason::Large),
            // A training loop uploads a batch at the start of each step: a good place to cut.
            () if chunk.nodes.len() >= BEAT_CHUNK => Some(Reason::Upload),
            () => None,
        }
    }

    /// Whether something is recorded that was not recorded before.
    pub fn is_unfamiliar(&self) -> bool {
        self.chunks.iter().any(|chunk| !chunk.is_empty() && chunk.familiar.is_none())
    }

    /// Whether chunks are what a loop records. Otherwise the mode makes a chunk of each call.
    fn has_rhythm(&self, mode: Mode) -> bool {
        mode == Mode::Fused || !self.scopes.is_empty() && mode != Mode::Debug
    }
}
