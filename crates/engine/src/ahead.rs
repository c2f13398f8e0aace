//! Compiles programs for TPUs that this machine does not have, and returns the compiler's report or error.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use parking_lot::Mutex;
use pjrt::{Code, CompileOptions, CompiledMemoryStats, PhaseCompiler, Plugin, Topology, Value};

use crate::cache;
use crate::error::{Error, Result};
use crate::overlap;
use crate::platform::{self, Kind};

/// The compiler's report on a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The model of the device, such as `TPU v5 lite`.
    pub device: String,
    /// Floating point operations of one run.
    pub flops: Option<f64>,
    /// Memory traffic of one run, in bytes.
    pub bytes_accessed: Option<f64>,
    /// The compiler's estimate of the time of one run, without communication between devices. For some large programs
    /// libtpu's estimate is negative; it is then left out.
    pub optimal_seconds: Option<f64>,
    /// The memory that one run needs. The peak is the number to plan with.
    pub memory: Option<CompiledMemoryStats>,
    /// How many collectives run beside other work: their beginning and their end are operations of their own.
    pub asynchronous: usize,
}

/// The phase of libtpu's compiler that optimizes and schedules a program and assigns its memory.
const FIRST_PHASE: &str = "phase1_hlo_opts";

/// What the compiler calls the beginning of an operation that runs beside others.
const BEGINNINGS: &[&str] = &["async-start", "AsyncCollectiveStart", "all-gather-start", "all-reduce-start"];

/// libtpu's compiler. It is loaded once and keeps the topologies that were used.
struct Compiler {
    plugin: Plugin,
    path: PathBuf,
    topologies: HashMap<String, Arc<Topology>>,
    /// The process that loaded it. Its threads do not survive a fork.
    process: u32,
}

static COMPILER: Mutex<Option<Compiler>> = Mutex::new(None);

/// Compiles a StableHLO text for the devices of a topology, named as in [`Topology`]: `v5e:1x1`, `v6e:2x2`; and
/// `v5p:16x20x28*12` for twelve such slices. With more
/// than one of `replicas` the program may have collectives, and runs on as many devices. Several threads may compile at
/// once.
///
/// # Errors
/// If libtpu is not installed, does not know the topology, or refuses the program.
pub fn compile(program: &str, topology: &str, replicas: usize) -> Result<Report> {
    let (topology, _) = find_topology(topology)?;
    let device = kind_of(&topology)?;
    let options = options(&device, replicas);
    let executable = topology.compile(program.as_bytes(), &options)?;
    let asynchronous = if replicas > 1 { count(&executable.serialize()?, BEGINNINGS) } else { 0 };
    let costs = unless_unimplemented(executable.cost_analysis())?.unwrap_or_default();
    Ok(Report {
        device,
        flops: number(&costs, "flops"),
        bytes_accessed: number(&costs, "bytes accessed"),
        optimal_seconds: number(&costs, "optimal_seconds").filter(|seconds| *seconds > 0.),
        memory: unless_unimplemented(executable.memory_stats())?,
        asynchronous,
    })
}

fn kind_of(topology: &Topology) -> Result<String> {
    Ok(topology.devices()?.into_iter().next().map(|device| device.kind).unwrap_or_default())
}

/// The options for a program of so many replicas on a model of device.
fn options(device: &str, replicas: usize) -> CompileOptions {
    let mut options = cache::compile_options(Kind::Tpu);
    if replicas > 1 {
        options.overrides.extend(overlap::options(device));
        options = CompileOptions { overrides: options.overrides, ..CompileOptions::replicated(replicas as i64) };
    }
    options
}

/// Compiles a StableHLO text for the devices of a topology, and lets the compiler write what it finds into a folder: the
/// scheduled HLO, the assignment of memory and live ranges; with `whole`, also the code. Without `whole` only the first
/// phase runs, in a small part of the time. Returns false, and writes nothing, if this libtpu cannot do that. The
/// program runs on one device, or on as many as there are `replicas`.
///
/// # Errors
/// As [`compile`]. A program that does not fit is refused after its assignment of memory was written.
pub fn examine(program: &str, topology: &str, folder: &str, whole: bool, replicas: usize) -> Result<bool> {
    let (topology, libtpu) = find_topology(topology)?;
    let mut options = options(&kind_of(&topology)?, replicas);
    options.overrides.extend([
        ("xla_dump_to".to_owned(), Value::Str(folder.to_owned())),
        ("xla_dump_hlo_as_text".to_owned(), Value::Bool(true)),
    ]);
    if whole {
        topology.compile(program.as_bytes(), &options)?;
        return Ok(true);
    }
    let Some(compiler) = PhaseCompiler::new(&libtpu.plugin)? else { return Ok(false) };
    if !compiler.phases()?.iter().any(|name| name == FIRST_PHASE) {
        return Ok(false);
    }
    compiler.run(FIRST_PHASE, program, &topology, &options)?;
    Ok(true)
}

/// How often these names occur in a serialized program.
fn count(program: &[u8], names: &[&str]) -> usize {
    let occurrences = |name: &&str| program.windows(name.len()).filter(|window| *window == name.as_bytes()).count();
    names.iter().map(occurrences).sum()
}

/// Compiles programs for a topology and writes a bundle for the cache of a machine with such devices and the same
/// libtpu. Returns the result of each program, in order. Programs that libtpu refuses are not in the bundle.
///
/// # Errors
/// If libtpu is not installed or does not know the topology, or the bundle cannot be written.
pub fn bundle(programs: &[String], topology: &str, path: &Path) -> Result<Vec<Result<()>>> {
    let (topology, libtpu) = find_topology(topology)?;
    let target = cache::describe_topology(Kind::Tpu, &libtpu.path, &topology)?;
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Relaxed);
            let Some(program) = programs.get(index) else { break };
            let entry = cache::entry_ahead(program, &topology, Kind::Tpu, &target);
            results.lock().push((index, entry));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner();
    results.sort_by_key(|(index, _)| *index);
    let (mut entries, mut outcomes) = (Vec::new(), Vec::new());
    for (_, result) in results {
        outcomes.push(result.map(|entry| entries.push(entry)));
    }
    cache::write_bundle(path, entries)?;
    Ok(outcomes)
}

/// libtpu, as it is loaded.
struct Libtpu {
    plugin: Plugin,
    path: PathBuf,
}

fn find_topology(name: &str) -> Result<(Arc<Topology>, Libtpu)> {
    let mut compiler = COMPILER.lock();
    let compiler = match &mut *compiler {
        Some(compiler) => compiler,
        empty => {
            let (plugin, path) = platform::libtpu()?;
            empty.insert(Compiler { plugin, path, topologies: HashMap::new(), process: process::id() })
        }
    };
    if compiler.process != process::id() {
        return Err(Error::runtime(
            "libtpu was loaded before this process was forked and cannot compile here; use the 'spawn' start method",
        ));
    }
    let libtpu = Libtpu { plugin: compiler.plugin, path: compiler.path.clone() };
    if let Some(topology) = compiler.topologies.get(name) {
        return Ok((Arc::clone(topology), libtpu));
    }
    let (slice, slices) = name.split_once('*').unwrap_or((name, "1"));
    let slices: i64 = slices.parse().map_err(|_| Error::runtime(format!("{name:?} has no number of slices")))?;
    let options = [("num_slices", Value::Int(slices))];
    let topology = Arc::new(compiler.plugin.topology(slice, if slices > 1 { &options } else { &[] })?);
    compiler.topologies.insert(name.to_owned(), Arc::clone(&topology));
    Ok((topology, libtpu))
}

/// A property of a program. `None` if the compiler does not give it, or gives an impossible value.
fn number(properties: &[(String, Value)], wanted: &str) -> Option<f64> {
    properties
        .iter()
        .find_map(|(name, value)| match value {
            Value::Float(value) if name == wanted => Some(f64::from(*value)),
            Value::Int(value) if name == wanted => Some(*value as f64),
            _ => None,
        })
        .filter(|value| value.is_finite() && *value >= 0.)
}

fn unless_unimplemented<T>(result: pjrt::Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.code == Code::Unimplemented => Ok(None),
        result => Ok(Some(result?)),
    }
}
