//! Transfers between the host and devices: uploads, downloads, resizing, waiting.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stablehlo::Type;

use crate::bounded::copy_padded_to_host;
use crate::call::{self, Arg, TensorArg};
use crate::engine::{Engine, lock, lock_when_launched};
use crate::error::{Error, Result};
use crate::invented;
use crate::joined::submit_joined;
use crate::lines::Line;
use crate::observe::explain::Waiting;
use crate::overdue;
use crate::padded::{PaddedFactor, copy_view};
use crate::placement::Placement;
use crate::record::reason::Reason;
use crate::run::runtime::element_type;
use crate::run::{look, wait_for};
use crate::storage::{Storage, Value, ValueState};
use crate::ticket::Ticket;

/// How long the end of a process waits for jobs of the host and for other ranks.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// The host reads a value of so many bytes as a whole where a part of it is asked for.
const SMALL_READ: usize = 64 << 10;

/// It reads a larger value as a whole if that has at most so many times the bytes of the part.
const MOST_READ: usize = 4;

impl Engine {
    /// Writes dense row-major host data into a tensor. With an `owner`, the data is borrowed until the owner is
    /// dropped. `line` is the line of the upload if its sizes may change.
    ///
    /// # Safety
    /// `data` points to as many bytes as the tensor has. With an owner, it stays valid until the owner is dropped.
    pub unsafe fn copy_from_host(
        &mut self,
        destination: &TensorArg,
        data: *const u8,
        owner: Option<Box<dyn Any + Send>>,
        line: Option<Line>,
    ) -> Result<()> {
        let ty = type_of(destination)?;
        if ty.numel() == 0 {
            return Ok(());
        }
        let storage = destination.storage();
        let placement = storage.placement;
        self.open()?;
        if let Some(reason) = self.recorder.upload(placement, ty.size_bytes()) {
            self.flush(placement, reason)?;
        }
        // A value that is overwritten, such as a parameter, keeps its form.
        let keeps_form = storage.has_value() && !storage.is_only_padded();
        // A collective takes exact values. To make them, the host would wait for the network.
        if !keeps_form
            && !self.runner.jobs.has_lanes()
            && covers_densely(destination, &ty)
            && let Some(line) = line
            && let Some(capacities) = self.registry.growth.upload(line, destination.dtype, &ty, storage)
        {
            let factor = |(&actual, capacity): (&i64, &Option<i64>)| {
                vec![PaddedFactor { capacity: capacity.unwrap_or(actual), actual, is_bounded: capacity.is_some() }]
            };
            let axes: Vec<Vec<PaddedFactor>> = ty.dims.iter().zip(&capacities).map(factor).collect();
            // SAFETY: guaranteed by the caller.
            let bytes = unsafe { std::slice::from_raw_parts(data, ty.size_bytes()) };
            let padded = self.upload_padded(placement, ty.dtype, &axes, bytes)?;
            storage.set_padded(padded);
            return Ok(());
        }
        let runtime = self.runtime()?;
        let buffer = match owner {
            Some(owner) => {
                let client = &runtime.platform.client;
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let dtype = element_type(ty.dtype);
                    client.buffer_from_host_owned(data, dtype, &ty.dims, placement.device(), owner).map(Arc::new)?
                }
            }
            None => {
                // SAFETY: guaranteed by the caller.
                let bytes = unsafe { std::slice::from_raw_parts(data, ty.size_bytes()) };
                runtime.upload(placement, bytes, ty.dtype, &ty.dims)?
            }
        };
        let value = Value::new(self.registry.types.intern(&ty), ValueState::Ready(buffer));
        self.write_whole(destination, &ty, value)
    }

    /// Writes a dense value of the tensor's type to all of the tensor.
    pub(crate) fn write_whole(&mut self, destination: &TensorArg, ty: &Type, value: Arc<Value>) -> Result<()> {
        if ty.numel() == 0 {
            return Ok(());
        }
        let storage = destination.storage();
        if covers_densely(destination, ty) {
            storage.set_value(Some(value));
            return Ok(());
        }
        let staged = Storage::with_value(storage.placement, ty.size_bytes(), Some(value));
        let strides = aten::contiguous_strides(&ty.dims);
        let source = TensorArg::new(&staged, &ty.dims, &strides, 0, ty.dtype);
        self.copy(Arg::of_tensor(*destination), Arg::of_tensor(source), storage.placement)
    }

    /// Copies a dense tensor to a dense tensor of the same type on another device.
    pub fn copy_across(&mut self, source: &TensorArg, destination: &TensorArg) -> Result<()> {
        let ty = type_of(source)?;
        if ty.numel() == 0 {
            return Ok(());
        }
        let from = source.storage();
        let staged = self.contiguous(Arg::of_tensor(*source), from.placement)?;
        self.launch_all(from.placement, Reason::OtherDevice)?;
        let Some(value) = staged.value() else { return Ok(()) };
        let buffer = Arc::new(value.buffer()?.copy_to_device(destination.storage().placement.device())?);
        let value = Value::new(self.registry.types.intern(&ty), ValueState::Ready(buffer));
        self.write_whole(destination, &ty, value)
    }

    /// Resizes a storage. The bytes that both sizes have are kept.
    pub fn resize(&mut self, storage: &Storage, nbytes: usize) -> Result<()> {
        self.unpad_storage(storage)?;
        let Some(old) = storage.value() else {
            storage.replace(nbytes, None);
            return Ok(());
        };
        let dtype = self.registry.types.get(old.ty).dtype;
        let kept = (storage.nbytes().min(nbytes) / dtype.size_bytes()) as i64;
        if kept == 0 {
            storage.replace(nbytes, None);
            return Ok(());
        }
        let resized = Storage::new(storage.placement, nbytes);
        let (sizes, strides) = ([kept], [1]);
        let view = |of: &Storage| Arg::of_tensor(TensorArg::new(of, &sizes, &strides, 0, dtype));
        self.copy(view(&resized), view(storage), storage.placement)?;
        storage.replace(nbytes, resized.value());
        Ok(())
    }

    /// The value of which a tensor shows elements, and its number of bytes, if the host reads it and picks the elements.
    /// So a read of a part of a small value needs no program for the part's sizes. `None` if the tensor is the whole value,
    /// or a program makes a copy: of a part of a large value, of another element type, or of a value that is not launched.
    fn shown_value(&self, source: &TensorArg, ty: &Type) -> Option<(Arc<Value>, usize)> {
        let storage = source.storage();
        if storage.has_padding() || source.is_lazy() || covers_densely(source, ty) {
            return None;
        }
        let value = storage.value().filter(|value| value.pending().is_none())?;
        let base = self.registry.types.get(value.ty);
        let is_small = base.size_bytes() <= SMALL_READ.max(MOST_READ.saturating_mul(ty.size_bytes()));
        let is_alike = base.dtype == ty.dtype && base.size_bytes() == storage.nbytes();
        (is_alike && is_small).then(|| (value, base.size_bytes()))
    }

    /// The tensor as a dense, row-major value, which may not be computed yet. None if nothing was written to its
    /// storage.
    pub(crate) fn dense_value(&mut self, source: &TensorArg, ty: &Type) -> Result<Option<Arc<Value>>> {
        let storage = source.storage();
        self.unpad_storage(storage)?;
        let Some(value) = storage.value() else { return Ok(None) };
        let base = self.registry.types.get(value.ty);
        let direct = source.offset == 0
            && !source.is_lazy()
            && base.dtype == ty.dtype
            && base.numel() == ty.numel()
            && source.strides() == aten::contiguous_strides(&ty.dims);
        if direct {
            return Ok(Some(value));
        }
        drop(value);
        Ok(self.contiguous(Arg::of_tensor(*source), storage.placement)?.value())
    }
}

/// Waits for a tensor's value and copies it to the host, dense and row-major.
///
/// # Errors
/// If the value could not be computed, or a check of the data failed in an earlier program.
pub fn copy_to_host(source: &TensorArg, out: &mut [u8]) -> Result<()> {
    read_to_host(source, out)?;
    check_answers(source.storage().placement)
}

fn read_to_host(source: &TensorArg, out: &mut [u8]) -> Result<()> {
    let ty = type_of(source)?;
    if ty.size_bytes() != out.len() {
        return Err(Error::runtime(format!("a tensor of {} bytes does not fit into {}", ty.size_bytes(), out.len())));
    }
    if out.is_empty() {
        return Ok(());
    }
    if copy_padded_to_host(source, out)? {
        return Ok(());
    }
    if let Some(axis) = (0..ty.dims.len()).find(|&axis| source.strides()[axis] == 0 && ty.dims[axis] > 1) {
        return read_repeated(source, &ty, axis, out);
    }
    if source.storage().has_padding() && !covers_densely(source, &ty) {
        let copy = lock()?.padded_copy(source)?;
        let strides = aten::contiguous_strides(source.sizes());
        return read_to_host(&TensorArg::new(&copy, source.sizes(), &strides, 0, ty.dtype), out);
    }
    let (value, whole, waiting, is_dry) = {
        let mut engine = lock()?;
        let waiting = engine.observer.begin_wait(Reason::Read);
        let (value, whole) = match engine.shown_value(source, &ty) {
            Some((value, bytes)) => (Some(value), Some(bytes)),
            None => (engine.dense_value(source, &ty)?, None),
        };
        (value, whole, waiting, engine.is_dry())
    };
    match value {
        Some(value) => {
            lock_when_launched(source.storage().placement, Reason::Read)?.1?;
            // The lock is not held during the wait, so that other threads can use the engine.
            let placement = source.storage().placement;
            overdue::wait_for_value(placement, &value)?;
            let buffer = value.buffer()?;
            let mut bytes = whole.map(|bytes| vec![0; bytes]);
            let to = bytes.as_deref_mut().unwrap_or(out);
            let read = buffer.to_host(to).map_err(|error| overdue::explained(placement, error.into()));
            if is_dry {
                // SAFETY: the buffer is one of the only device, a dry one.
                unsafe { invented::overwrite(&buffer, to) };
            }
            if let Some(bytes) = bytes {
                copy_view(&ty.dims, source.strides(), source.offset, ty.dtype.size_bytes(), &bytes, out);
            }
            end_wait(waiting);
            if let Err(error) = &read {
                let runs = lock()?.runner.note_raised(placement, error);
                wait_for(runs);
            }
            read
        }
        None => {
            out.fill(0);
            Ok(())
        }
    }
}

/// [`read_to_host`] of a tensor that repeats its elements along `axis`. The host repeats them.
fn read_repeated(source: &TensorArg, ty: &Type, axis: usize, out: &mut [u8]) -> Result<()> {
    let mut sizes = ty.dims.clone();
    sizes[axis] = 1;
    let once = source.with_sizes(&sizes);
    let mut bytes = vec![0; out.len() / ty.dims[axis] as usize];
    read_to_host(&once, &mut bytes)?;
    let block = bytes.len() / sizes[..axis].iter().product::<i64>() as usize;
    let blocks = bytes.chunks_exact(block).zip(out.chunks_exact_mut(block * ty.dims[axis] as usize));
    blocks.for_each(|(once, repeated)| repeated.chunks_exact_mut(block).for_each(|to| to.copy_from_slice(once)));
    Ok(())
}

/// Runs recorded calls and waits for all work at a placement, or at all placements.
pub fn synchronize(placement: Option<Placement>) -> Result<()> {
    let (mut runs, mut result) = (Vec::new(), Ok(()));
    let placements: Vec<Placement>;
    let waiting = {
        let engine = lock()?;
        if !engine.is_open() {
            return Ok(());
        }
        placements = match placement {
            Some(placement) => vec![placement],
            None => engine.placements().collect(),
        };
        engine.observer.begin_wait(Reason::Synchronize)
    };
    let mut jobs = Vec::new();
    for &placement in &placements {
        let (mut engine, flushed) = lock_when_launched(placement, Reason::Synchronize)?;
        result = result.and(flushed);
        runs.extend(engine.runtime()?.take_in_flight(placement).into_iter().map(|run| (placement, run)));
        jobs = engine.runner.jobs.unfinished();
    }
    // A read of a job's results raises its error. The errors of jobs without results are collected below.
    for job in jobs {
        job.wait(None);
    }
    // Waits for all runs, also after one that failed.
    for run in runs {
        let (placement, run) = run;
        overdue::wait(placement, &run)?;
        result = result.and(run.wait().map_err(|error| overdue::explained(placement, error.into())));
    }
    end_wait(waiting);
    result = result.and(lock()?.runner.jobs.take_failure());
    placements.into_iter().fold(result, |result, placement| result.and(check_answers(placement)))
}

/// Reads the results of all checks at the end of a process. Waits for flushed work, and runs nothing else than what has
/// collectives, for which other ranks wait. Programs that need a job of the host or another rank wait for a short time
/// only: it may be a message that never comes.
///
/// # Errors
/// The first check that failed.
pub fn check_last_answers() -> Result<()> {
    submit_joined()?;
    let deadline = Instant::now() + LAST_WAIT;
    let mut placements = lock()?.placements();
    placements.try_for_each(|placement| {
        // The lock is not held during a wait for a job.
        while let Some(job) = catch_up_to_job(placement)? {
            if job.wait(Some(deadline.saturating_duration_since(Instant::now()))).is_none() {
                break;
            }
        }
        check_answers(placement)?;
        // Nothing reads these results, but the other ranks need this process for theirs.
        let runs = lock()?.runtime()?.take_in_flight(placement);
        runs.iter().try_for_each(|run| overdue::wait_until(placement, run, Some(deadline)))
    })
}

fn catch_up_to_job(placement: Placement) -> Result<Option<Arc<Ticket>>> {
    Ok(lock()?.catch_up_to_job(placement))
}

/// Records the end of a wait for the explanation.
fn end_wait(waiting: Option<Waiting>) {
    let until = Instant::now();
    if let (Some(waiting), Ok(mut engine)) = (waiting, lock()) {
        engine.observer.end_wait(waiting, until);
    }
}

/// Reads the results of the checks that the programs of a placement have returned since the last time. Waits for
/// them.
///
/// # Errors
/// The first check that failed.
fn check_answers(placement: Placement) -> Result<()> {
    // The lock is not held during the wait.
    let answers = lock()?.runner.take_answers(placement);
    answers.iter().try_for_each(|answer| match answer.number.buffer() {
        Ok(_) => overdue::wait_for_value(placement, &answer.number),
        Err(_) => Ok(()),
    })?;
    look(&answers)
}

/// The type in which a new storage holds a tensor's elements.
pub(crate) fn type_of(tensor: &TensorArg) -> Result<Type> {
    let dtype = call::tensor_dtype(tensor.dtype)?;
    Ok(aten::stored_type(&Type::new(dtype, tensor.sizes())))
}

/// Whether a tensor, whose storage would hold it as `ty`, covers its whole storage, row-major. One element has any strides.
fn covers_densely(tensor: &TensorArg, ty: &Type) -> bool {
    tensor.offset == 0
        && !tensor.is_lazy()
        && tensor.storage().nbytes() == ty.size_bytes()
        && (ty.dims.is_empty() || tensor.strides() == aten::contiguous_strides(&ty.dims))
}
