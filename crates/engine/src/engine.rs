//! The engine: its four parts, its settings, and the flush, which connects them.
//!
//! The registry has the lowered calls, the recorder has the calls that have not run, the runner runs them, and the
//! observer records statistics and explanations.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use aten::{Graph, Row};
use parking_lot::{Mutex, MutexGuard};
use stablehlo::{DType, Precision};

use crate::cache::{self, Cache};
use crate::call::Arg;
use crate::error::{Error, ErrorKind, Result};
use crate::growth::Setting;
use crate::interrupt;
use crate::lines;
use crate::memory;
use crate::mode::{EagerMode, Mode};
use crate::observe::Observer;
use crate::observe::explain::Explanation;
use crate::observe::profile::Profile;
use crate::placement::{Numbers, Placement};
use crate::platform::{self, Platform};
use crate::record::chunk::Chunk;
use crate::record::reason::Reason;
use crate::record::{Recorder, scopes};
use crate::registry::Registry;
use crate::registry::compiled::{CompiledGraph, SchemaArg};
use crate::registry::key::CallParts;
use crate::run::runtime::Runtime;
use crate::run::{Context, Runner, Submitted, launcher};
use crate::stats::{CacheStats, OpStats};
use crate::ticket::Ticket;

pub struct Engine {
    pub(crate) registry: Registry,
    pub(crate) recorder: Recorder,
    pub(crate) runner: Runner,
    pub(crate) observer: Observer,
    /// The mode of callers whose scope has none.
    pub(crate) eager: EagerMode,
    /// Buffers for splitting a call into its parts, reused by the next call.
    pub(crate) spare_parts: CallParts,
    /// The operators that the engine calls for its own copies.
    pub(crate) copy_operator: u32,
    pub(crate) clone_operator: u32,
}

static ENGINE: LazyLock<Mutex<Engine>> = LazyLock::new(|| Mutex::new(Engine::new()));
static FORKED: AtomicBool = AtomicBool::new(false);
static OPENED: AtomicBool = AtomicBool::new(false);

/// Locks the process's engine.
///
/// # Errors
/// In a forked child of a process that had used a device, because locks and threads do not survive a fork.
pub fn lock() -> Result<MutexGuard<'static, Engine>> {
    fork_guard()?;
    Ok(ENGINE.lock())
}

/// Locks the engine, unless another thread uses it.
pub(crate) fn try_lock() -> Option<MutexGuard<'static, Engine>> {
    ENGINE.try_lock()
}

/// Fails in a forked child of a process that had used a device.
pub fn fork_guard() -> Result<()> {
    if in_bad_fork() {
        return Err(Error::runtime(
            "Cannot re-initialize tpu in forked subprocess. To use tpu with multiprocessing, you must use the \
             'spawn' start method",
        ));
    }
    Ok(())
}

/// Whether this process is a forked child of a process that had used a device.
pub fn in_bad_fork() -> bool {
    FORKED.load(Relaxed)
}

extern "C" fn after_fork_in_child() {
    FORKED.store(OPENED.load(Relaxed), Relaxed);
}

/// Launches the programs whose executables are now compiled, and those that waited for a finished job of the host.
fn launch_made() {
    if let Ok(mut engine) = lock() {
        engine.launch_made();
    }
}

/// Launches everything recorded for a placement, and locks the engine. The lock is not held during waits for jobs of
/// the host. Also returns the result of the flush.
pub(crate) fn lock_when_launched(
    placement: Placement,
    reason: Reason,
) -> Result<(MutexGuard<'static, Engine>, Result<()>)> {
    let mut flushed = Ok(());
    loop {
        let mut engine = lock()?;
        flushed = flushed.and(engine.flush(placement, reason).map_err(Error::from));
        // Compiling may take long: other threads go on meanwhile, and the user may end the wait.
        engine.launch_made();
        engine.with_runner(|runner, context| runner.launch_meanwhile(placement, context));
        if let Some(executable) = engine.runner.awaited(placement) {
            drop(engine);
            interrupt::wait_for(&executable)?;
            continue;
        }
        let Some(job) = engine.catch_up_to_job(placement) else { return Ok((engine, flushed)) };
        drop(engine);
        job.wait(None);
    }
}

/// The most bytes that the results of a chunk may take: half of the device's memory, or `TORCHTPU_CHUNK_BYTES`.
fn max_chunk_bytes(platform: &Platform) -> usize {
    let total = platform.memory(0).map_or(0, |(_, total)| total);
    let bytes = cache::chunk_bytes().or((total > 0).then_some(total / 2));
    bytes.map_or(usize::MAX, |bytes| bytes as usize)
}

/// What is known of an operator that was registered.
pub struct Registered<'a> {
    pub id: u32,
    /// Its row, if the table lowers it.
    pub row: Option<&'static Row>,
    /// The positions of the arguments that it writes.
    pub mutated: &'a [usize],
}

impl Engine {
    fn new() -> Engine {
        // SAFETY: the handler only accesses two atomics.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
        let limit = cache::programs_in_memory();
        let mut registry = Registry::new(limit);
        let tensor = |name: &str, is_mutated| SchemaArg {
            name: name.into(),
            ty: "Tensor".into(),
            is_mutated,
            is_out: false,
            default: None,
        };
        let copy_operator = registry.register("copy_", "copy", &[tensor("self", true), tensor("src", false)]);
        let clone_operator = registry.register("clone", "clone", &[tensor("self", false)]);
        Engine {
            registry,
            recorder: Recorder::new(),
            runner: Runner::new(limit),
            observer: Observer::default(),
            eager: EagerMode { mode: Mode::Strict, check_finite: false },
            spare_parts: CallParts::default(),
            copy_operator,
            clone_operator,
        }
    }

    // ---- the plugin ------------------------------------------------------------------------------

    /// Opens the plugin at the first call.
    pub(crate) fn open(&mut self) -> Result<()> {
        if self.runner.opened().is_none() {
            let runtime = self.runner.open(|| launcher::wake(launch_made))?;
            let devices = &runtime.platform.devices;
            Numbers::keep(devices.len());
            for (placement, device) in Placement::on_each(devices.len()).zip(devices) {
                // A dry device says what fits at the end, and does not refuse before.
                let capacity = if runtime.platform.is_dry { None } else { device.total_memory };
                memory::set_capacity(placement, capacity.unwrap_or(0));
            }
            self.recorder.open(devices.len(), max_chunk_bytes(&runtime.platform));
            OPENED.store(true, Relaxed);
        }
        Ok(())
    }

    /// The open plugin. Opens it at the first call.
    pub(crate) fn runtime(&mut self) -> Result<&mut Runtime> {
        self.open()?;
        self.runner.runtime()
    }

    pub fn is_open(&self) -> bool {
        self.runner.opened().is_some()
    }

    /// Whether the open device is one that computes nothing.
    pub(crate) fn is_dry(&self) -> bool {
        self.runner.opened().is_some_and(|runtime| runtime.platform.is_dry)
    }

    pub fn platform(&mut self) -> Result<&Platform> {
        Ok(&self.runtime()?.platform)
    }

    /// The cache of the open plugin, if one is open.
    pub fn cache(&self) -> Option<Arc<Cache>> {
        self.runner.opened().map(|runtime| Arc::clone(&runtime.cache))
    }

    /// The placements on each device of the open plugin.
    pub(crate) fn placements(&self) -> impl Iterator<Item = Placement> + use<> {
        Placement::on_each(self.runner.opened().map_or(0, |runtime| runtime.platform.devices.len()))
    }

    // ---- settings --------------------------------------------------------------------------------

    /// The mode of a scope, or of the process if the scope has none; and whether results are checked for NaN and
    /// infinities.
    pub fn mode(&self, scope: u64) -> (Mode, bool) {
        let eager = self.recorder.scopes.mode_of(scope).unwrap_or(self.eager);
        (eager.mode, eager.check_finite)
    }

    /// Whether calls of the caller wait for their results.
    pub fn is_synchronous(&self) -> bool {
        self.caller_mode().mode == Mode::Debug
    }

    #[inline]
    pub(crate) fn caller_mode(&self) -> EagerMode {
        self.recorder.scopes.mode_of_caller().unwrap_or(self.eager)
    }

    /// Changes the mode of the process, which scopes without a mode have. Recorded calls run first. If they fail, a read
    /// of their results raises the error; the change of mode does not fail.
    pub fn set_mode(&mut self, mode: Mode, check_finite: bool) -> Result<()> {
        let _ = self.flush_all(Reason::Mode);
        self.eager = EagerMode { mode, check_finite };
        self.update_wanted_lines();
        Ok(())
    }

    pub fn set_precision(&mut self, precision: Precision) {
        self.registry.precision = precision;
    }

    /// Sets what `torch.get_default_dtype()` returns.
    pub fn set_default_dtype(&mut self, dtype: DType) {
        self.registry.default_dtype = dtype;
    }

    /// Sets the folder for the texts of programs. Drops the programs built before, so that the folder gets the text
    /// of every program that runs from now on.
    pub fn set_dump_folder(&mut self, folder: Option<PathBuf>) {
        self.runner.programs.dump_to(folder, &self.registry, &mut self.observer.cache_stats);
    }

    /// Frees memory that is only kept for reuse.
    pub fn empty_cache(&mut self) {
        self.runner.clear_caches();
        platform::return_freed_memory();
    }

    // ---- operators -------------------------------------------------------------------------------

    /// Registers an operator.
    pub fn register(&mut self, name: &str, functional: &str, args: &[SchemaArg]) -> Registered<'_> {
        let id = self.registry.register(name, functional, args);
        let operator = self.registry.operator(id);
        Registered { id, row: operator.row, mutated: &operator.mutated }
    }

    /// Registers a compiled graph, which is called like an operator.
    pub fn register_graph(&mut self, graph: CompiledGraph) -> u32 {
        self.registry.register_graph(graph)
    }

    /// Removes a compiled graph that can no longer be called, and its programs.
    pub fn forget_graph(&mut self, op: u32) {
        self.registry.forget_graph(op);
    }

    /// Keeps a traced decomposition until it is defined. Returns its handle.
    pub fn add_graph(&mut self, graph: Graph) -> u64 {
        self.registry.add_graph(graph)
    }

    /// Whether any lowering of the operator so far depends on the precision of products.
    pub fn follows_precision(&self, op: u32) -> bool {
        self.registry.operator(op).follows_precision
    }

    // ---- counters and explanations ---------------------------------------------------------------

    pub fn cache_stats(&self) -> CacheStats {
        let compiled = self.runner.opened().map(|runtime| runtime.cache.stats());
        let mut stats = self.observer.cache_stats.and(compiled.unwrap_or_default());
        stats.evictions += self.registry.evictions;
        stats
    }

    pub fn reset_cache_stats(&mut self) {
        self.observer.cache_stats = CacheStats::default();
        self.registry.evictions = 0;
        if let Some(runtime) = self.runner.opened() {
            runtime.cache.reset_stats();
        }
    }

    pub fn op_stats(&self) -> OpStats {
        self.observer.op_stats.clone()
    }

    /// Sets how sizes that change are treated, and forgets the sizes that were seen, also those of values that live.
    pub fn set_sizes(&mut self, setting: Setting) {
        self.registry.set_sizes(setting);
    }

    pub fn reset_op_stats(&mut self) {
        self.observer.op_stats = OpStats::default();
    }

    /// Counts a call that runs on the CPU because its operator has neither row nor decomposition. Returns whether it is
    /// the operator's first one since the counters were reset.
    ///
    /// # Errors
    /// If `TORCHTPU_CPU_FALLBACK` does not allow it.
    pub fn fall_back(&mut self, op: u32, args: &[Arg], placement: Placement) -> Result<bool> {
        let name = self.registry.operator(op).name.clone();
        if !platform::allows_cpu_fallback() {
            let args: Vec<String> = args.iter().map(Arg::to_string).collect();
            let message = format!(
                "{name}: no lowering and no decomposition for ({}) on {placement}. Set TORCHTPU_CPU_FALLBACK=1 to run \
                 such operators on the CPU (slow), or report the operator.",
                args.join(", ")
            );
            return Err(Error::new(ErrorKind::NotImplemented, message));
        }
        let count = self.observer.op_stats.fallen_back.entry(name).or_default();
        *count += 1;
        Ok(*count == 1)
    }

    /// Starts an explanation, with the texts of programs if `with_texts`.
    ///
    /// # Errors
    /// If an explanation is in progress.
    pub fn begin_explaining(&mut self, with_texts: bool) -> Result<()> {
        self.observer.check_idle()?;
        self.launch_everything(Reason::Synchronize)?;
        self.observer.begin_explaining(with_texts);
        self.update_wanted_lines();
        Ok(())
    }

    /// Ends the explanation and returns it.
    pub fn end_explaining(&mut self) -> Option<Box<Explanation>> {
        // A read of the results raises the error.
        let _ = self.launch_everything(Reason::Synchronize);
        let explanation = self.observer.end_explaining()?;
        self.update_wanted_lines();
        Some(explanation)
    }

    /// Starts to record what devices run. Queued programs are launched first.
    pub fn begin_profile(&mut self) {
        self.placements().for_each(|placement| self.catch_up(placement));
        self.observer.begin_profile();
    }

    /// Ends the recording after queued programs are launched. Calls that have not been flushed stay recorded.
    pub fn end_profile(&mut self) -> Option<Box<Profile>> {
        self.placements().for_each(|placement| self.catch_up(placement));
        self.observer.end_profile()
    }

    /// Requests callers' lines while something needs them.
    pub(crate) fn update_wanted_lines(&self) {
        let is_new = self.recorder.is_unfamiliar() || self.runner.lacks_line();
        let is_debug = self.eager.mode == Mode::Debug || self.recorder.scopes.have(Mode::Debug);
        lines::want(is_debug || self.observer.is_explaining() || is_new);
    }

    /// Records the line of the last call's caller, if it was not requested before the call.
    pub fn locate_last_call(&mut self, placement: Placement) {
        match self.recorder.chunk(placement).filter(|chunk| !chunk.is_empty()) {
            Some(chunk) if chunk.lacks_line() => chunk.add_line(lines::caller()),
            Some(_) => {}
            // In Strict, the call is queued already, or has failed.
            None => self.runner.add_line(placement, lines::caller()),
        }
        self.update_wanted_lines();
    }

    // ---- scopes ----------------------------------------------------------------------------------

    /// Starts a scope. All calls in it until [`Engine::end_join`] become one program. With `is_spmd`, the caller promises
    /// that all ranks run the same calls there, and collectives are parts of the program.
    pub fn begin_join(&mut self, scope: u64, is_spmd: bool) -> Result<()> {
        if !self.recorder.scopes.has_joins() {
            self.flush_all(Reason::CompiledGraph)?;
        }
        self.recorder.scopes.begin_join(scope, is_spmd);
        Ok(())
    }

    /// Ends a scope. The last end of a scope runs its program.
    pub fn end_join(&mut self, scope: u64) -> Result<()> {
        self.recorder.scopes.end_join(scope);
        let (is_last, is_over) = (!self.recorder.scopes.has_joins(), !self.recorder.scopes.joins(scope));
        self.flush_where(Reason::Joined, |chunk| is_last || is_over && chunk.scope == scope)
    }

    /// Gives the scope of the calling thread a mode of its own, until [`Engine::end_mode`] of the same change. Calls that
    /// are recorded run first, if they were recorded in the caller's mode.
    pub fn begin_mode(&mut self, scope: u64, change: u64, mode: Mode, check_finite: bool) {
        scopes::set_caller(scope);
        self.flush_fused_calls();
        self.recorder.scopes.begin_mode(scope, change, EagerMode { mode, check_finite });
        self.update_wanted_lines();
    }

    pub fn end_mode(&mut self, scope: u64, change: u64) {
        scopes::set_caller(scope);
        self.flush_fused_calls();
        self.recorder.scopes.end_mode(change);
        self.update_wanted_lines();
    }

    /// Runs what the caller has recorded in Fused. If it fails, a read of its results raises the error.
    fn flush_fused_calls(&mut self) {
        if self.caller_mode().mode == Mode::Fused {
            let _ = self.flush_where(Reason::Mode, |chunk| chunk.scope == 0);
        }
    }

    // ---- flushes ---------------------------------------------------------------------------------

    pub(crate) fn with_runner<T>(&mut self, f: impl FnOnce(&mut Runner, &mut Context<'_>) -> T) -> T {
        let eager = self.caller_mode();
        let Engine { registry, runner, observer, .. } = self;
        f(runner, &mut Context { registry, observer, eager })
    }

    /// Submits the chunk of a placement. If that fails, a read of its results raises the error; everything else is
    /// unchanged.
    pub(crate) fn flush(&mut self, placement: Placement, reason: Reason) -> Submitted {
        self.recorder.end_stretch(placement, reason);
        let Some(chunk) = self.recorder.take(placement, self.caller_mode().mode) else { return Ok(()) };
        let begun = self.observer.begin_flush();
        let (result, emptied) = self.with_runner(|runner, context| runner.run(placement, chunk, reason, context));
        self.observer.end_flush(begun);
        if let Some(chunk) = emptied {
            self.recorder.reuse(placement, chunk);
        }
        self.update_wanted_lines();
        result
    }

    pub fn flush_all(&mut self, reason: Reason) -> Result<()> {
        self.flush_where(reason, |_| true)
    }

    fn flush_where(&mut self, reason: Reason, is_meant: impl Fn(&Chunk) -> bool) -> Result<()> {
        let mut result = Ok(());
        for placement in self.placements() {
            if self.recorder.chunk(placement).is_some_and(|chunk| is_meant(chunk)) {
                result = result.and(self.flush(placement, reason).map_err(Error::from));
            }
        }
        result
    }

    /// Submits the chunk of a placement and launches it. Its values are then ready, or being computed.
    pub(crate) fn launch_all(&mut self, placement: Placement, reason: Reason) -> Submitted {
        let result = self.flush(placement, reason);
        self.catch_up(placement);
        result
    }

    /// Launches everything that was flushed for a placement. Waits for compilers, where no other programs can run.
    pub(crate) fn catch_up(&mut self, placement: Placement) {
        self.with_runner(|runner, context| {
            runner.launch_meanwhile(placement, context);
            runner.catch_up(placement, context);
        });
    }

    /// Launches everything that was flushed for a placement. Waits for compilers. Stops at a job of the host that
    /// must finish first, and returns it.
    pub(crate) fn catch_up_to_job(&mut self, placement: Placement) -> Option<Arc<Ticket>> {
        self.with_runner(|runner, context| runner.catch_up_to_job(placement, 0, context))
    }

    /// Launches everything that no longer waits.
    pub(crate) fn launch_made(&mut self) {
        self.with_runner(|runner, context| runner.launch_made(context));
        self.update_wanted_lines();
    }

    /// [`Engine::launch_all`] for every placement.
    fn launch_everything(&mut self, reason: Reason) -> Result<()> {
        let result = self.flush_all(reason);
        self.placements().for_each(|placement| self.catch_up(placement));
        result
    }
}
