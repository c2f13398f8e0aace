//! The engine's state: its settings, and what is known of operators.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use aten::{Call, CallBody, Graph, ResultSpec, lower_call};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use stablehlo::Precision;

use crate::cache::memory::{self, Limit};
use crate::cache::{self, Cache};
use crate::call::{Arg, Meta, to_spec};
use crate::checks::Answer;
use crate::chunk::Chunk;
use crate::constants::Constants;
use crate::error::{Error, Result};
use crate::explain::{Explanation, Reason};
use crate::familiar::Rhythm;
use crate::instance::{Instance, Types};
use crate::key::{CallParts, Specs, key_without_offsets};
use crate::launch::Queue;
use crate::operators::{Operator, SchemaArg};
use crate::platform;
use crate::program::Program;
use crate::record;
use crate::runtime::Runtime;
use crate::stats::{CacheStats, OpStats};
use crate::storage::{TypeId, Value};

/// When recorded operators run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Each at once; the call waits for it.
    Debug,
    /// Each at once; the call does not wait.
    Strict,
    /// Together, when a result is needed or the chunk is full.
    Fused,
}

/// How many offsets of a view get programs of their own before the others share one.
const OWN_OFFSETS: u32 = 4;

/// How many lowered calls are kept in memory for each program that is.
const INSTANCES_PER_PROGRAM: usize = 8;

/// Calls that can share a program which takes the offsets of their views as inputs.
#[derive(Default)]
pub(crate) struct Family {
    /// How many were lowered.
    offsets: u32,
    /// The shared one.
    instance: Option<Arc<Instance>>,
}

/// How a call ended, short of an error.
#[derive(Debug)]
pub enum Status {
    /// It is recorded, or has run; this many fresh results are there.
    Done(usize),
    /// The key is new: [`Engine::define`] lowers it.
    NewKey,
    /// The operator does not take such numbers; the error says so.
    Refused(Error),
    /// Arguments that are written to must take other sizes first: [`Engine::result_sizes`] gives them.
    OtherSizes,
    /// This many fresh results need a place.
    NeedsRoom(usize),
}

/// How a definition ended, short of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defined {
    Lowered,
    /// The table has no row for the operator.
    NoRow,
}

pub struct Engine {
    runtime: Option<Runtime>,
    pub(crate) types: Types,
    /// The type of a size that the data decides.
    pub(crate) ty_of_count: TypeId,
    pub(crate) operators: Vec<Operator>,
    pub(crate) instances: FxHashMap<Box<[u64]>, Arc<Instance>>,
    next_instance: u32,
    /// Calls that differ in the offsets of their views only, by their key without those.
    pub(crate) families: FxHashMap<Box<[u64]>, Family>,
    pub(crate) programs: FxHashMap<Box<[u64]>, Arc<Program>>,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) rhythms: Vec<Rhythm>,
    pub(crate) next_chunk: u64,
    /// Results that follow from no data, for the calls that will ask for them again.
    pub(crate) constants: Constants,
    /// Flushed chunks that wait for their executables, by device.
    pub(crate) queues: Vec<Queue>,
    /// What programs have answered that nobody has looked at, by device.
    pub(crate) answers: Vec<Vec<Answer>>,
    /// The inputs of the last chunk that failed.
    pub(crate) failed_inputs: Vec<Arc<Value>>,
    pub(crate) parts: CallParts,
    graphs: HashMap<u64, Arc<Graph>>,
    pub(crate) mode: Mode,
    /// The open scopes of which each wants what it calls, compiled graphs included, to become one program.
    pub(crate) joining: Vec<u64>,
    pub(crate) check_finite: bool,
    precision: Precision,
    pub(crate) cache_stats: CacheStats,
    /// Counts calls: what was used last is told by it.
    pub(crate) clock: u64,
    pub(crate) max_programs: Limit,
    /// What the results of a chunk may take on its device.
    pub(crate) max_chunk_bytes: usize,
    /// The programs in memory, or more.
    pub(crate) held_programs: Limit,
    pub(crate) op_stats: OpStats,
    /// What happens, while someone wants it explained.
    pub(crate) explanation: Option<Box<Explanation>>,
    pub(crate) dump_folder: Option<PathBuf>,
    pub(crate) dumped_programs: usize,
    pub(crate) copy_operator: u32,
    pub(crate) clone_operator: u32,
}

static ENGINE: LazyLock<Mutex<Engine>> = LazyLock::new(|| Mutex::new(Engine::new()));
static FORKED: AtomicBool = AtomicBool::new(false);
static OPENED: AtomicBool = AtomicBool::new(false);

/// The process's engine.
///
/// # Errors
/// In a forked child of a process that had used a device: locks and threads did not survive the fork.
pub fn lock() -> Result<MutexGuard<'static, Engine>> {
    fork_guard()?;
    Ok(ENGINE.lock())
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

/// Whether this process is a forked child of one that had used a device.
pub fn in_bad_fork() -> bool {
    FORKED.load(Relaxed)
}

extern "C" fn after_fork_in_child() {
    FORKED.store(OPENED.load(Relaxed), Relaxed);
}

impl Engine {
    fn new() -> Engine {
        // SAFETY: the handler only touches two atomics.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
        let mut types = Types::default();
        let ty_of_count = types.intern(&stablehlo::Type::new(stablehlo::DType::I64, &[]));
        let mut engine = Engine {
            runtime: None,
            types,
            ty_of_count,
            operators: Vec::new(),
            instances: FxHashMap::default(),
            next_instance: 0,
            families: FxHashMap::default(),
            programs: FxHashMap::default(),
            chunks: Vec::new(),
            rhythms: Vec::new(),
            explanation: None,
            next_chunk: 1,
            constants: Constants::default(),
            queues: Vec::new(),
            answers: Vec::new(),
            failed_inputs: Vec::new(),
            parts: CallParts::default(),
            graphs: HashMap::new(),
            mode: Mode::Strict,
            joining: Vec::new(),
            check_finite: false,
            precision: Precision::Highest,
            cache_stats: CacheStats::default(),
            clock: 0,
            max_programs: cache::programs_in_memory(),
            max_chunk_bytes: usize::MAX,
            held_programs: Limit { count: 0, bytes: 0 },
            op_stats: OpStats::default(),
            dump_folder: None,
            dumped_programs: 0,
            copy_operator: 0,
            clone_operator: 0,
        };
        let tensor = |name: &str, is_mutated| SchemaArg {
            name: name.into(),
            ty: "Tensor".into(),
            is_mutated,
            is_out: false,
            default: None,
        };
        engine.copy_operator = engine.register("copy_", "copy", &[tensor("self", true), tensor("src", false)]).0;
        engine.clone_operator = engine.register("clone", "clone", &[tensor("self", false)]).0;
        engine
    }

    // ---- settings --------------------------------------------------------------------------------

    /// The open plugin; opens it at the first call.
    pub(crate) fn runtime(&mut self) -> Result<&mut Runtime> {
        if self.runtime.is_none() {
            let runtime = Runtime::open()?;
            self.chunks = (0..runtime.platform.devices.len()).map(|i| Chunk::new(i as u64)).collect();
            self.queues = self.chunks.iter().map(|_| Queue::new()).collect();
            self.answers = self.chunks.iter().map(|_| Vec::new()).collect();
            self.rhythms = self.chunks.iter().map(|_| Rhythm::default()).collect();
            self.next_chunk = self.chunks.len() as u64;
            self.max_chunk_bytes = record::max_chunk_bytes(&runtime.platform);
            self.runtime = Some(runtime);
            OPENED.store(true, Relaxed);
        }
        self.runtime.as_mut().ok_or_else(|| Error::runtime("the plugin is not open"))
    }

    pub fn is_open(&self) -> bool {
        self.runtime.is_some()
    }

    pub fn platform(&mut self) -> Result<&crate::platform::Platform> {
        Ok(&self.runtime()?.platform)
    }

    pub fn mode(&self) -> (Mode, bool) {
        (self.mode, self.check_finite)
    }

    /// Changes the mode; what was recorded runs first. Should that fail, the values concerned say so when
    /// they are read: the change of mode is not what failed.
    pub fn set_mode(&mut self, mode: Mode, check_finite: bool) -> Result<()> {
        let _ = self.flush_all(Reason::Mode);
        self.mode = mode;
        self.check_finite = check_finite;
        self.update_wanted_lines();
        Ok(())
    }

    pub fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
    }

    /// Where the texts of programs go. What was built before is forgotten, so that none is missing that runs from now on.
    pub fn set_dump_folder(&mut self, folder: Option<PathBuf>) {
        if folder.is_some() {
            self.evict_programs(Limit { count: 0, bytes: 0 });
        }
        self.dump_folder = folder;
    }

    pub fn cache_stats(&self) -> CacheStats {
        let compiled = self.runtime.as_ref().map(|runtime| runtime.cache.stats());
        self.cache_stats.and(compiled.unwrap_or_default())
    }

    pub fn reset_cache_stats(&mut self) {
        self.cache_stats = CacheStats::default();
        if let Some(runtime) = &self.runtime {
            runtime.cache.reset_stats();
        }
    }

    /// The executables of the open plugin, if one is open.
    pub fn cache(&self) -> Option<Arc<Cache>> {
        self.runtime.as_ref().map(|runtime| Arc::clone(&runtime.cache))
    }

    pub fn op_stats(&self) -> OpStats {
        self.op_stats.clone()
    }

    pub fn reset_op_stats(&mut self) {
        self.op_stats = OpStats::default();
    }

    pub fn count_fallback(&mut self, op: u32) {
        let name = self.operators[op as usize].name.clone();
        *self.op_stats.fallen_back.entry(name).or_default() += 1;
    }

    /// Gives back memory that is only kept for reuse.
    pub fn empty_cache(&mut self) {
        if let Some(runtime) = &mut self.runtime {
            runtime.clear_caches();
        }
        self.constants.clear();
        platform::return_freed_memory();
    }

    // ---- operators -------------------------------------------------------------------------------

    /// Registers an operator; says whether the table has a row for it.
    pub fn register(&mut self, name: &str, functional: &str, args: &[SchemaArg]) -> (u32, bool) {
        let operator = Operator::new(name, functional, args);
        let has_row = operator.row.is_some();
        self.operators.push(operator);
        (self.operators.len() as u32 - 1, has_row)
    }

    /// Whether the precision of products matters to an operator, as far as its lowerings have shown.
    pub fn follows_precision(&self, op: u32) -> bool {
        self.operators[op as usize].follows_precision
    }

    /// Keeps a traced decomposition until it is defined; returns its handle.
    pub fn add_graph(&mut self, graph: Graph) -> u64 {
        let handle = self.graphs.len() as u64 + 1;
        self.graphs.insert(handle, Arc::new(graph));
        handle
    }

    pub(crate) fn find(&mut self, op: u32, args: &[Arg]) -> Option<Arc<Instance>> {
        let operator = &self.operators[op as usize];
        let options = if operator.follows_precision { self.precision as u64 } else { 0 };
        self.parts.encode(op, operator, args, options);
        self.clock += 1;
        if let Some(instance) = self.instances.get(&self.parts.key[..]) {
            instance.last_use.set(self.clock);
            return Some(Arc::clone(instance));
        }
        // A view at a new offset may share the program of others.
        let key = key_without_offsets(&self.parts, operator, args, &self.types)?;
        let instance = self.families.get(&key)?.instance.clone()?;
        self.remember(Arc::clone(&instance));
        Some(instance)
    }

    /// Adds an instance by the key at hand; those that were not used for the longest time make room.
    fn remember(&mut self, instance: Arc<Instance>) {
        let limit = Limit { count: self.max_programs.count * INSTANCES_PER_PROGRAM, ..self.max_programs };
        if self.instances.len() >= limit.count {
            let held = self.instances.values().map(|each| (each.last_use.get(), 0)).collect();
            let deadline = memory::deadline(held, limit);
            let before = self.instances.len();
            self.instances.retain(|_, each| each.last_use.get() > deadline);
            self.families.retain(|_, family| {
                family.instance.as_ref().is_some_and(|instance| instance.last_use.get() > deadline)
            });
            self.cache_stats.evictions += (before - self.instances.len()) as u64;
        }
        instance.last_use.set(self.clock);
        self.instances.insert(self.parts.key.clone().into_boxed_slice(), instance);
    }

    /// The sizes that the written arguments must take after [`Status::OtherSizes`], in their order; empty where they fit.
    pub fn result_sizes(&mut self, op: u32, args: &[Arg]) -> Vec<Meta> {
        self.find(op, args).map_or_else(Vec::new, |instance| instance.result_sizes())
    }

    /// Lowers a new key.
    ///
    /// # Errors
    /// Where the call is to be refused, or cannot be lowered.
    pub fn define(&mut self, op: u32, args: &[Arg], metas: Option<&[Meta]>, graph: u64) -> Result<Defined> {
        self.unpad(args)?;
        if self.find(op, args).is_some() {
            return Ok(Defined::Lowered);
        }
        let target = self.runtime()?.platform.target;
        let operator = &mut self.operators[op as usize];
        let compiled = operator.compiled.clone();
        let compiled = compiled.as_ref();
        let body = match (compiled.map(|compiled| &compiled.graph).or(self.graphs.get(&graph)), operator.row) {
            (Some(graph), _) => CallBody::Graph(Arc::clone(graph)),
            (None, Some(row)) => CallBody::Row(row),
            (None, None) => return Ok(Defined::NoRow),
        };
        // A few offsets get programs of their own, which XLA makes a little better; then they share one.
        let family = key_without_offsets(&self.parts, operator, args, &self.types)
            .map(|key| self.families.entry(key).or_default());
        let own_offsets = if compiled.is_some() { 0 } else { OWN_OFFSETS };
        let open_offsets = family.as_ref().is_some_and(|family| family.offsets >= own_offsets);
        let mut specs = Specs::new(&self.types, open_offsets);
        let mut lowered_args = Vec::with_capacity(args.len());
        for ((arg, info), ty) in args.iter().zip(&operator.args).zip(&operator.types) {
            lowered_args.push(specs.arg(arg, *info, ty)?);
        }
        let decomposed = compiled.is_none() && matches!(body, CallBody::Graph(_));
        let results = match (compiled, metas) {
            (Some(compiled), _) => Some(compiled.results.iter().cloned().map(Some).collect()),
            (None, metas) => metas.map(|metas| metas.iter().map(to_spec).collect()).transpose()?,
        };
        let call = Call {
            operator: operator.name.clone(),
            body,
            names: operator.names.clone(),
            args: lowered_args,
            storages: specs.storages,
            mutated: operator.mutated.clone(),
            results,
            precision: self.precision,
            target,
            is_checked: true,
        };
        let lowered = match unfitting_results(&call) {
            // The key of the resized arguments is another one, which will be lowered.
            Some(results) => Err(results),
            None => Ok(lower_call(&call)?),
        };
        if lowered.as_ref().is_ok_and(|lowered| lowered.follows_precision) && !operator.follows_precision {
            operator.follows_precision = true;
            let options = self.precision as u64;
            self.parts.encode(op, operator, args, options);
        }
        let id = self.next_instance;
        self.next_instance += 1;
        let compiled = compiled.cloned();
        let arguments = args.iter().map(Arg::to_string).collect();
        let instance = Instance::new(id, &call.operator, arguments, decomposed, compiled, lowered, &mut self.types);
        let instance = Arc::new(instance);
        if let Some(explanation) = &mut self.explanation {
            explanation.note_new_call(&instance, self.instances.values());
        }
        if let Some(family) = family {
            family.offsets += 1;
            family.instance = open_offsets.then(|| Arc::clone(&instance));
        }
        self.remember(instance);
        self.graphs.remove(&graph);
        Ok(Defined::Lowered)
    }
}

/// The results of the written arguments when one does not fit its argument.
fn unfitting_results(call: &Call) -> Option<Vec<ResultSpec>> {
    let results = call.results.as_ref()?;
    let targets = call.written_tensors();
    let fits = targets.iter().zip(results).all(|(target, r)| r.as_ref().is_none_or(|r| r.sizes == target.sizes));
    if fits { None } else { results.iter().take(targets.len()).cloned().collect() }
}
