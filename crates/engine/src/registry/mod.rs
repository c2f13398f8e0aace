//! The registry: operators, the keys of their calls, and what each key was lowered to.

pub(crate) mod compiled;
pub(crate) mod instance;
pub(crate) mod key;
pub(crate) mod operators;
pub(crate) mod types;

use std::collections::HashMap;
use std::sync::Arc;

use aten::{Call, CallBody, Graph, ResultSpec, Target, lower_call};
use rustc_hash::FxHashMap;
use stablehlo::Precision;

use crate::cache::memory::{self, Limit};
use crate::call::{Arg, Meta, to_spec};
use crate::error::Result;
use compiled::{CompiledGraph, SchemaArg};
use instance::Instance;
use key::{CallParts, Specs, key_without_offsets};
use operators::Operator;
use types::Types;

/// How many offsets of a view get programs of their own before the others share one.
const OWN_OFFSETS: u32 = 4;

/// How many lowered calls are kept in memory for each program that is.
const INSTANCES_PER_PROGRAM: usize = 8;

/// Calls that can share a program which takes the offsets of their views as inputs.
#[derive(Default)]
struct Family {
    /// How many were lowered.
    offsets: u32,
    /// The shared one.
    instance: Option<Arc<Instance>>,
}

/// How the definition of a key ended, short of an error.
pub(crate) enum Definition {
    /// Its instance is new.
    New(Arc<Instance>),
    /// The table has no row for the operator.
    NoRow,
}

pub(crate) struct Registry {
    pub types: Types,
    operators: Vec<Operator>,
    instances: FxHashMap<Box<[u64]>, Arc<Instance>>,
    next_instance: u32,
    /// Calls that differ in the offsets of their views only, by their key without those.
    families: FxHashMap<Box<[u64]>, Family>,
    /// Traced decompositions that are not lowered yet, by their handles.
    graphs: HashMap<u64, Arc<Graph>>,
    next_graph: u64,
    pub precision: Precision,
    /// Counts calls: the time on which `last_use` is measured.
    clock: u64,
    limit: Limit,
    /// Lowered calls that had to leave memory.
    pub evictions: u64,
}

impl Registry {
    /// `programs` limits the programs in memory.
    pub fn new(programs: Limit) -> Registry {
        Registry {
            types: Types::default(),
            operators: Vec::new(),
            instances: FxHashMap::default(),
            next_instance: 0,
            families: FxHashMap::default(),
            graphs: HashMap::new(),
            next_graph: 1,
            precision: Precision::Highest,
            clock: 0,
            limit: Limit { count: programs.count * INSTANCES_PER_PROGRAM, ..programs },
            evictions: 0,
        }
    }

    /// Registers an operator; says whether the table has a row for it.
    pub fn register(&mut self, name: &str, functional: &str, args: &[SchemaArg]) -> (u32, bool) {
        let operator = Operator::new(name, functional, args);
        let has_row = operator.row.is_some();
        (self.add(operator), has_row)
    }

    /// Registers a compiled graph, which is called like an operator.
    pub fn register_graph(&mut self, graph: CompiledGraph) -> u32 {
        self.add(Operator::of_graph(graph))
    }

    fn add(&mut self, operator: Operator) -> u32 {
        self.operators.push(operator);
        self.operators.len() as u32 - 1
    }

    /// Forgets a compiled graph that nobody can call any more, and its programs.
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

    /// Gives a compiled graph that is called like an operator another form.
    pub fn replace_graph(&mut self, op: u32, graph: Arc<CompiledGraph>) {
        self.operators[op as usize].compiled = Some(graph);
    }

    /// Keeps a traced decomposition until it is defined; returns its handle.
    pub fn add_graph(&mut self, graph: Graph) -> u64 {
        let handle = self.next_graph;
        self.next_graph += 1;
        self.graphs.insert(handle, Arc::new(graph));
        handle
    }

    /// The traced decomposition behind a handle, which ends with that; `None` for the handle 0.
    pub fn take_graph(&mut self, handle: u64) -> Option<Arc<Graph>> {
        self.graphs.remove(&handle)
    }

    /// Counts calls.
    #[inline]
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// What is lowered; an instance that calls of several keys share comes more than once.
    pub fn instances(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.instances.values()
    }

    /// Takes a call apart into `parts`, and finds what its key was lowered to.
    pub fn find(&mut self, op: u32, args: &[Arg], parts: &mut CallParts) -> Option<Arc<Instance>> {
        let operator = &self.operators[op as usize];
        let options = if operator.follows_precision { self.precision as u64 } else { 0 };
        parts.encode(op, operator, args, options);
        self.clock += 1;
        if let Some(instance) = self.instances.get(&parts.key[..]) {
            instance.last_use.set(self.clock);
            return Some(Arc::clone(instance));
        }
        // A view at a new offset may share the program of others.
        let key = key_without_offsets(parts, operator, args, &self.types)?;
        let instance = self.families.get(&key)?.instance.clone()?;
        self.remember(&parts.key, Arc::clone(&instance));
        Some(instance)
    }

    /// Adds an instance by its key; those that were not used for the longest time make room.
    fn remember(&mut self, key: &[u64], instance: Arc<Instance>) {
        if self.instances.len() >= self.limit.count {
            let held = self.instances.values().map(|each| (each.last_use.get(), 0)).collect();
            let deadline = memory::deadline(held, self.limit);
            let before = self.instances.len();
            self.instances.retain(|_, each| each.last_use.get() > deadline);
            self.families.retain(|_, family| {
                family.instance.as_ref().is_some_and(|instance| instance.last_use.get() > deadline)
            });
            self.evictions += (before - self.instances.len()) as u64;
        }
        instance.last_use.set(self.clock);
        self.instances.insert(key.into(), instance);
    }

    /// Lowers a new key, which [`Registry::find`] has put into `parts`, by the operator's row or a traced decomposition.
    ///
    /// # Errors
    /// Where the call is to be refused, or cannot be lowered.
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
        // A few offsets get programs of their own, which XLA makes a little better; then they share one.
        let family =
            key_without_offsets(parts, operator, args, &self.types).map(|key| self.families.entry(key).or_default());
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
            parts.encode(op, operator, args, self.precision as u64);
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

/// The results of the written arguments when one does not fit its argument.
fn unfitting_results(call: &Call) -> Option<Vec<ResultSpec>> {
    let results = call.results.as_ref()?;
    let targets = call.written_tensors();
    let fits = targets.iter().zip(results).all(|(target, r)| r.as_ref().is_none_or(|r| r.sizes == target.sizes));
    if fits { None } else { results.iter().take(targets.len()).cloned().collect() }
}
