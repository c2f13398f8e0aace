//! The registry: operators, the keys of calls, and the instance of each key.

pub(crate) mod compiled;
pub(crate) mod division;
pub(crate) mod held;
pub(crate) mod instance;
pub(crate) mod key;
pub(crate) mod layout;
pub(crate) mod operators;
pub(crate) mod sizes;
mod symbols;
pub(crate) mod types;
mod variants;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use aten::{Call, CallBody, Graph, ResultSpec, Target, lower_call};
use rustc_hash::{FxHashMap, FxHashSet};
use stablehlo::{DType, Precision};

use crate::agreement::{Agreement, Called};
use crate::cache::memory::{self, Limit};
use crate::call::{Arg, Meta, to_spec};
use crate::error::Result;
use crate::growth::{Growth, Setting};
use crate::padded::{any_live, forget_live, live_among};
use crate::platform;
use crate::storage::Storage;
use crate::vote::Ballot;
use compiled::{CompiledGraph, SchemaArg};
use instance::Instance;
use key::{CallParts, Specs, family_key};
use operators::Operator;
use types::Types;
use variants::Variant;

/// The number of offsets of a view that get their own programs. Further offsets share one.
const OWN_OFFSETS: u32 = 4;

/// The number of instances kept in memory for each program in memory.
const INSTANCES_PER_PROGRAM: usize = 8;

/// Calls that can share a program with the offsets of their views, and ints that vary, as inputs.
#[derive(Default)]
struct Family {
    /// The number of offsets lowered so far.
    offsets: u32,
    /// The shared instance.
    instance: Option<Arc<Instance>>,
}

/// The outcome of a definition that did not fail.
pub(crate) enum Definition {
    /// The new instance.
    New(Arc<Instance>),
    /// The table has no row for the operator.
    NoRow,
}

/// The graphs of the collectives of all process groups on the same devices.
#[derive(Default)]
struct DeviceGroup {
    /// Of each process group, in the order in which all ranks have made their first calls.
    agreements: Vec<(Agreement, Ballot)>,
    /// The operators of the graphs, by description.
    graphs: FxHashMap<String, u32>,
}

pub(crate) struct Registry {
    pub types: Types,
    operators: Vec<Operator>,
    instances: FxHashMap<Box<[u64]>, Arc<Instance>>,
    next_instance: u32,
    /// Calls that differ only in the offsets of views, by their key without these offsets.
    families: FxHashMap<Box<[u64]>, Family>,
    /// Finds the sizes that change.
    pub growth: Growth,
    /// The programs of calls with sizes as inputs, by a description of the arguments without these sizes.
    sized: FxHashMap<String, Vec<Variant>>,
    /// The descriptions of such calls with ints as constants that are inputs of other calls, by the description of these.
    own_ints: FxHashMap<String, Vec<String>>,
    /// The keys of calls that take padded values but need exact ones.
    exact: FxHashSet<Box<[u64]>>,
    /// Traced decompositions that are not lowered yet, by handle.
    graphs: HashMap<u64, Arc<Graph>>,
    next_graph: u64,
    /// The graphs of collectives, by the devices of their groups.
    groups: FxHashMap<Vec<i64>, DeviceGroup>,
    pub precision: Precision,
    /// `torch.get_default_dtype()`.
    pub default_dtype: DType,
    /// The number of calls, used as the clock for `last_use`.
    clock: u64,
    limit: Limit,
    /// Instances evicted from memory.
    pub evictions: u64,
}

/// The settings of PyTorch that programs depend on, as a part of keys.
fn options(follows_precision: bool, precision: Precision, default_dtype: DType) -> u64 {
    let precision = if follows_precision { precision as u64 } else { 0 };
    precision | (default_dtype as u64) << 8
}

/// Ends a key that other values' sizes, or sizes that change at a line, are a part of.
const LIVE: u64 = 1 << 59;

/// Splits a call into its parts. Sizes that values with padding have at the moment are a part of the key of a call
/// whose arguments have no padding, because they decide whether its results get padding. A call that makes values may have
/// sizes that change at its line, so its key is another one than without values with padding. Returns the length of the
/// key without such parts, if they were looked for.
fn encode(
    parts: &mut CallParts,
    op: u32,
    operator: &Operator,
    args: &[Arg],
    options: u64,
    follows_sizes: bool,
) -> Option<usize> {
    parts.encode(op, operator, args, options);
    let follows_sizes = follows_sizes && operator.compiled.is_none() && !parts.is_exact;
    if !follows_sizes || parts.storages().any(Storage::has_padding) {
        return None;
    }
    let plain = parts.key.len();
    let live = live_among(&parts.key[1..]);
    parts.key.extend(live);
    if parts.makes_values || parts.key.len() > plain {
        parts.key.push(LIVE);
    }
    Some(plain)
}

impl Registry {
    /// `programs` is the limit of programs in memory.
    pub fn new(programs: Limit) -> Registry {
        Registry {
            types: Types::default(),
            operators: Vec::new(),
            instances: FxHashMap::default(),
            next_instance: 0,
            families: FxHashMap::default(),
            growth: Growth::new(platform::sizes()),
            sized: FxHashMap::default(),
            own_ints: FxHashMap::default(),
            exact: FxHashSet::default(),
            graphs: HashMap::new(),
            groups: FxHashMap::default(),
            next_graph: 1,
            precision: Precision::Highest,
            default_dtype: DType::F32,
            clock: 0,
            limit: Limit { count: programs.count * INSTANCES_PER_PROGRAM, ..programs },
            evictions: 0,
        }
    }

    /// Registers an operator.
    pub fn register(&mut self, name: &str, functional: &str, args: &[SchemaArg]) -> u32 {
        self.add(Operator::new(name, functional, args))
    }

    /// Registers a compiled graph, which is called like an operator.
    pub fn register_graph(&mut self, graph: CompiledGraph) -> u32 {
        self.add(Operator::of_graph(graph))
    }

    /// A process group of these devices begins.
    pub fn open_group(&mut self, devices: Vec<i64>, agreement: Agreement, ballot: Ballot) {
        self.groups.entry(devices).or_default().agreements.push((agreement, ballot));
    }

    /// The votes of the process group of a lane.
    pub fn ballot(&self, devices: &[i64], lane: u64) -> Option<Ballot> {
        let groups = &self.groups.get(devices)?.agreements;
        groups.iter().find(|(agreement, _)| agreement.lane == lane).map(|(_, ballot)| ballot.clone())
    }

    /// How the ranks with these devices compare programs.
    pub fn agreement(&self, devices: &[i64]) -> Option<Agreement> {
        self.groups.get(devices)?.agreements.first().map(|(agreement, _)| agreement.clone())
    }

    /// A call of a collective in the process group of a lane.
    pub fn called(&self, devices: &[i64], lane: u64, number: u64) -> Option<Called> {
        let (agreement, _) =
            self.groups.get(devices)?.agreements.iter().find(|(agreement, _)| agreement.lane == lane)?;
        Some(Called { agreement: agreement.clone(), number })
    }

    /// The process group of a lane ends. The last one of these devices takes their graphs with it.
    pub fn close_group(&mut self, devices: &[i64], lane: u64) {
        let Some(group) = self.groups.get_mut(devices) else { return };
        group.agreements.retain(|(agreement, ballot)| {
            let stays = agreement.lane != lane;
            if !stays {
                ballot.close();
            }
            stays
        });
        if group.agreements.is_empty() {
            let graphs = self.groups.remove(devices).unwrap_or_default().graphs;
            graphs.into_values().for_each(|op| self.forget_graph(op));
        }
    }

    /// The operator of a graph of a collective with this description, which is registered at the first call.
    pub fn graph_of(&mut self, devices: &[i64], description: String, make: impl FnOnce() -> CompiledGraph) -> u32 {
        let graphs = |registry: &Registry| registry.groups.get(devices)?.graphs.get(&description).copied();
        if let Some(op) = graphs(self) {
            return op;
        }
        let op = self.register_graph(make());
        self.groups.entry(devices.to_vec()).or_default().graphs.insert(description, op);
        op
    }

    fn add(&mut self, operator: Operator) -> u32 {
        self.operators.push(operator);
        self.operators.len() as u32 - 1
    }

    /// Removes a compiled graph that can no longer be called, and its programs.
    pub fn forget_graph(&mut self, op: u32) {
        let is_other = |key: &[u64]| key[0] as u32 != op;
        self.instances.retain(|key, _| is_other(key));
        self.families.retain(|key, _| is_other(key));
        self.operators[op as usize] = Operator::new("", "", &[]);
    }

    #[inline]
    pub fn operator(&self, op: u32) -> &Operator {
        &self.operators[op as usize]
    }

    /// Replaces a compiled graph by another version.
    pub fn replace_graph(&mut self, op: u32, graph: Arc<CompiledGraph>) {
        self.operators[op as usize].compiled = Some(graph);
    }

    /// Keeps a traced decomposition until it is defined. Returns its handle.
    pub fn add_graph(&mut self, graph: Graph) -> u64 {
        let handle = self.next_graph;
        self.next_graph += 1;
        self.graphs.insert(handle, Arc::new(graph));
        handle
    }

    /// Takes the traced decomposition of a handle; `None` for the handle 0.
    pub fn take_graph(&mut self, handle: u64) -> Option<Arc<Graph>> {
        self.graphs.remove(&handle)
    }

    /// The number of calls.
    #[inline]
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// All instances. An instance that several keys share is returned more than once.
    pub fn instances(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.instances.values()
    }

    /// Splits a call into `parts` and finds the instance of its key.
    pub fn find(&mut self, op: u32, args: &[Arg], parts: &mut CallParts) -> Option<Arc<Instance>> {
        let operator = &self.operators[op as usize];
        let settings = options(operator.follows_precision, self.precision, self.default_dtype);
        let plain = encode(parts, op, operator, args, settings, self.growth.is_on() && any_live());
        self.clock += 1;
        if let Some(instance) = self.instances.get(&parts.key[..]) {
            instance.last_use.set(self.clock);
            if plain == Some(parts.key.len()) {
                instance.keeps_sizes.store(self.growth.found() + 1, Relaxed);
            }
            return Some(Arc::clone(instance));
        }
        if let Some(known) = plain.and_then(|plain| self.instances.get(&parts.key[..plain]))
            && known.keeps_sizes.load(Relaxed) == self.growth.found() + 1
        {
            let known = Arc::clone(known);
            self.remember(&parts.key, Arc::clone(&known));
            return Some(known);
        }
        // A view at a new offset may share the program of other offsets.
        let family = family_key(parts, operator, args, &self.types)?;
        let instance = self.families.get(&family.key[..])?.instance.clone()?;
        self.remember(&parts.key, Arc::clone(&instance));
        Some(instance)
    }

    /// Sets how sizes that change are treated, and forgets the sizes that were seen and what was chosen for them.
    pub fn set_sizes(&mut self, setting: Setting) {
        self.growth = Growth::new(setting);
        forget_live();
        self.instances.retain(|key, _| key.last() != Some(&LIVE));
        self.instances.values().for_each(|instance| instance.keeps_sizes.store(0, Relaxed));
    }

    /// Makes an instance that takes exact values serve a call while other values have padding.
    pub fn share(&mut self, op: u32, args: &[Arg], instance: Arc<Instance>) {
        let mut parts = CallParts::default();
        if any_live() && self.find(op, args, &mut parts).is_none() && !parts.storages().any(Storage::has_padding) {
            self.remember(&parts.key, instance);
        }
    }

    /// Adds an instance by its key. Evicts the least recently used instances if there are too many.
    fn remember(&mut self, key: &[u64], instance: Arc<Instance>) {
        if self.instances.len() >= self.limit.count {
            let held = self.instances.values().map(|each| (each.last_use.get(), 0)).collect();
            let deadline = memory::deadline(held, self.limit);
            let before = self.instances.len();
            self.instances.retain(|_, each| each.last_use.get() > deadline);
            self.families.retain(|_, family| {
                family.instance.as_ref().is_some_and(|instance| instance.last_use.get() > deadline)
            });
            self.sized.retain(|_, variants| {
                variants.retain(Variant::is_in_use);
                !variants.is_empty()
            });
            self.own_ints.clear();
            self.exact.clear();
            self.evictions += (before - self.instances.len()) as u64;
        }
        instance.last_use.set(self.clock);
        self.instances.insert(key.into(), instance);
    }

    /// Forgets the instance of a key.
    pub fn forget(&mut self, key: &[u64]) {
        self.instances.remove(key);
    }

    /// Whether the call of a key that takes padded values needs exact ones.
    pub fn needs_exact(&self, key: &[u64]) -> bool {
        self.exact.contains(key)
    }

    pub fn note_needs_exact(&mut self, key: &[u64]) {
        self.exact.insert(key.into());
    }

    /// Lowers a new key, which [`Registry::find`] has put into `parts`, by the operator's row or a traced
    /// decomposition.
    ///
    /// # Errors
    /// If the call is refused or cannot be lowered.
    pub fn define(
        &mut self,
        op: u32,
        args: &[Arg],
        parts: &mut CallParts,
        metas: Option<&[Meta]>,
        graph: Option<Arc<Graph>>,
        target: Target,
    ) -> Result<Definition> {
        let operator = &mut self.operators[op as usize];
        let compiled = operator.compiled.clone();
        let compiled = compiled.as_ref();
        let body = match (compiled.map(|compiled| Arc::clone(&compiled.graph)).or(graph), operator.row) {
            (Some(graph), _) => CallBody::Graph(graph),
            (None, Some(row)) => CallBody::Row(row),
            (None, None) => return Ok(Definition::NoRow),
        };
        // The first few offsets get their own programs, which XLA optimizes better. Further offsets share one.
        let family = family_key(parts, operator, args, &self.types);
        let opens_offsets = operator.opens_offsets();
        let is_cheap = opens_offsets && family.as_ref().is_some_and(|family| family.is_cheap);
        let own_offsets = if compiled.is_some() || is_cheap { 0 } else { OWN_OFFSETS };
        let family = family.map(|family| self.families.entry(family.key.into()).or_default());
        let open_offsets = family.as_ref().is_some_and(|family| family.offsets >= own_offsets);
        let mut specs = Specs::new(&self.types, open_offsets, opens_offsets);
        specs.open_ints = open_offsets && operator.class(args).is_some();
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
            default_dtype: self.default_dtype,
            target,
            is_checked: true,
        };
        let lowered = match unfitting_results(&call) {
            // The call is repeated with resized arguments, which have another key.
            Some(results) => Err(results),
            None => Ok(lower_call(&call)?),
        };
        if lowered.as_ref().is_ok_and(|lowered| lowered.follows_precision) && !operator.follows_precision {
            operator.follows_precision = true;
            parts.encode(op, operator, args, options(true, self.precision, self.default_dtype));
        }
        let id = self.next_instance;
        self.next_instance += 1;
        let compiled = compiled.cloned();
        let arguments = args.iter().map(Arg::to_string).collect();
        let instance = Instance::new(id, &call.operator, arguments, decomposed, compiled, lowered, &mut self.types);
        let instance = Arc::new(instance);
        if let Some(family) = family {
            family.offsets += 1;
            family.instance = open_offsets.then(|| Arc::clone(&instance));
        }
        self.remember(&parts.key, Arc::clone(&instance));
        Ok(Definition::New(instance))
    }
}

/// The results of the written arguments, if any does not fit its argument.
fn unfitting_results(call: &Call) -> Option<Vec<ResultSpec>> {
    let results = call.results.as_ref()?;
    let targets = call.written_tensors();
    let fits = targets.iter().zip(results).all(|(target, r)| r.as_ref().is_none_or(|r| r.sizes == target.sizes));
    if fits { None } else { results.iter().take(targets.len()).cloned().collect() }
}
