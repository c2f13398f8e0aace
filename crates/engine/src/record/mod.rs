//! The recorder: a chunk of calls that have not run for each placement, and when a chunk is due.

pub(crate) mod chunk;
pub(crate) mod due;
mod pieces;
pub(crate) mod reason;
pub(crate) mod rhythm;
pub mod scopes;
mod stretch;
mod wiring;

use std::sync::Arc;

use crate::agreement::Called;
use crate::call::Out;
use crate::error::{Error, Result};
use crate::lines;
use crate::mode::Mode;
use crate::placement::Placement;
use crate::registry::instance::{Instance, ResultPlan};
use crate::registry::key::CallParts;
use crate::storage::Storage;
use chunk::{Chunk, DataCheck};
use due::{Count, Due, Replaced};
use reason::Reason;
use rhythm::Rhythm;
use scopes::Scopes;
use stretch::Stretch;
use wiring::Wirings;

/// A chunk with this many operators runs even if no result is needed yet.
const MAX_CHUNK: usize = 2048;

/// The limit in a scope, whose calls should become one program. It stops endless loops.
const MAX_JOINED: usize = 32_768;

/// A loop returns to the operator that its chunk started with. A chunk with at least this many operators ends there,
/// so that all chunks of a loop begin at the same call, and the loop settles on a few programs.
const BEAT_CHUNK: usize = 64;

/// When a call runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// Together with calls recorded before and after it.
    Later,
    /// At once.
    Now,
    /// At once. The current chunk is unchanged.
    Apart,
}

/// How to record a call.
pub(crate) struct Plan {
    pub when: When,
    /// Why the current chunk runs first, if it does.
    pub first: Option<Reason>,
    /// The scope of the chunk that the call is recorded in.
    pub scope: u64,
}

pub(crate) struct Recorder {
    chunks: Vec<Chunk>,
    rhythms: Vec<Rhythm>,
    stretches: Vec<Stretch>,
    next_chunk: u64,
    wirings: Wirings,
    pub scopes: Scopes,
    /// The collective that is being called.
    pub calling: Option<Called>,
    /// The limit of the results of a chunk in bytes.
    max_chunk_bytes: usize,
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder {
            chunks: Vec::new(),
            rhythms: Vec::new(),
            stretches: Vec::new(),
            next_chunk: 0,
            wirings: Wirings::default(),
            scopes: Scopes::default(),
            calling: None,
            max_chunk_bytes: usize::MAX,
        }
    }

    /// Creates chunks for the devices of the plugin.
    pub fn open(&mut self, devices: usize, max_chunk_bytes: usize) {
        self.chunks = (0..devices).map(|number| Chunk::new(number as u64)).collect();
        self.rhythms = (0..devices).map(|_| Rhythm::default()).collect();
        self.stretches = (0..devices).map(|_| Stretch::default()).collect();
        self.next_chunk = devices as u64;
        self.max_chunk_bytes = max_chunk_bytes;
    }

    /// # Errors
    /// If the plugin has no such device.
    #[inline]
    pub fn check(&self, placement: Placement) -> Result<()> {
        match self.chunks.get(placement.device()) {
            Some(_) => Ok(()),
            None => Err(Error::runtime(format!("there is no device {placement}"))),
        }
    }

    /// The current chunk.
    pub fn chunk(&mut self, placement: Placement) -> Option<&mut Chunk> {
        self.chunks.get_mut(placement.device())
    }

    /// Decides how to record a call.
    pub fn plan(
        &self,
        instance: &Instance,
        parts: &CallParts,
        placement: Placement,
        runs_by_itself: bool,
        mode: Mode,
    ) -> Plan {
        let chunk = &self.chunks[placement.device()];
        let scope = self.scopes.of_caller(mode);
        let (joins, is_graph) = (scope != 0, instance.compiled.is_some());
        // A collective needs no agreement of the ranks on the calls around it, unless they have promised it.
        if !instance.replicas().is_empty() && !self.is_inside(instance.replicas(), placement, mode) {
            return Plan { when: When::Apart, first: None, scope: 0 };
        }
        // Calls that another thread recorded in a scope, or in Fused while this call's mode runs it at once.
        let is_of_another =
            !chunk.is_empty() && (chunk.scope != 0 && chunk.scope != scope || !joins && mode != Mode::Fused);
        if is_of_another && !parts.storages().any(Storage::is_pending) {
            return Plan { when: When::Apart, first: None, scope: 0 };
        }
        // A call that takes no value, such as the zeros of an optimizer's new state, happens only in the first step.
        // It stays out of the program, so that the first step has the same program as the others.
        if joins && !is_graph && !parts.storages().any(Storage::has_value) {
            return Plan { when: When::Apart, first: None, scope: 0 };
        }
        let first = match chunk.nodes.first() {
            None => None,
            Some(_) if chunk.scope != scope => Some(Reason::CompiledGraph),
            Some(_) if joins => None,
            Some(_) if mode != Mode::Fused => Some(Reason::Mode),
            Some(_) if runs_by_itself => Some(Reason::LongList),
            // A compiled graph is its own program, independent of other calls.
            Some(_) if is_graph => Some(Reason::CompiledGraph),
            Some(_) if self.is_beat(placement, instance) => Some(Reason::Beat),
            Some(_) => None,
        };
        let waits = joins || mode == Mode::Fused && !is_graph && !runs_by_itself;
        Plan { when: if waits { When::Later } else { When::Now }, first, scope }
    }

    /// Whether a collective of these devices becomes a part of the caller's program, as all ranks have promised to run it.
    pub fn is_inside(&self, replicas: &[i64], placement: Placement, mode: Mode) -> bool {
        let chunk = &self.chunks[placement.device()];
        self.scopes.is_spmd(mode) && (chunk.scope != self.scopes.of_caller(mode) || chunk.takes(replicas))
    }

    /// The number of the current chunk, if it is a program of the caller's that all ranks have promised to run, or has
    /// collectives that have joined it.
    pub fn chunk_of_all_ranks(&self, placement: Placement, mode: Mode) -> Option<u64> {
        let chunk = self.chunks.get(placement.device()).filter(|chunk| !chunk.is_empty())?;
        let is_promised = self.scopes.is_spmd(mode) && chunk.scope == self.scopes.of_caller(mode);
        (is_promised || chunk.group.is_some()).then_some(chunk.number)
    }

    /// The number of the current chunk, unless it is empty.
    pub fn chunk_at_hand(&self, placement: Placement) -> Option<u64> {
        self.chunks.get(placement.device()).filter(|chunk| !chunk.is_empty()).map(|chunk| chunk.number)
    }

    /// The process group of the collectives that have joined the current chunk.
    pub fn group(&self, placement: Placement) -> Option<u64> {
        self.chunks.get(placement.device())?.group
    }

    /// How many collectives have joined the current chunk.
    pub fn joined(&self, placement: Placement) -> usize {
        self.chunks[placement.device()].places.len()
    }

    /// Whether a collective of a group could join the current chunk. What a chunk takes from jobs of the host may depend on
    /// this collective on other ranks, so it does not join such a chunk.
    pub fn can_join(&self, placement: Placement, group: u64, mode: Mode) -> bool {
        let chunk = &self.chunks[placement.device()];
        let is_free = chunk.scope == 0 && chunk.group.is_none_or(|joined| joined == group);
        mode == Mode::Fused && self.scopes.of_caller(mode) == 0 && is_free && !chunk.takes_job
    }

    /// The place of a collective that is called now.
    pub fn place(&mut self, placement: Placement, instance: &Instance, group: u64) -> u64 {
        self.stretches[placement.device()].place(instance.id, group)
    }

    /// Whether a loop has come back to the first call of the current chunk.
    pub fn is_beat(&self, placement: Placement, instance: &Instance) -> bool {
        let nodes = &self.chunks[placement.device()].nodes;
        nodes.len() >= BEAT_CHUNK && nodes[0].instance.id == instance.id
    }

    /// A collective in a place joins the current chunk.
    pub fn join(&mut self, placement: Placement, group: u64, place: u64) {
        let chunk = &mut self.chunks[placement.device()];
        chunk.group = Some(group);
        chunk.places.push(place);
    }

    /// Notes that the current chunk, which may be empty, had to end.
    pub fn end_stretch(&mut self, placement: Placement, reason: Reason) {
        if let Some(stretch) = self.stretches.get_mut(placement.device()) {
            stretch.end(reason);
        }
    }

    /// Appends a call to the chunk of a scope. Stores fresh results with pending values in `outs`. Returns why the
    /// chunk is due, if it is; a call that runs at once always makes it due.
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
        self.stretches[placement.device()].note(instance.id);
        let key_before = chunk.key.len();
        chunk.record(instance, parts, random_state);
        if !instance.replicas().is_empty() {
            chunk.calls.extend(self.calling.take());
        }
        if has_rhythm && chunk.nodes.len() == 1 {
            chunk.familiar = self.rhythms[placement.device()].expected(&chunk.key);
        }
        let follows = chunk.follow(key_before);
        if lines::wanted() {
            chunk.add_line(lines::caller());
        } else if !follows && has_rhythm {
            // The line of this first unfamiliar operator was not requested before the call, so it is added later.
            lines::want(true);
        }
        let (mut fresh, mut replaced, mut counts) = (0, Vec::new(), Vec::new());
        for plan in &instance.outputs {
            match plan {
                ResultPlan::Updated { storage: i, ty, layout } => {
                    let value = chunk.add_output(*ty);
                    let old = match layout {
                        Some(layout) => parts.storage(*i).set_padded(layout.padded(placement, value)),
                        None => parts.storage(*i).set_value(Some(value)),
                    };
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
                    chunk.checks.push(DataCheck { number, check: Arc::clone(check), node: chunk.nodes.len() - 1 });
                }
                ResultPlan::Count { fresh, axis, others, ty } => {
                    let (fresh, axis, others) = (*fresh, *axis, others.clone());
                    counts.push(Count { fresh, axis, others, number: chunk.add_output(*ty) });
                }
            }
        }
        // A program may need all of its results at once, while operators that run one by one free theirs. In a scope
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
            () if waits && is_large => Reason::Large,
            () if waits => Reason::Full,
            () if !instance.replicas().is_empty() && self.scopes.is_spmd(mode) => Reason::OtherGroup,
            () if !instance.replicas().is_empty() => Reason::CollectiveProgram,
            () if instance.compiled.is_some() => Reason::CompiledGraph,
            () => Reason::EachOperator,
        };
        Some(Due { reason, fresh, replaced, counts })
    }

    /// Takes the current chunk to run it, unless it is empty. A new chunk begins.
    pub fn take(&mut self, placement: Placement, mode: Mode) -> Option<Chunk> {
        let has_rhythm = self.has_rhythm(mode);
        let slot = self.chunks.get_mut(placement.device()).filter(|chunk| !chunk.is_empty())?;
        let mut chunk = std::mem::replace(slot, Chunk::new(self.next_chunk));
        self.next_chunk += 1;
        if has_rhythm {
            let lines = || (0..chunk.nodes.len()).map(|node| chunk.line_of(node)).collect();
            self.rhythms[placement.device()].learn(&chunk.key, chunk.familiar.as_deref(), lines);
        }
        chunk.join_sizes(&mut self.wirings);
        Some(chunk)
    }

    /// Empties a chunk that has run, and reuses its memory.
    pub fn reuse(&mut self, placement: Placement, mut chunk: Chunk) {
        let slot = &mut self.chunks[placement.device()];
        chunk.reset(slot.number);
        *slot = chunk;
    }

    /// A chunk that is not the current one of any placement.
    pub fn new_chunk(&mut self) -> Chunk {
        let number = self.next_chunk;
        self.next_chunk += 1;
        Chunk::new(number)
    }

    /// Moves the current chunk aside until [`Recorder::put_back`].
    pub fn set_aside(&mut self, placement: Placement) -> Chunk {
        let chunk = self.new_chunk();
        std::mem::replace(&mut self.chunks[placement.device()], chunk)
    }

    pub fn put_back(&mut self, placement: Placement, chunk: Chunk) {
        self.chunks[placement.device()] = chunk;
    }

    /// Counts an upload, whose memory the current chunk may hold until it has run. Returns why the chunk runs first,
    /// if it does. The chunk of a scope goes on, as in [`Recorder::record`].
    pub fn upload(&mut self, placement: Placement, bytes: usize) -> Option<Reason> {
        self.stretches.get_mut(placement.device())?.note_upload();
        let chunk = self.chunks.get_mut(placement.device()).filter(|chunk| !chunk.is_empty() && chunk.scope == 0)?;
        chunk.bytes += bytes;
        match () {
            () if chunk.bytes > self.max_chunk_bytes => Some(Reason::Large),
            // A training loop uploads a batch at the start of each step, which is a good place to end a chunk.
            () if chunk.nodes.len() >= BEAT_CHUNK => Some(Reason::Upload),
            () => None,
        }
    }

    /// Whether calls are recorded that were not recorded before.
    pub fn is_unfamiliar(&self) -> bool {
        self.chunks.iter().any(|chunk| !chunk.is_empty() && chunk.familiar.is_none())
    }

    /// Whether chunks follow the rhythm of a loop. Otherwise each call is its own chunk.
    fn has_rhythm(&self, mode: Mode) -> bool {
        mode == Mode::Fused || self.scopes.has_joins() && mode != Mode::Debug
    }
}
