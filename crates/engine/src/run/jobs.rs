//! Jobs: work of the host on values of a device, in the device's order. Collectives are jobs if the plugin has no
//! network of its own.
//!
//! A job starts on the thread of its lane when its inputs are ready. It works directly on the memory of the buffers
//! if this process can access it. Until it finishes, its outputs are promises, and the host continues. The jobs of
//! one lane run in the order in which they were posted. Lanes do not wait for each other, and wait for programs only
//! through values.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;
use pjrt::{Buffer, Client, HostMemory};
use rustc_hash::FxHashMap;
use stablehlo::Type;

use super::lose;
use super::runtime::{Runtime, element_type};
use crate::agreement::Agreement;
use crate::error::{Error, Result};
use crate::observe::explain::JobTimes;
use crate::placement::Placement;
use crate::storage::{Value, ValueState};
use crate::ticket::Ticket;

/// The function of a job. It reads the bytes of the inputs and writes those of the outputs, dense and row-major.
pub type Work = Box<dyn FnOnce(&[*const u8], &[*mut u8]) -> Result<()> + Send>;

/// A posted job. It holds its outputs by weak references, so unused outputs are dropped.
pub(crate) struct Job {
    /// The name in errors.
    pub name: String,
    pub placement: Placement,
    pub client: Client,
    /// None if nothing was written to the input's storage, or it has no elements.
    pub inputs: Vec<(Option<Arc<Value>>, Type)>,
    /// With the number of the input whose copy the memory starts with, if any.
    pub outputs: Vec<(Weak<Value>, Type, Option<usize>)>,
    pub work: Work,
    pub ticket: Arc<Ticket>,
    /// For the explanation.
    pub times: Option<JobTimes>,
    /// Whether a program waits for it, and fails with its error.
    pub precedes_program: bool,
}

/// The lanes that were closed since the last call of [`Jobs::begin`].
static CLOSED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Closes a lane. Its jobs must have started. Does not need the engine: the last user of a lane may be a job, and the
/// thread that holds the engine may wait for this job.
pub fn close_lane(lane: u64) {
    CLOSED.lock().push(lane);
}

/// Jobs that wait for their inputs, and the thread that runs them.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Job>,
    thread: Option<Sender<Started>>,
}

/// A job and what the thread of its lane needs to run it.
struct Started {
    job: Job,
    /// Runs that may read the memory of the inputs.
    earlier: Vec<Arc<pjrt::Event>>,
    spent: Spent,
    /// Called when the job has finished.
    finished: fn(),
}

/// The inputs of finished jobs, for the engine to drop.
type Spent = Arc<Mutex<Vec<Arc<Value>>>>;

/// All lanes, and the jobs that may not have finished.
#[derive(Default)]
pub(crate) struct Jobs {
    lanes: FxHashMap<u64, Lane>,
    last_lane: u64,
    unfinished: Vec<Unfinished>,
    spent: Spent,
    /// The error of a job without outputs, for the next wait for the device.
    failure: Option<Error>,
}

struct Unfinished {
    lane: u64,
    ticket: Arc<Ticket>,
    /// The addresses of the values that it reads.
    reads: Vec<usize>,
    /// Whether the next wait for the device tells its error.
    tells: bool,
}

impl Jobs {
    /// A new lane.
    pub fn open_lane(&mut self) -> u64 {
        self.remove_closed_lanes();
        self.last_lane += 1;
        self.lanes.insert(self.last_lane, Lane::default());
        self.last_lane
    }

    pub fn has_lanes(&self) -> bool {
        !self.lanes.is_empty()
    }

    pub fn has_lane(&self, lane: u64) -> bool {
        self.lanes.contains_key(&lane)
    }

    fn remove_closed_lanes(&mut self) {
        for lane in CLOSED.lock().drain(..) {
            let closed = self.lanes.remove(&lane);
            debug_assert!(closed.is_none_or(|lane| lane.waiting.is_empty()));
        }
    }

    /// The jobs of these lanes that may not have finished.
    pub fn unfinished_of(&self, lanes: &[u64]) -> Vec<Arc<Ticket>> {
        let jobs = self.unfinished.iter().filter(|job| lanes.contains(&job.lane));
        jobs.map(|job| Arc::clone(&job.ticket)).collect()
    }

    /// Adds a job to a lane.
    pub fn post(&mut self, lane: u64, job: Job) {
        self.are_running();
        let inputs = || job.inputs.iter().flat_map(|(value, _)| value);
        inputs().for_each(|value| value.hold());
        self.unfinished.push(Unfinished {
            lane,
            ticket: Arc::clone(&job.ticket),
            reads: inputs().map(address_of).collect(),
            tells: job.outputs.is_empty() && !job.precedes_program,
        });
        self.lanes.entry(lane).or_default().waiting.push_back(job);
    }

    /// Whether there may be unfinished jobs. Drops the inputs of finished jobs.
    pub fn are_running(&mut self) -> bool {
        if self.unfinished.is_empty() {
            return false;
        }
        let failure = &mut self.failure;
        self.unfinished.retain(|job| match job.ticket.result() {
            None => true,
            Some(result) => {
                if let (Err(error), true) = (result, job.tells) {
                    failure.get_or_insert(error);
                }
                false
            }
        });
        self.spent.lock().drain(..).for_each(|input| input.release());
        !self.unfinished.is_empty()
    }

    /// A job that must finish before a program with these inputs runs: it makes one of them, or reads one that is
    /// donated.
    pub fn before(&mut self, inputs: &[Arc<Value>], donated: &[bool]) -> Option<Arc<Ticket>> {
        if !self.are_running() {
            return None;
        }
        let given = inputs.iter().zip(donated).filter(|(_, donated)| **donated);
        inputs
            .iter()
            .find_map(|input| input.maker())
            .or_else(|| given.clone().find_map(|(input, _)| self.reader_of(input)))
    }

    /// The error of a failed job without outputs, once. If a job has outputs, a read of an output raises its error.
    pub fn take_failure(&mut self) -> Result<()> {
        self.are_running();
        self.failure.take().map_or(Ok(()), Err)
    }

    pub fn unfinished(&self) -> Vec<Arc<Ticket>> {
        self.unfinished.iter().map(|job| Arc::clone(&job.ticket)).collect()
    }

    /// A job that reads a value and may not have finished.
    fn reader_of(&self, value: &Arc<Value>) -> Option<Arc<Ticket>> {
        let reader = self.unfinished.iter().find(|job| job.reads.contains(&address_of(value)));
        reader.map(|job| Arc::clone(&job.ticket))
    }

    /// Starts the jobs whose inputs are ready. `finished` is called after each job.
    pub fn begin(&mut self, runtime: &Runtime, finished: fn()) {
        self.remove_closed_lanes();
        if self.unfinished.is_empty() {
            return;
        }
        for lane in self.lanes.values_mut() {
            while lane.waiting.front().is_some_and(Job::can_begin) {
                let Some(job) = lane.waiting.pop_front() else { break };
                let earlier = runtime.in_flight(job.placement);
                let thread = lane.thread.get_or_insert_with(spawn);
                let started = Started { job, earlier, spent: Arc::clone(&self.spent), finished };
                if let Err(mpsc::SendError(Started { job, .. })) = thread.send(started) {
                    job.finish(Err(Error::runtime("no thread could be started")), &self.spent);
                }
            }
        }
    }
}

fn address_of(value: &Arc<Value>) -> usize {
    Arc::as_ptr(value).addr()
}

/// Starts the thread of a lane. It ends when the lane is closed and its jobs have run.
fn spawn() -> Sender<Started> {
    let (sender, receiver) = mpsc::channel::<Started>();
    let run_all = move || {
        while let Ok(Started { mut job, earlier, spent, finished }) = receiver.recv() {
            job.times.iter().for_each(JobTimes::begin);
            let panicked = |_| Err(Error::runtime("internal error: a job of the host panicked"));
            let result = catch_unwind(AssertUnwindSafe(|| job.run(&earlier))).unwrap_or_else(panicked);
            job.times.iter().for_each(JobTimes::end);
            job.finish(result, &spent);
            finished();
        }
    };
    // Without a thread there is no receiver, and sending fails.
    let _ = thread::Builder::new().name("torchtpu-job".into()).spawn(run_all);
    sender
}

/// The memory of an array during a job.
enum Memory {
    /// The memory of the buffer.
    Pinned(HostMemory<Arc<Buffer>>),
    /// A copy, for plugins whose memory this process cannot access, and for arrays without elements.
    Copied(Vec<u8>),
}

impl Memory {
    fn of_input(value: Option<&Value>, ty: &Type) -> Result<Memory> {
        let size = ty.size_bytes();
        let Some(value) = value else { return Ok(Memory::Copied(vec![0; size])) };
        let buffer = value.lend()?;
        match HostMemory::of(Arc::clone(&buffer), size) {
            Ok(Some(memory)) => Ok(Memory::Pinned(memory)),
            Ok(None) => {
                let mut bytes = vec![0; size];
                let read = buffer.to_host(&mut bytes);
                value.take_back(buffer);
                read?;
                Ok(Memory::Copied(bytes))
            }
            Err(error) => {
                value.take_back(buffer);
                Err(error.into())
            }
        }
    }

    fn of_output(client: &Client, placement: Placement, ty: &Type) -> Result<Memory> {
        if let Ok(buffer) = client.uninitialized_buffer(element_type(ty.dtype), &ty.dims, placement.device())
            && let Some(memory) = HostMemory::of(Arc::new(buffer), ty.size_bytes())?
        {
            return Ok(Memory::Pinned(memory));
        }
        Ok(Memory::Copied(vec![0; ty.size_bytes()]))
    }

    fn address(&mut self) -> *mut u8 {
        match self {
            Memory::Pinned(memory) => memory.address(),
            Memory::Copied(bytes) => bytes.as_mut_ptr(),
        }
    }

    fn into_buffer(self, client: &Client, placement: Placement, ty: &Type) -> Result<Arc<Buffer>> {
        match self {
            Memory::Pinned(memory) => Ok(Arc::clone(memory.buffer())),
            Memory::Copied(bytes) => {
                Ok(Arc::new(client.buffer_from_host(&bytes, element_type(ty.dtype), &ty.dims, placement.device())?))
            }
        }
    }
}

impl Job {
    /// The job in which the ranks compare a program, of which `described` must be the same on all.
    pub fn comparing(agreement: Agreement, described: String, placement: Placement, client: Client) -> Job {
        let Agreement { name, compare, .. } = agreement;
        Job {
            ticket: Arc::new(Ticket::new(name.clone())),
            name,
            placement,
            client,
            inputs: Vec::new(),
            outputs: Vec::new(),
            work: Box::new(move |_, _| compare(&described)),
            times: None,
            precedes_program: true,
        }
    }

    fn can_begin(&self) -> bool {
        self.inputs.iter().all(|(value, _)| value.as_ref().is_none_or(|value| value.is_there()))
    }

    /// Runs the job. `earlier` are runs that may read the memory of the inputs.
    fn run(&mut self, earlier: &[Arc<pjrt::Event>]) -> Result<()> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        let mut outputs = Vec::with_capacity(self.outputs.len());
        let result = self.run_on(earlier, &mut inputs, &mut outputs);
        for (memory, (value, _)) in inputs.into_iter().zip(&self.inputs) {
            if let (Some(Memory::Pinned(memory)), Some(value)) = (memory, value) {
                let buffer = Arc::clone(memory.buffer());
                drop(memory);
                value.take_back(buffer);
            }
        }
        result?;
        for (memory, (value, ty, _)) in outputs.into_iter().zip(&self.outputs) {
            let buffer = memory.into_buffer(&self.client, self.placement, ty)?;
            if let Some(value) = value.upgrade() {
                value.settle(ValueState::Ready(buffer));
            }
        }
        Ok(())
    }

    fn run_on(
        &mut self,
        earlier: &[Arc<pjrt::Event>],
        inputs: &mut Vec<Option<Memory>>,
        outputs: &mut Vec<Memory>,
    ) -> Result<()> {
        for (value, ty) in &self.inputs {
            inputs.push(Some(Memory::of_input(value.as_deref(), ty)?));
        }
        let read: Vec<*const u8> = inputs.iter_mut().flatten().map(|memory| memory.address().cast_const()).collect();
        for (_, ty, initial) in &self.outputs {
            let memory = match *initial {
                // Nothing else can read the input, so its memory becomes the output's.
                Some(index) if self.is_last_reader(index, &inputs[index]) => inputs[index].take(),
                _ => None,
            };
            outputs.push(match (memory, *initial) {
                (Some(memory), Some(index)) => {
                    // A failed run no longer reads anything.
                    earlier.iter().for_each(|run| drop(run.wait()));
                    if let ((Some(value), _), Memory::Pinned(memory)) = (&self.inputs[index], &memory) {
                        value.take_back(Arc::clone(memory.buffer()));
                    }
                    memory
                }
                (_, initial) => {
                    let mut memory = Memory::of_output(&self.client, self.placement, ty)?;
                    if let Some(index) = initial {
                        // SAFETY: both have the size of the type, and there is no other reference to the output.
                        unsafe { std::ptr::copy_nonoverlapping(read[index], memory.address(), ty.size_bytes()) };
                    }
                    memory
                }
            });
        }
        let written: Vec<*mut u8> = outputs.iter_mut().map(Memory::address).collect();
        let work = std::mem::replace(&mut self.work, Box::new(|_, _| Ok(())));
        work(&read, &written)
    }

    /// Whether only this job has a reference to an input's value and buffer.
    fn is_last_reader(&self, input: usize, memory: &Option<Memory>) -> bool {
        let ((Some(value), _), Some(Memory::Pinned(memory))) = (&self.inputs[input], memory) else { return false };
        // The buffer is referenced by the value and by the memory.
        Arc::strong_count(value) == 1 && Arc::strong_count(memory.buffer()) == 2
    }

    /// Stores the outcome of the job. If it failed, its outputs have failed.
    fn finish(self, result: Result<()>, spent: &Mutex<Vec<Arc<Value>>>) {
        let result = result.map_err(|error| error.within(&self.name));
        if let Err(error) = &result {
            let lost: Vec<Arc<Value>> = self.outputs.iter().filter_map(|(value, ..)| value.upgrade()).collect();
            lose(lost.iter(), error);
        }
        spent.lock().extend(self.inputs.into_iter().filter_map(|(value, _)| value));
        self.ticket.finish(result);
    }
}
