//! Jobs: work that the host does on values of a device, in the device's order. Collectives are jobs where the plugin has
//! no network of its own.
//!
//! A job begins when its inputs are there, on the thread of its lane, and works on the memory of the buffers where this
//! process can reach it. Until it has finished its outputs are promises, and the host goes on. The jobs of one lane run in
//! the order in which they were posted. A lane waits for no other lane, and for programs only as far as the values ask.

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
use crate::error::{Error, Result};
use crate::placement::Placement;
use crate::storage::{Value, ValueState};
use crate::ticket::Ticket;

/// What a job does: it reads the bytes of the inputs and writes those of the outputs, dense and row-major.
pub type Work = Box<dyn FnOnce(&[*const u8], &[*mut u8]) -> Result<()> + Send>;

/// A posted job. It only knows its outputs: those that nobody wants any more are not kept.
pub(crate) struct Job {
    /// For errors.
    pub name: String,
    pub placement: Placement,
    pub client: Client,
    /// None where nothing was written to the input's storage, or it has no elements.
    pub inputs: Vec<(Option<Arc<Value>>, Type)>,
    /// With the input that the memory begins as a copy of, if there is one.
    pub outputs: Vec<(Weak<Value>, Type, Option<usize>)>,
    pub work: Work,
    pub ticket: Arc<Ticket>,
}

/// Jobs that wait for their inputs, and the thread that runs them.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Job>,
    thread: Option<Sender<Started>>,
}

/// What the thread of a lane needs to run a job.
struct Started {
    job: Job,
    /// Runs that may read the inputs' memory.
    earlier: Vec<Arc<pjrt::Event>>,
    spent: Spent,
    /// Called when the job has finished.
    finished: fn(),
}

/// The inputs of jobs that have finished, which the engine lets go of.
type Spent = Arc<Mutex<Vec<Arc<Value>>>>;

/// All lanes, and the jobs that may not have finished.
#[derive(Default)]
pub(crate) struct Jobs {
    lanes: FxHashMap<u64, Lane>,
    last_lane: u64,
    unfinished: Vec<Unfinished>,
    spent: Spent,
    /// Why a job without outputs has failed, for the next who waits for the device.
    failure: Option<Error>,
}

struct Unfinished {
    ticket: Arc<Ticket>,
    /// The addresses of the values that it reads.
    reads: Vec<usize>,
    has_outputs: bool,
}

impl Jobs {
    /// A new lane.
    pub fn open_lane(&mut self) -> u64 {
        self.last_lane += 1;
        self.lanes.insert(self.last_lane, Lane::default());
        self.last_lane
    }

    pub fn has_lane(&self, lane: u64) -> bool {
        self.lanes.contains_key(&lane)
    }

    /// Closes a lane. Jobs that have begun go on; those that wait for their inputs fail.
    pub fn close_lane(&mut self, lane: u64) {
        for job in self.lanes.remove(&lane).into_iter().flat_map(|lane| lane.waiting) {
            job.finish(
                Err(Error::runtime("the process group was destroyed before the inputs were computed")),
                &self.spent,
            );
        }
    }

    /// Adds a job to a lane.
    pub fn post(&mut self, lane: u64, job: Job) {
        self.are_running();
        let inputs = || job.inputs.iter().flat_map(|(value, _)| value);
        inputs().for_each(|value| value.hold());
        self.unfinished.push(Unfinished {
            ticket: Arc::clone(&job.ticket),
            reads: inputs().map(address_of).collect(),
            has_outputs: !job.outputs.is_empty(),
        });
        self.lanes.entry(lane).or_default().waiting.push_back(job);
    }

    /// Whether any job may not have finished. Lets go of the inputs of those that have.
    pub fn are_running(&mut self) -> bool {
        if self.unfinished.is_empty() {
            return false;
        }
        let failure = &mut self.failure;
        self.unfinished.retain(|job| match job.ticket.result() {
            None => true,
            Some(result) => {
                if let (Err(error), false) = (result, job.has_outputs) {
                    failure.get_or_insert(error);
                }
                false
            }
        });
        self.spent.lock().drain(..).for_each(|input| input.release());
        !self.unfinished.is_empty()
    }

    /// A job that must finish before a program runs with these inputs: it makes one of them, or reads one that the program
    /// is given the memory of.
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

    /// Why a job without outputs has failed, once. Whoever reads an output of a failed job is told there.
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

    /// Hands over the jobs whose inputs are there; `finished` is called when one has finished.
    pub fn begin(&mut self, runtime: &Runtime, finished: fn()) {
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

/// The thread of a lane. It ends when the lane has been closed and its jobs have run.
fn spawn() -> Sender<Started> {
    let (sender, receiver) = mpsc::channel::<Started>();
    let run_all = move || {
        while let Ok(Started { mut job, earlier, spent, finished }) = receiver.recv() {
            let panicked = |_| Err(Error::runtime("internal error: a job of the host panicked"));
            let result = catch_unwind(AssertUnwindSafe(|| job.run(&earlier))).unwrap_or_else(panicked);
            job.finish(result, &spent);
            finished();
        }
    };
    // Without a thread there is no receiver, and sending fails.
    let _ = thread::Builder::new().name("torchtpu-job".into()).spawn(run_all);
    sender
}

/// The memory of an array while a job works on it.
enum Memory {
    /// The buffer's own.
    Pinned(HostMemory<Arc<Buffer>>),
    /// A copy, for plugins whose memory this process cannot reach, and for arrays without elements.
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
    fn can_begin(&self) -> bool {
        self.inputs.iter().all(|(value, _)| value.as_ref().is_none_or(|value| value.is_there()))
    }

    /// Does the work. `earlier` are runs that may read the inputs' memory.
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
                // Nobody will see the input again: its memory becomes the output's.
                Some(index) if self.is_last_reader(index, &inputs[index]) => inputs[index].take(),
                _ => None,
            };
            outputs.push(match (memory, *initial) {
                (Some(memory), Some(index)) => {
                    // A run that failed reads nothing any more.
                    earlier.iter().for_each(|run| drop(run.wait()));
                    if let ((Some(value), _), Memory::Pinned(memory)) = (&self.inputs[index], &memory) {
                        value.take_back(Arc::clone(memory.buffer()));
                    }
                    memory
                }
                (_, initial) => {
                    let mut memory = Memory::of_output(&self.client, self.placement, ty)?;
                    if let Some(index) = initial {
                        // SAFETY: both are as long as the type says, and nobody else knows the output.
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

    /// Whether nobody but this job can see an input's value or its buffer any more.
    fn is_last_reader(&self, input: usize, memory: &Option<Memory>) -> bool {
        let ((Some(value), _), Some(Memory::Pinned(memory))) = (&self.inputs[input], memory) else { return false };
        // The buffer belongs to the value and to the memory.
        Arc::strong_count(value) == 1 && Arc::strong_count(memory.buffer()) == 2
    }

    /// Says how the job ended. Where it failed, the outputs have failed.
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
