//! An operator call: find the instance, record the call, and submit the chunk when it is due.

use std::sync::Arc;
use std::time::Instant;

use aten::Graph;

use crate::call::{Arg, Generator, Meta, Out, TensorArg};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::growth::{Changing, any_changes};
use crate::long_lists::{groups, is_divided};
use crate::mode::Mode;
use crate::padded::any_live;
use crate::placement::Placement;
use crate::record::When;
use crate::record::due::Due;
use crate::record::reason::Reason;
use crate::registry::Definition;
use crate::registry::instance::Instance;
use crate::registry::key::CallParts;
use crate::run::{Failure, constants};
use crate::storage::Storage;

/// The outcome of a call that did not fail.
#[derive(Debug)]
pub enum Status {
    /// Recorded, or run. This many fresh results exist.
    Done(usize),
    /// The key is new: [`Engine::define`] must lower it.
    NewKey,
    /// The operator does not accept these numbers, with the error.
    Refused(Error),
    /// Written arguments must be resized first: [`Engine::result_sizes`] gives the sizes.
    OtherSizes,
    /// The caller must provide space for this many fresh results.
    NeedsRoom(usize),
}

/// The outcome of a definition that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defined {
    Lowered,
    /// The table has no row for the operator.
    NoRow,
}

/// A call whose instance was found.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub instance: &'a Arc<Instance>,
    pub parts: &'a CallParts,
    pub placement: Placement,
    /// Whether it never joins the chunk at hand.
    pub runs_by_itself: bool,
}

impl Engine {
    // ---- find ------------------------------------------------------------------------------------

    /// Calls an operator or a compiled graph. Fresh results are stored in `outs`.
    ///
    /// # Errors
    /// In Debug and Strict if the operator cannot run; the arguments are then unchanged. In Fused, and in Strict
    /// during compilation, a read of the results raises the error instead.
    pub fn call(
        &mut self,
        op: u32,
        args: &[Arg],
        placement: Placement,
        default_generator: Option<&mut Generator>,
        outs: &mut [Out],
    ) -> Result<Status> {
        let operator = self.registry.operator(op);
        if !operator.accepts(args) {
            return Ok(Status::Refused(operator.refusal()));
        }
        if is_divided(operator, args) {
            self.unpad(args)?;
            let groups = groups(self.registry.operator(op), args);
            return self.call_groups(op, &groups, placement, default_generator, outs);
        }
        let bounded = operator.compiled.as_ref().filter(|compiled| compiled.graph.bounds.is_some()).map(Arc::clone);
        let mut parts = std::mem::take(&mut self.spare_parts);
        let status = match bounded {
            Some(compiled) => self.call_bounded(&compiled, op, args, &mut parts, placement, default_generator, outs),
            None => self.find_with_values(op, args, &mut parts).and_then(|found| match found {
                Some(instance) => {
                    let found = Found { instance: &instance, parts: &parts, placement, runs_by_itself: false };
                    self.call_found(found, default_generator, outs)
                }
                None => Ok(Status::NewKey),
            }),
        };
        self.spare_parts = parts;
        if let Ok(Status::Done(fresh)) = status {
            // SAFETY: the call stored a storage there, which lives.
            let made = (fresh == 1).then(|| outs.first()).flatten().and_then(|out| unsafe { out.storage().as_ref() });
            self.registry.growth.note_created(made);
        }
        status
    }

    /// Splits a call into its parts, and finds the instance of its key. Lowers a compiled graph for a new key.
    pub(crate) fn find(&mut self, op: u32, args: &[Arg], parts: &mut CallParts) -> Result<Option<Arc<Instance>>> {
        let found = self.registry.find(op, args, parts);
        if found.is_none() && self.registry.operator(op).compiled.is_some() {
            self.define(op, args, None, 0)?;
            return Ok(self.registry.find(op, args, parts));
        }
        Ok(found)
    }

    /// [`Engine::find`] of a call that takes exact or padded values. The arguments then have the values that the
    /// instance takes.
    pub(crate) fn find_with_values(
        &mut self,
        op: u32,
        args: &[Arg],
        parts: &mut CallParts,
    ) -> Result<Option<Arc<Instance>>> {
        parts.is_exact = self.registry.operator(op).compiled.is_some();
        if parts.is_exact {
            self.unpad(args)?;
        }
        let mut found = self.find_unrefused(op, args, parts)?;
        if found.is_none() && self.registry.needs_exact(&parts.key) {
            self.unpad(args)?;
            parts.is_exact = true;
            found = self.find_unrefused(op, args, parts)?;
        }
        if let Some(instance) = &found {
            self.give_values(instance, parts)?;
        }
        Ok(found)
    }

    /// [`Engine::find`] of a call whose program the compiler takes. Forgets an instance whose program it refuses.
    pub(crate) fn find_unrefused(
        &mut self,
        op: u32,
        args: &[Arg],
        parts: &mut CallParts,
    ) -> Result<Option<Arc<Instance>>> {
        let found = self.find(op, args, parts)?;
        if found.as_ref().is_some_and(|instance| instance.refusal().is_some()) {
            self.registry.forget(&parts.key);
            return Ok(None);
        }
        Ok(found)
    }

    /// Makes the values that an instance takes. Exact arguments get padding if their sizes are inputs of its program.
    pub(crate) fn give_values(&mut self, instance: &Instance, parts: &CallParts) -> Result<()> {
        if instance.is_sized() || parts.storages().any(Storage::is_only_padded) {
            self.pad_arguments(instance, parts)?;
        }
        Ok(())
    }

    /// The instance of a new key whose changing sizes are inputs of its program; else why there is none. `None` if no
    /// size changes.
    fn define_sized(
        &mut self,
        op: u32,
        args: &[Arg],
        metas: Option<&[Meta]>,
        changing: &[Changing],
        parts: &mut CallParts,
    ) -> Result<Option<std::result::Result<Arc<Instance>, String>>> {
        let is_meant = any_changes(changing) || any_live() || parts.storages().any(Storage::has_padding);
        if self.registry.growth.is_on() && is_meant {
            let target = self.runtime()?.platform.target;
            return self.registry.define_sized(op, args, parts, metas, changing, target).map(Some);
        }
        Ok(None)
    }

    /// Lowers a new key. `graph` is the handle of the operator's traced decomposition, or 0.
    ///
    /// # Errors
    /// If the call is refused or cannot be lowered.
    pub fn define(&mut self, op: u32, args: &[Arg], metas: Option<&[Meta]>, graph: u64) -> Result<Defined> {
        let graph = self.registry.take_graph(graph);
        if is_divided(self.registry.operator(op), args) {
            self.unpad(args)?;
            let groups = groups(self.registry.operator(op), args);
            return self.define_groups(op, args, &groups, metas);
        }
        self.define_call(op, args, metas, graph, false)
    }

    /// [`Engine::define`] of a call that is not divided into groups.
    pub(crate) fn define_call(
        &mut self,
        op: u32,
        args: &[Arg],
        metas: Option<&[Meta]>,
        graph: Option<Arc<Graph>>,
        is_exact: bool,
    ) -> Result<Defined> {
        let is_exact = is_exact || self.registry.operator(op).compiled.is_some();
        let mut parts = CallParts::default();
        parts.is_exact = is_exact;
        if self.registry.find(op, args, &mut parts).is_some() {
            return Ok(Defined::Lowered);
        }
        let (mut why_exact, mut changing) = (None, Vec::new());
        if graph.is_none() && !is_exact {
            if let Some(metas) = metas
                && self.pad_what_grows(op, args, metas)?
                && self.registry.find(op, args, &mut parts).is_some()
            {
                return Ok(Defined::Lowered);
            }
            changing = self.changing_sizes(op, args, metas);
            match self.define_sized(op, args, metas, &changing, &mut parts)? {
                Some(Ok(instance)) => {
                    self.observer.note_new_call(&instance, None, self.registry.instances());
                    return Ok(Defined::Lowered);
                }
                Some(Err(reason)) => why_exact = Some(reason),
                None => {}
            }
        }
        let has_padding = parts.storages().any(Storage::has_padding);
        why_exact = why_exact.filter(|_| has_padding || any_changes(&changing));
        if !parts.is_exact {
            if has_padding {
                self.registry.note_needs_exact(&parts.key);
            }
            self.unpad(args)?;
            parts.is_exact = true;
            if let Some(instance) = self.registry.find(op, args, &mut parts) {
                self.registry.share(op, args, instance);
                return Ok(Defined::Lowered);
            }
        }
        let target = self.runtime()?.platform.target;
        match self.registry.define(op, args, &mut parts, metas, graph, target)? {
            Definition::New(instance) => {
                self.observer.note_new_call(&instance, why_exact.as_deref(), self.registry.instances());
                self.registry.share(op, args, instance);
                Ok(Defined::Lowered)
            }
            Definition::NoRow => Ok(Defined::NoRow),
        }
    }

    /// The sizes that written arguments need after [`Status::OtherSizes`], in their order. Empty if no argument
    /// changes.
    pub fn result_sizes(&mut self, op: u32, args: &[Arg]) -> Vec<Meta> {
        let mut parts = CallParts::default();
        let found = self.registry.find(op, args, &mut parts).or_else(|| {
            parts.is_exact = true;
            self.registry.find(op, args, &mut parts)
        });
        found.map_or_else(Vec::new, |instance| instance.result_sizes())
    }

    // ---- record ----------------------------------------------------------------------------------

    /// Calls an instance that was found.
    pub(crate) fn call_found(
        &mut self,
        found: Found<'_>,
        default_generator: Option<&mut Generator>,
        outs: &mut [Out],
    ) -> Result<Status> {
        let Found { instance, parts, .. } = found;
        if !instance.is_runnable() {
            return Ok(Status::OtherSizes);
        }
        let fresh = instance.fresh_results();
        if fresh > outs.len() {
            return Ok(Status::NeedsRoom(fresh));
        }
        for check in instance.number_checks() {
            check.check(parts.scalars[check.index].0)?;
        }
        let begun = self.observer.begin_call();
        let result = self.record(found, default_generator, outs);
        self.observer.end_call(begun);
        result.map(|()| Status::Done(fresh))
    }

    /// Records a call in the place that its plan gives.
    fn record(&mut self, found: Found<'_>, default_generator: Option<&mut Generator>, outs: &mut [Out]) -> Result<()> {
        let Found { instance, parts, placement, runs_by_itself } = found;
        self.open()?;
        self.recorder.check(placement)?;
        self.observer.count_call(instance);
        self.observer.note_arguments(parts.storages());
        for storage in parts.storages() {
            self.submit_elsewhere(storage, placement)?;
        }
        if self.recorder.group(placement).is_some() && parts.storages().any(Storage::is_of_job) {
            self.flush(placement, Reason::Job)?;
        }
        let plan = self.recorder.plan(instance, parts, placement, runs_by_itself, self.caller_mode().mode);
        if let Some(reason) = plan.first {
            self.flush(placement, reason)?;
        }
        match plan.when {
            When::Later => self.record_in_chunk(found, plan.scope, true, default_generator, outs),
            When::Now => self.run_now(found, plan.scope, default_generator, outs),
            When::Apart => {
                let aside = self.recorder.set_aside(placement);
                let result = self.run_now(found, plan.scope, default_generator, outs);
                self.recorder.put_back(placement, aside);
                result
            }
        }
    }

    /// Records a collective of a group as a part of the current chunk.
    pub(crate) fn record_joined(&mut self, found: Found<'_>, group: u64, place: u64, outs: &mut [Out]) -> Result<()> {
        let begun = self.observer.begin_call();
        self.observer.count_call(found.instance);
        self.observer.note_arguments(found.parts.storages());
        self.recorder.join(found.placement, group, place);
        let result = self.record_in_chunk(found, 0, true, None, outs);
        self.observer.end_call(begun);
        result
    }

    /// Runs a call by itself, unless its results are known.
    fn run_now(
        &mut self,
        found: Found<'_>,
        scope: u64,
        default_generator: Option<&mut Generator>,
        outs: &mut [Out],
    ) -> Result<()> {
        let Found { instance, parts, placement, .. } = found;
        if !instance.is_constant || self.caller_mode().mode == Mode::Debug {
            return self.record_in_chunk(found, scope, false, default_generator, outs);
        }
        let key = constants::key_of(instance, placement, parts);
        if let Some(buffers) = self.runner.constants.get(&key) {
            constants::write(buffers, instance, placement, parts, outs);
            return Ok(());
        }
        match instance.uniform(parts) {
            Some((element, ty)) => {
                let buffer = self.runtime()?.uniform(placement, element, ty)?;
                constants::write(vec![buffer], instance, placement, parts, outs);
            }
            None => self.record_in_chunk(found, scope, false, default_generator, outs)?,
        }
        if let Some(values) = constants::written(instance, parts, outs) {
            self.runner.constants.insert(key, values);
        }
        Ok(())
    }

    fn record_in_chunk(
        &mut self,
        found: Found<'_>,
        scope: u64,
        waits: bool,
        default_generator: Option<&mut Generator>,
        outs: &mut [Out],
    ) -> Result<()> {
        let Found { instance, parts, placement, .. } = found;
        let random_state = draw(instance, parts, default_generator);
        match self.recorder.record(
            instance,
            parts,
            placement,
            scope,
            waits,
            random_state,
            self.caller_mode().mode,
            outs,
        ) {
            Some(due) => self.submit(due, parts, placement, outs),
            None => Ok(()),
        }
    }

    /// Submits the chunk of another placement, if a value depends on it.
    fn submit_elsewhere(&mut self, storage: &Storage, placement: Placement) -> Result<()> {
        let elsewhere = storage.placement != placement;
        if elsewhere && storage.held().is_some_and(|value| !value.is_there()) {
            self.launch_all(storage.placement, Reason::OtherDevice)?;
        }
        Ok(())
    }

    // ---- submit ----------------------------------------------------------------------------------

    /// Submits a chunk that is due because of its last call. If that fails, the call is undone.
    fn submit(&mut self, due: Due, parts: &CallParts, placement: Placement, outs: &mut [Out]) -> Result<()> {
        let submitted = match due.counts.is_empty() {
            true => self.flush(placement, due.reason),
            false => self.launch_all(placement, due.reason),
        };
        let is_dry = self.is_dry();
        let waiting = if due.counts.is_empty() { None } else { self.observer.begin_wait(due.reason) };
        // SAFETY: `is_dry` is that of the device that the call ran on.
        let shown = submitted
            .and_then(|()| unsafe { due.show_sizes(outs, is_dry, &mut self.registry.growth) }.map_err(Failure::from));
        if let Some(waiting) = waiting {
            self.observer.end_wait(waiting, Instant::now());
        }
        let Err(Failure { error, inputs }) = shown else {
            return Ok(());
        };
        due.undo(parts, &inputs, outs);
        Err(error)
    }

    // ---- copies the engine makes itself ----------------------------------------------------------

    /// Writes `source` to `destination`, which has the same sizes and placement.
    pub(crate) fn copy(&mut self, destination: Arg, source: Arg, placement: Placement) -> Result<()> {
        self.call_defined(self.copy_operator, &[destination, source], placement, &mut [])
    }

    /// A dense row-major copy of a tensor. The caller owns the reference.
    pub(crate) fn contiguous(&mut self, tensor: Arg, placement: Placement) -> Result<Arc<Storage>> {
        let mut outs = [Out::absent()];
        self.call_defined(self.clone_operator, &[tensor], placement, &mut outs)?;
        // SAFETY: the call stored a storage there, whose reference we own.
        Ok(unsafe { Arc::from_raw(outs[0].storage()) })
    }

    /// A dense row-major copy of a tensor that shows a part of a value with padding, by the program that all sizes
    /// share. It may have padding.
    pub(crate) fn padded_copy(&mut self, tensor: &TensorArg) -> Result<Arc<Storage>> {
        let strides = aten::contiguous_strides(tensor.sizes());
        let meta = Meta {
            sizes: tensor.sizes().as_ptr(),
            strides: strides.as_ptr(),
            ndim: strides.len() as i32,
            dtype: tensor.dtype,
        };
        let (op, args, placement) = (self.clone_operator, [Arg::of_tensor(*tensor)], tensor.storage().placement);
        let mut outs = [Out::absent()];
        let mut status = self.call(op, &args, placement, None, &mut outs)?;
        if matches!(status, Status::NewKey) {
            self.define(op, &args, Some(&[meta]), 0)?;
            status = self.call(op, &args, placement, None, &mut outs)?;
        }
        match status {
            // SAFETY: the call stored a storage there, whose reference we own.
            Status::Done(_) => Ok(unsafe { Arc::from_raw(outs[0].storage()) }),
            status => Err(unfinished_copy(&status)),
        }
    }

    fn call_defined(&mut self, op: u32, args: &[Arg], placement: Placement, outs: &mut [Out]) -> Result<()> {
        self.unpad(args)?;
        self.define_call(op, args, None, None, true)?;
        let mut parts = CallParts::exact();
        let Some(instance) = self.find(op, args, &mut parts)? else {
            return Err(unfinished_copy(&Status::NewKey));
        };
        let found = Found { instance: &instance, parts: &parts, placement, runs_by_itself: false };
        match self.call_found(found, None, outs)? {
            Status::Done(_) => Ok(()),
            status => Err(unfinished_copy(&status)),
        }
    }
}

fn unfinished_copy(status: &Status) -> Error {
    Error::runtime(format!("internal error: a copy ended with {status:?}"))
}

/// Draws the random numbers of a call: advances its generator and returns the state before.
fn draw(instance: &Instance, parts: &CallParts, default_generator: Option<&mut Generator>) -> [u64; 2] {
    let blocks = instance.random_blocks();
    if blocks == 0 {
        return [0; 2];
    }
    // SAFETY: the generator is an argument of the call and locked by the caller.
    let explicit = parts.generator.map(|generator| unsafe { &mut *generator });
    let Some(generator) = explicit.or(default_generator) else { return [0; 2] };
    let state = [generator.seed, generator.offset];
    generator.offset = generator.offset.wrapping_add(blocks);
    state
}
