//! The road of a call: it is recorded in the device's chunk, and the mode says when that runs.

use std::sync::Arc;

use crate::cache;
use crate::call::{Arg, Generator, Out};
use crate::checks::Pledge;
use crate::chunk::Chunk;
use crate::constants;
use crate::engine::{Engine, Mode, Status};
use crate::error::{Error, ErrorKind, Result};
use crate::explain::Reason;
use crate::host;
use crate::instance::{Instance, ResultPlan};
use crate::key::CallParts;
use crate::lines;
use crate::platform::Platform;
use crate::storage::{Storage, Value};

/// A chunk of this many operators is run even when no result is needed yet.
const MAX_CHUNK: usize = 2048;

/// The same where the user asked for one program: somewhere a loop that was meant to be many has to end.
const MAX_JOINED: usize = 32_768;

/// A chunk of at least this many operators is run where the program's rhythm allows: see
/// [`Engine::flush_at_beat`].
pub(crate) const BEAT_CHUNK: usize = 64;

/// What the results of a chunk may take on its device: half of its memory, unless `TORCHTPU_CHUNK_BYTES` says otherwise.
pub(crate) fn max_chunk_bytes(platform: &Platform) -> usize {
    let total = platform.memory(0).map_or(0, |(_, total)| total);
    let bytes = cache::chunk_bytes().or((total > 0).then_some(total / 2));
    bytes.map_or(usize::MAX, |bytes| bytes as usize)
}

impl Engine {
    /// Calls an operator or a compiled graph. Fresh results go into `outs`.
    ///
    /// # Errors
    /// In Debug and Strict when the operator cannot run: the arguments are then as they were. In Strict while programs
    /// are being compiled, and in Fused, whoever reads a result is told instead.
    pub fn call(
        &mut self,
        op: u32,
        args: &[Arg],
        device: usize,
        default_generator: Option<&mut Generator>,
        outs: &mut [Out],
    ) -> Result<Status> {
        if !self.operators[op as usize].accepts(args) {
            return Ok(Status::Refused(self.operators[op as usize].refusal()));
        }
        if let Some(compiled) = self.operators[op as usize].compiled.clone()
            && compiled.graph.bounds.is_some()
        {
            return self.call_bounded(&compiled, op, args, device, default_generator, outs);
        }
        self.unpad(args)?;
        match self.instance_of(op, args)? {
            Some(instance) => self.call_instance(&instance, device, default_generator, outs),
            None => Ok(Status::NewKey),
        }
    }

    /// What a call's key is lowered to; a compiled graph is lowered when a key is new.
    pub(crate) fn instance_of(&mut self, op: u32, args: &[Arg]) -> Result<Option<Arc<Instance>>> {
        let mut found = self.find(op, args);
        if found.is_none() && self.operators[op as usize].compiled.is_some() {
            self.define(op, args, None, 0)?;
            found = self.find(op, args);
        }
        Ok(found)
    }

    /// Calls what [`Engine::instance_of`] has just found.
    pub(crate) fn call_instance(
        &mut self,
        instance: &Arc<Instance>,
        device: usize,
        default_generator: Option<&mut Generator>,
        outs: &mut [Out],
    ) -> Result<Status> {
        if !instance.is_runnable() {
            return Ok(Status::OtherSizes);
        }
        let fresh = instance.outputs.iter().filter(|o| matches!(o, ResultPlan::Fresh(_) | ResultPlan::Absent)).count();
        if fresh > outs.len() {
            return Ok(Status::NeedsRoom(fresh));
        }
        for check in instance.number_checks() {
            check.check(self.parts.scalars[check.index].0)?;
        }
        let begun = self.explain_call();
        let parts = std::mem::take(&mut self.parts);
        let result = self.record(instance, &parts, device, default_generator, outs);
        self.parts = parts;
        self.explain_called(begun);
        result.map(|()| Status::Done(fresh))
    }

    fn record(
        &mut self,
        instance: &Arc<Instance>,
        parts: &CallParts,
        device: usize,
        default_generator: Option<&mut Generator>,
        outs: &mut [Out],
    ) -> Result<()> {
        self.runtime()?;
        self.op_stats.operators += 1;
        if instance.decomposed {
            *self.op_stats.decomposed.entry(instance.operator.to_string()).or_default() += 1;
        }
        // SAFETY: the storages are those of the call's tensor arguments, alive during the call.
        let storage = |i: usize| unsafe { &*parts.storages[i] };
        for i in 0..parts.storages.len() {
            self.settle(storage(i), device)?;
        }
        let scope = self.scope();
        let joins = scope != 0;
        let takes = |is: fn(&Storage) -> bool| (0..parts.storages.len()).any(|i| is(storage(i)));
        let is_of_another = self.is_recorded_by_another(device, scope) && !takes(Storage::is_pending);
        let makes_of_nothing = joins && instance.compiled.is_none() && !takes(|storage| storage.value().is_some());
        if is_of_another || makes_of_nothing {
            // Were what makes something of nothing in the program, the first step of a training, which makes the
            // optimizer's state, would be another program than all others.
            return self
                .record_apart(device, |engine| engine.run_now(instance, parts, device, default_generator, outs));
        }
        if self.chunks.get(device).is_some_and(|chunk| chunk.scope != scope) {
            self.flush(device, Reason::CompiledGraph)?;
            self.chunks[device].scope = scope;
        }
        if !joins {
            // A compiled graph is one program whatever surrounds it: what is recorded runs before it.
            match instance.compiled {
                Some(_) => self.flush(device, Reason::CompiledGraph)?,
                None => self.flush_at_beat(instance, device)?,
            }
        }
        if joins || self.mode == Mode::Fused && instance.compiled.is_none() {
            return self.record_in_chunk(instance, parts, device, default_generator, outs, true);
        }
        self.run_now(instance, parts, device, default_generator, outs)
    }

    /// Runs a call by itself, unless its results are there.
    fn run_now(
        &mut self,
        instance: &Arc<Instance>,
        parts: &CallParts,
        device: usize,
        default_generator: Option<&mut Generator>,
        outs: &mut [Out],
    ) -> Result<()> {
        if !instance.is_constant || self.mode == Mode::Debug {
            return self.record_in_chunk(instance, parts, device, default_generator, outs, false);
        }
        let key = constants::key_of(instance, device, parts);
        if let Some(buffers) = self.constants.get(&key) {
            constants::write(buffers, instance, device, parts, outs);
            return Ok(());
        }
        self.record_in_chunk(instance, parts, device, default_generator, outs, false)?;
        if let Some(values) = constants::written(instance, parts, outs) {
            self.constants.insert(key, values);
        }
        Ok(())
    }

    /// Records a call. Unless it `waits`, it runs at once.
    fn record_in_chunk(
        &mut self,
        instance: &Arc<Instance>,
        parts: &CallParts,
        device: usize,
        default_generator: Option<&mut Generator>,
        outs: &mut [Out],
        waits: bool,
    ) -> Result<()> {
        // SAFETY: as for `record`.
        let storage = |i: usize| unsafe { &*parts.storages[i] };
        let random_state = draw(instance, parts, default_generator);
        let has_rhythm = self.has_rhythm();
        let Some(chunk) = self.chunks.get_mut(device) else {
            return Err(Error::runtime(format!("there is no device tpu:{device}")));
        };
        let key_before = chunk.key.len();
        chunk.record(instance, |i| storage(i).value(), &parts.scalars, &parts.offsets, random_state);
        if has_rhythm && chunk.nodes.len() == 1 {
            chunk.familiar = self.rhythms[device].expected(chunk);
        }
        if !chunk.follow(key_before) {
            // The first unfamiliar operator was called before anyone asked for lines: its line comes later.
            let asked = lines::wanted();
            if asked {
                chunk.add_line(lines::caller());
            } else if has_rhythm {
                lines::want(true);
            }
        }
        let mut replaced = Vec::new();
        let mut fresh = 0;
        let mut counts = Vec::new();
        for plan in &instance.outputs {
            match plan {
                ResultPlan::Updated { storage: i, ty } => {
                    let value = chunk.add_output(*ty);
                    let old = storage(*i).set_value(Some(value));
                    if !waits {
                        replaced.push((*i, Replaced::new(old, chunk)));
                    }
                }
                ResultPlan::Fresh(result) => {
                    outs[fresh] = result.out(device, chunk.add_output(result.ty));
                    fresh += 1;
                }
                ResultPlan::Absent => {
                    outs[fresh] = Out::absent();
                    fresh += 1;
                }
                ResultPlan::Check(check) => {
                    let number = chunk.add_output(self.ty_of_count);
                    chunk.checks.push(Pledge { number, check: Arc::clone(check), node: chunk.nodes.len() - 1 });
                }
                ResultPlan::Count { fresh, axis } => counts.push((*fresh, *axis, chunk.add_output(self.ty_of_count))),
            }
        }
        // A program may need all of its results at once, where operators that run one by one give theirs back. Who asks
        // for one program gets it.
        let (most, is_large) = match chunk.scope {
            0 => (MAX_CHUNK, chunk.bytes > self.max_chunk_bytes),
            _ => (MAX_JOINED, false),
        };
        if waits && chunk.nodes.len() < most && !is_large && counts.is_empty() {
            return Ok(());
        }
        let reason = match () {
            () if !counts.is_empty() => Reason::Size,
            () if instance.compiled.is_some() => Reason::CompiledGraph,
            () if waits && is_large => Reason::Large,
            () if waits => Reason::Full,
            () => Reason::EachOperator,
        };
        let flushed = if counts.is_empty() { self.flush(device, reason) } else { self.launch_all(device, reason) };
        let result = flushed.and_then(|()| narrow(&counts, outs));
        if let Err(error) = result {
            // The call did not happen: results go, and arguments get their values back.
            outs[..fresh].iter().for_each(release);
            for (i, old) in replaced {
                if storage(i).value().is_some_and(|value| value.is_failed()) {
                    storage(i).set_value(match old {
                        Replaced::Input(index) => self.failed_inputs.get(index as usize).cloned(),
                        Replaced::Value(value) => value,
                    });
                }
            }
            self.failed_inputs.clear();
            return Err(error);
        }
        Ok(())
    }

    /// Whether chunks are what a loop records, not what the mode makes of single calls.
    pub(crate) fn has_rhythm(&self) -> bool {
        self.mode == Mode::Fused || !self.joining.is_empty() && self.mode != Mode::Debug
    }

    /// Says who made the last call, where nobody had asked before it was made.
    pub fn locate_last_call(&mut self, device: usize) {
        let Some(recorded) = self.chunks.get_mut(device) else { return };
        let chunk = match self.queues[device].back_mut() {
            // In Strict it is queued already.
            Some(launch) if recorded.is_empty() => &mut launch.chunk,
            _ => recorded,
        };
        if chunk.lacks_line() {
            chunk.add_line(lines::caller());
        }
        self.update_wanted_lines();
    }

    /// A loop comes back to the operator that its chunk started with. Cutting there makes every chunk of
    /// a loop begin at the same place, so that the loop settles into the same few programs.
    fn flush_at_beat(&mut self, next: &Instance, device: usize) -> Result<()> {
        match self.chunks.get(device) {
            Some(chunk) if chunk.nodes.len() >= BEAT_CHUNK && chunk.nodes[0].instance.id == next.id => {
                self.flush(device, Reason::Beat)
            }
            _ => Ok(()),
        }
    }

    /// Makes sure that a value which another device's chunk has yet to compute is there.
    fn settle(&mut self, storage: &Storage, device: usize) -> Result<()> {
        let elsewhere = storage.device != device;
        if elsewhere && storage.value().is_some_and(|value| !value.is_there()) {
            self.launch_all(storage.device, Reason::OtherDevice)?;
        }
        Ok(())
    }

    // ---- copies the engine makes itself ----------------------------------------------------------

    /// Writes `source` into `destination`, of the same sizes, on one device.
    pub(crate) fn copy(&mut self, destination: Arg, source: Arg, device: usize) -> Result<()> {
        self.call_defined(self.copy_operator, &[destination, source], device, &mut [])
    }

    /// A dense row-major copy of a tensor. The result owns a reference.
    pub(crate) fn contiguous(&mut self, tensor: Arg, device: usize) -> Result<Arc<Storage>> {
        let mut outs = [Out::absent()];
        self.call_defined(self.clone_operator, &[tensor], device, &mut outs)?;
        // SAFETY: the call put a storage there, whose reference is ours.
        Ok(unsafe { Arc::from_raw(outs[0].storage()) })
    }

    fn call_defined(&mut self, op: u32, args: &[Arg], device: usize, outs: &mut [Out]) -> Result<()> {
        self.define(op, args, None, 0)?;
        match self.call(op, args, device, None, outs)? {
            Status::Done(_) => Ok(()),
            status => Err(Error::runtime(format!("internal error: a copy ended with {status:?}"))),
        }
    }
}

/// A written argument's old value, for the case that the call fails. An input of the chunk is left to
/// the chunk, since another reference would keep its buffer from being donated.
enum Replaced {
    Input(u32),
    Value(Option<Arc<Value>>),
}

impl Replaced {
    fn new(old: Option<Arc<Value>>, chunk: &Chunk) -> Replaced {
        match old.as_ref().and_then(|value| chunk.input_index(value)) {
            Some(index) => Replaced::Input(index),
            None => Replaced::Value(old),
        }
    }
}

fn draw(instance: &Instance, parts: &CallParts, default_generator: Option<&mut Generator>) -> [u64; 2] {
    let blocks = instance.random_blocks();
    if blocks == 0 {
        return [0; 2];
    }
    // SAFETY: the generator is an argument of the call, locked by its caller.
    let explicit = parts.generator.map(|generator| unsafe { &mut *generator });
    let Some(generator) = explicit.or(default_generator) else { return [0; 2] };
    let state = [generator.seed, generator.offset];
    generator.offset = generator.offset.wrapping_add(blocks);
    state
}

fn release(out: &Out) {
    if !out.storage().is_null() {
        // SAFETY: the call put its own reference there and nobody has taken it.
        drop(unsafe { Arc::from_raw(out.storage()) });
    }
}

/// Results of which the data decided a size show only what is real.
fn narrow(counts: &[(usize, usize, Arc<Value>)], outs: &mut [Out]) -> Result<()> {
    thread_local! {
        // Read by the caller right after the call.
        static SIZES: std::cell::RefCell<Vec<Vec<i64>>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    if counts.is_empty() {
        return Ok(());
    }
    SIZES.with_borrow_mut(|kept| {
        kept.clear();
        for (fresh, axis, value) in counts {
            let count = host::read_i64(value)?;
            let out = &mut outs[*fresh];
            // SAFETY: `sizes` points to `ndim` sizes of the instance.
            let mut sizes = unsafe { std::slice::from_raw_parts(out.sizes, out.ndim as usize) }.to_vec();
            let Some(size) = sizes.get_mut(*axis) else {
                return Err(Error::new(ErrorKind::Runtime, "internal error: a counted result without dimensions"));
            };
            *size = count;
            // The storage holds more than it shows; whoever takes all of it, such as a nested tensor, must get no more.
            if *axis == 0 {
                out.nbytes = sizes.iter().product::<i64>() as usize * crate::call::held(out.dtype)?.size_bytes();
            }
            kept.push(sizes);
            out.sizes = kept[kept.len() - 1].as_ptr();
        }
        Ok(())
    })
}
