//! The runner: launches programs in the order in which they were flushed, each when its executable is ready. The host
//! continues; later programs wait in the queue of their placement.

mod answers;
pub(crate) mod collectives;
pub(crate) mod constants;
mod exact;
mod execute;
mod inspect;
pub(crate) mod jobs;
mod launch;
pub(crate) mod launcher;
mod meanwhile;
pub(crate) mod module_text;
mod novelty;
mod programs;
pub(crate) mod runtime;
mod units;
mod unlocated;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use pjrt::Event;

use crate::cache::Executable;
use crate::cache::memory::Limit;
use crate::error::{Error, ErrorKind, Result};
use crate::lines::Line;
use crate::memory;
use crate::mode::{EagerMode, Mode};
use crate::observe::Observer;
use crate::placement::Placement;
use crate::program::{Program, Usage};
use crate::record::chunk::Chunk;
use crate::record::reason::Reason;
use crate::registry::Registry;
use crate::storage::{Value, ValueState};
use crate::ticket::Ticket;
pub(crate) use answers::{Answer, look};
use collectives::Collectives;
use constants::Constants;
use execute::lose;
use inspect::inspect;
use jobs::{Job, Jobs};
use launch::Launch;
use novelty::Novelty;
use programs::{Programs, Wanted};
use runtime::Runtime;
use unlocated::Unlocated;

/// The number of flushed chunks that may wait for compilers before the host waits.
const MAX_QUEUE: usize = 1024;

/// The other parts of the engine that the runner uses.
pub(crate) struct Context<'a> {
    pub registry: &'a Registry,
    pub observer: &'a mut Observer,
    pub eager: EagerMode,
}

/// Why a run failed.
pub(crate) struct Failure {
    pub error: Error,
    /// The inputs of the chunk, if its results are lost.
    pub inputs: Vec<Arc<Value>>,
}

/// The outcome of submitting a chunk.
pub(crate) type Submitted = std::result::Result<(), Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, inputs: Vec::new() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        failure.error
    }
}

pub(crate) struct Runner {
    runtime: Option<Runtime>,
    pub programs: Programs,
    novelty: Novelty,
    /// Results that depend on no data, for later calls.
    pub constants: Constants,
    /// The chunks that wait for their executables.
    queues: Vec<VecDeque<Launch>>,
    /// Check results that were not read yet.
    answers: Vec<Vec<Answer>>,
    pub jobs: Jobs,
    /// The failure of the last call, while the line of its caller is not known.
    unlocated: Option<Unlocated>,
}

impl Runner {
    /// `limit` is the limit of programs in memory.
    pub fn new(limit: Limit) -> Runner {
        Runner {
            runtime: None,
            programs: Programs::new(limit),
            novelty: Novelty::default(),
            constants: Constants::default(),
            queues: Vec::new(),
            answers: Vec::new(),
            jobs: Jobs::default(),
            unlocated: None,
        }
    }

    /// Opens the plugin. `made` is called on some thread whenever an executable is ready.
    pub fn open(&mut self, made: fn()) -> Result<&Runtime> {
        let runtime = Runtime::open(made)?;
        let devices = runtime.platform.devices.len();
        self.queues = (0..devices).map(|_| VecDeque::new()).collect();
        self.answers = (0..devices).map(|_| Vec::new()).collect();
        Ok(self.runtime.insert(runtime))
    }

    #[inline]
    pub fn opened(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }

    /// The open plugin.
    pub fn runtime(&mut self) -> Result<&mut Runtime> {
        self.runtime.as_mut().ok_or_else(not_open)
    }

    /// Frees memory that is only kept for reuse.
    pub fn clear_caches(&mut self) {
        if let Some(runtime) = &mut self.runtime {
            runtime.clear_caches();
        }
        self.constants.clear();
    }

    /// Takes the check results that were not read yet.
    pub fn take_answers(&mut self, placement: Placement) -> Vec<Answer> {
        self.answers.get_mut(placement.device()).map(std::mem::take).unwrap_or_default()
    }

    /// Whether the line of the last call's caller is missing.
    pub fn lacks_line(&self) -> bool {
        self.unlocated.is_some()
            || self.queues.iter().any(|queue| queue.back().is_some_and(|launch| launch.chunk.lacks_line()))
    }

    /// Records the line of the last call's caller, where it is missing: the call is queued, or has failed.
    pub fn add_line(&mut self, placement: Placement, line: Line) {
        if let Some(unlocated) = self.unlocated.take() {
            return unlocated.locate(line);
        }
        let last = self.queues.get_mut(placement.device()).and_then(VecDeque::back_mut);
        if let Some(launch) = last.filter(|launch| launch.chunk.lacks_line()) {
            launch.chunk.add_line(line);
        }
    }

    /// Runs a chunk, or queues it until its executable is ready. Returns the chunk if it is no longer needed.
    pub fn run(
        &mut self,
        placement: Placement,
        mut chunk: Chunk,
        reason: Reason,
        context: &mut Context<'_>,
    ) -> (Submitted, Option<Chunk>) {
        if let Some(group) = chunk.group {
            return self.run_unit(placement, chunk, group, reason, context);
        }
        let usage = chunk.usage(&context.registry.types);
        if usage.live.is_empty() {
            return (Ok(()), Some(chunk));
        }
        let once = self.comes_once(&chunk, &usage);
        let (pieces, reason) = match once {
            true => (Some(chunk.each_alone()), Reason::Once),
            false => (chunk.pieces(&usage), reason),
        };
        if let Some(pieces) = pieces {
            let mut result = Ok(());
            for piece in pieces {
                result = result.and(self.run_whole(placement, piece, reason, context).0);
            }
            return (result, Some(chunk));
        }
        self.run_with(placement, chunk, usage, reason, context)
    }

    fn run_whole(
        &mut self,
        placement: Placement,
        chunk: Chunk,
        reason: Reason,
        context: &mut Context<'_>,
    ) -> (Submitted, Option<Chunk>) {
        let usage = chunk.usage(&context.registry.types);
        match usage.live.is_empty() {
            true => (Ok(()), Some(chunk)),
            false => self.run_with(placement, chunk, usage, reason, context),
        }
    }

    fn run_with(
        &mut self,
        placement: Placement,
        mut chunk: Chunk,
        usage: Usage,
        reason: Reason,
        context: &mut Context<'_>,
    ) -> (Submitted, Option<Chunk>) {
        match self.program(&chunk, &usage, context) {
            Ok((program, is_new)) => {
                if chunk.nodes.len() > 1 {
                    self.novelty.note(is_new, chunk.nodes.len());
                }
                let types = &context.registry.types;
                let noted = context.observer.note_run(&chunk, &program, is_new, placement, reason, &usage, types);
                let agreed = self.compare(placement, &chunk, &program, context.registry);
                let launch = Launch { chunk, usage, program, agreed, vote: None, reason, noted };
                self.launch_or_queue(placement, launch, context)
            }
            Err(error) => {
                let values: Vec<_> = chunk.outputs.iter().filter_map(Weak::upgrade).collect();
                lose(values.iter(), &error);
                let inputs = std::mem::take(&mut chunk.inputs);
                (Err(Failure { error, inputs }), Some(chunk))
            }
        }
    }

    fn program(&mut self, chunk: &Chunk, usage: &Usage, context: &mut Context<'_>) -> Result<(Arc<Program>, bool)> {
        let runtime = self.runtime.as_ref().ok_or_else(not_open)?;
        let stats = &mut context.observer.cache_stats;
        self.programs.find_or_build(chunk, usage, runtime, context.registry, stats, Wanted::Now)
    }

    /// The program of a chunk that does not run now. It is made in the background.
    pub fn prepare(&mut self, chunk: &Chunk, usage: &Usage, context: &mut Context<'_>) -> Result<Arc<Program>> {
        let runtime = self.runtime.as_ref().ok_or_else(not_open)?;
        let stats = &mut context.observer.cache_stats;
        let found = self.programs.find_or_build(chunk, usage, runtime, context.registry, stats, Wanted::Ahead);
        found.map(|(program, _)| program)
    }

    /// Lets the ranks compare the program of a scope, if it has collectives. The program of one collective outside a scope
    /// depends on nothing else.
    fn compare(
        &mut self,
        placement: Placement,
        chunk: &Chunk,
        program: &Program,
        registry: &Registry,
    ) -> Option<Arc<Ticket>> {
        if chunk.scope == 0 || chunk.replicas().is_empty() {
            return None;
        }
        let client = self.runtime.as_ref()?.platform.client.clone();
        let agreement = registry.agreement(chunk.replicas())?;
        let lane = agreement.lane;
        let collectives = chunk.nodes.iter().filter(|node| !node.instance.replicas().is_empty()).count();
        let operators = chunk.nodes.len();
        let described = format!("program {:016x}: {operators} operators, {collectives} collectives", program.digest);
        let job = Job::comparing(agreement, described, placement, client);
        let ticket = Arc::clone(&job.ticket);
        self.jobs.post(lane, job);
        self.begin_jobs();
        Some(ticket)
    }

    /// Launches a chunk at once if its executable is ready and the queue is empty. Otherwise its values become
    /// promises. Returns a launched chunk, so that its memory can be reused.
    fn launch_or_queue(
        &mut self,
        placement: Placement,
        launch: Launch,
        context: &mut Context<'_>,
    ) -> (Submitted, Option<Chunk>) {
        self.unlocated = None;
        if self.queues[placement.device()].is_empty() && self.can_launch(&launch) {
            let (result, chunk) = self.launch(placement, launch, context);
            return (result, Some(chunk));
        }
        for output in &launch.usage.live {
            if let Some(value) = launch.chunk.outputs[*output as usize].upgrade() {
                value.settle(ValueState::Queued);
            }
        }
        launch.chunk.inputs.iter().for_each(|input| input.hold());
        let has_flags = launch.chunk.flags().is_some_and(|flags| !flags.is_empty());
        self.queues[placement.device()].push_back(launch);
        // Debug waits for each operator. With flags of the user, the compiler's errors are raised at the call.
        if context.eager.mode == Mode::Debug || has_flags {
            // A job of the host may depend on the user's next call, so do not wait for it here.
            let waits =
                self.catch_up_to_job(placement, 1, context).is_some() || self.job_before_next(placement).is_some();
            return (if waits { Ok(()) } else { self.launch_next(placement, context) }, None);
        }
        // The executable may be ready by now, and the launcher thread may have looked before it was queued.
        self.launch_made(context);
        while self.queues[placement.device()].len() > MAX_QUEUE {
            self.launch_earlier(placement, context);
        }
        (Ok(()), None)
    }

    /// Launches the first chunks of the queues that no longer wait, and starts jobs of the host that no longer wait.
    pub fn launch_made(&mut self, context: &mut Context<'_>) {
        self.begin_jobs();
        for placement in Placement::on_each(self.queues.len()) {
            while self.queues[placement.device()].front().is_some_and(Launch::is_made)
                && self.job_before_next(placement).is_none()
            {
                self.launch_earlier(placement, context);
            }
        }
    }

    /// The executable that the first chunk of a queue waits for. A chunk that may be refused waits for the vote first.
    pub fn awaited(&self, placement: Placement) -> Option<Arc<Executable>> {
        let next = self.queues.get(placement.device())?.front()?;
        (!next.is_made() && next.comparing().is_none()).then(|| Arc::clone(&next.program.executable))
    }

    /// The runs with collectives at a placement; `None` if the plugin is not open.
    pub fn collectives(&mut self, placement: Placement) -> Option<&mut Collectives> {
        self.runtime.as_mut().map(|runtime| runtime.collectives(placement))
    }

    /// Starts the jobs of the host whose inputs are ready.
    fn begin_jobs(&mut self) {
        if let Some(runtime) = &self.runtime {
            self.jobs.begin(runtime, runtime.made);
        }
    }

    fn can_launch(&mut self, launch: &Launch) -> bool {
        launch.program.executable.is_made()
            && launch.comparing().is_none()
            && !launch.is_refused()
            && self.jobs.before(&launch.chunk.inputs, &launch.usage.donated).is_none()
    }

    /// A job of the host that must finish before the next chunk of a queue can be launched.
    fn job_before_next(&mut self, placement: Placement) -> Option<Arc<Ticket>> {
        let next = self.queues.get(placement.device())?.front()?;
        next.comparing().cloned().or_else(|| self.jobs.before(&next.chunk.inputs, &next.usage.donated))
    }

    /// Launches all but the last `left` chunks of a queue. Waits for compilers. Stops at a job of the host that must
    /// finish first, and returns it.
    pub fn catch_up_to_job(
        &mut self,
        placement: Placement,
        left: usize,
        context: &mut Context<'_>,
    ) -> Option<Arc<Ticket>> {
        while self.queues.get(placement.device()).is_some_and(|queue| queue.len() > left) {
            if let Some(job) = self.job_before_next(placement) {
                return Some(job);
            }
            self.launch_earlier(placement, context);
        }
        None
    }

    /// Launches all chunks of a queue. Waits for compilers. A read of a lost value raises its error.
    pub fn catch_up(&mut self, placement: Placement, context: &mut Context<'_>) {
        while self.queues.get(placement.device()).is_some_and(|queue| !queue.is_empty()) {
            self.launch_earlier(placement, context);
        }
    }

    fn launch_next(&mut self, placement: Placement, context: &mut Context<'_>) -> Submitted {
        while let Some(job) = self.job_before_next(placement) {
            job.wait(None);
        }
        let Some(launch) = self.queues[placement.device()].pop_front() else { return Ok(()) };
        launch.chunk.inputs.iter().for_each(|input| input.release());
        if launch.is_refused() {
            self.queue_pieces(placement, launch, context);
            return Ok(());
        }
        // Waits. The error is raised when the executable is used.
        let _ = launch.program.executable.get();
        self.launch(placement, launch, context).0
    }

    /// Launches a chunk that an earlier call queued. If it fails, the arguments that the call has written keep the
    /// failed values.
    fn launch_earlier(&mut self, placement: Placement, context: &mut Context<'_>) {
        let _ = self.launch_next(placement, context);
    }

    fn launch(&mut self, placement: Placement, launch: Launch, context: &mut Context<'_>) -> (Submitted, Chunk) {
        let Launch { mut chunk, usage, program, agreed, reason, noted, .. } = launch;
        let values: Vec<Option<Arc<Value>>> =
            usage.live.iter().map(|&output| chunk.outputs[output as usize].upgrade()).collect();
        let agreed = agreed.and_then(|ticket| ticket.result()).unwrap_or(Ok(()));
        let agreed = agreed.map_err(|error| match chunk.calls.first() {
            Some(call) => error.within(&call.name()),
            None => error,
        });
        let executed = agreed.and_then(|()| self.execute(placement, &chunk, &program, &values, noted, context));
        let executed = executed.map(|run| self.keep_donated(run, &chunk, &usage));
        self.begin_jobs();
        if self.runtime.as_ref().is_some_and(|runtime| runtime.platform.is_dry) {
            // Its numbers are invented: they tell nothing of the data.
            chunk.checks.clear();
        }
        answers::keep(&mut self.answers[placement.device()], &mut chunk);
        let result = match executed {
            // An error found by Debug mode in the results does not undo them.
            Ok(()) if context.eager.mode == Mode::Debug => {
                let inspected =
                    inspect(&program, &chunk, &usage, &values, &context.registry.types, context.eager.check_finite);
                if let Err(error) = &inspected {
                    wait_for(self.note_raised(placement, error));
                }
                let inspected = inspected.map_err(|error| error.at(&chunk.line_of(0).name()));
                inspected.and(look(&self.take_answers(placement))).map_err(Failure::from)
            }
            Ok(()) => Ok(()),
            Err(error) => {
                if error.kind == ErrorKind::OutOfMemory {
                    memory::count_out_of_memory(placement);
                }
                // The other ranks run the whole chunk.
                if chunk.nodes.len() > 1 && chunk.replicas().is_empty() {
                    // Only the results of the operator that failed, and those that depend on it, should be lost.
                    self.run_one_by_one(placement, &chunk, reason, context);
                    Ok(())
                } else {
                    let error = error.at(&chunk.line_of(0).name());
                    lose(values.iter().flatten(), &error);
                    self.unlocated = chunk.lacks_line().then(|| Unlocated::new(&error, values.iter().flatten()));
                    Err(Failure { error, inputs: std::mem::take(&mut chunk.inputs) })
                }
            }
        };
        (result, chunk)
    }

    /// Notes that the host is told of a run that failed: a later synchronization does not tell it again. Returns the
    /// runs that it would have waited for. The caller waits for them instead.
    #[must_use]
    pub fn note_raised(&mut self, placement: Placement, error: &Error) -> Vec<Arc<Event>> {
        if error.kind == ErrorKind::OutOfMemory {
            memory::count_out_of_memory(placement);
        }
        self.runtime.as_mut().map(|runtime| runtime.take_in_flight(placement)).unwrap_or_default()
    }

    fn keep_donated(&mut self, run: Option<Arc<Event>>, chunk: &Chunk, usage: &Usage) {
        if let (Some(run), Some(runtime)) = (run, &mut self.runtime) {
            let donated = chunk.inputs.iter().zip(&usage.donated).filter(|(_, donated)| **donated);
            runtime.keep_donated(run, donated.map(|(value, _)| Arc::clone(value)).collect());
        }
    }
}

/// Waits for runs, of whose failures the host has been told.
pub(crate) fn wait_for(runs: Vec<Arc<Event>>) {
    for run in runs {
        let _ = run.wait();
    }
}

fn not_open() -> Error {
    Error::runtime("the plugin is not open")
}
