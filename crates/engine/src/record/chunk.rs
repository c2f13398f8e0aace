//! A chunk: the recorded calls that have not run.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use aten::{Check, ParamSource};
use stablehlo::{DType, Number, Type};

use super::reason::Reason;
use super::rhythm::Familiar;
use super::wiring::Wirings;
use crate::agreement::Called;
use crate::lines::Line;
use crate::program::Usage;
use crate::registry::instance::{Instance, ResultPlan};
use crate::registry::key::CallParts;
use crate::registry::types::Types;
use crate::storage::{SMALL, TypeId, Value, ValueState};

/// The source of a node's parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// A value that exists before the chunk runs.
    Input(u32),
    /// An output of an earlier node.
    Output(u32),
    /// A number or a random state.
    Extra(u32),
}

impl Source {
    /// The name in the module text.
    pub fn name(&self) -> String {
        match self {
            Source::Input(k) => format!("%i{k}"),
            Source::Output(k) => format!("%o{k}"),
            Source::Extra(k) => format!("%x{k}"),
        }
    }

    pub fn token(self) -> u64 {
        match self {
            Source::Input(k) => u64::from(k) << 2,
            Source::Output(k) => u64::from(k) << 2 | 1,
            Source::Extra(k) => u64::from(k) << 2 | 2,
        }
    }
}

/// A small input made from numbers of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extra {
    Number(Number, DType),
    /// A size of values with padding.
    Size(i64),
    RandomState([u64; 2]),
}

pub(crate) struct Node {
    pub instance: Arc<Instance>,
    first_source: u32,
    pub first_output: u32,
}

impl Node {
    pub fn num_outputs(&self) -> usize {
        self.instance.function().map_or(0, |function| function.results.len())
    }
}

/// A check of the data that an operator of a chunk makes.
pub(crate) struct DataCheck {
    /// The program's result for the check.
    pub number: Arc<Value>,
    pub check: Arc<Check>,
    /// The index of the operator in the chunk.
    pub node: usize,
}

pub(crate) struct Chunk {
    /// Distinguishes the marks of values in this chunk from those of other chunks.
    pub number: u64,
    /// The scope of the calls (see `scopes.rs`); 0 for calls without a scope.
    pub scope: u64,
    pub nodes: Vec<Node>,
    sources: Vec<Source>,
    pub inputs: Vec<Arc<Value>>,
    pub extras: Vec<Extra>,
    /// The results of every node. Only storages keep them alive. Results that are dropped before the flush are not
    /// computed.
    pub outputs: Vec<Weak<Value>>,
    /// The checks of the data.
    pub checks: Vec<DataCheck>,
    /// The first collective among the nodes.
    collective: Option<Arc<Instance>>,
    /// The process group of collectives that have joined it without a promise: the ranks vote on its program.
    pub group: Option<u64>,
    /// The places of these collectives.
    pub places: Vec<u64>,
    /// The calls of all collectives among the nodes, in order.
    pub calls: Vec<Called>,
    /// Whether it takes a value that a job of the host makes.
    pub takes_job: bool,
    /// The bytes on the device of the results, and of uploads since the chunk began, if all are kept until the chunk
    /// runs.
    pub bytes: usize,
    /// The instances and the sources of their parameters. Together with the usage, this is the key of the program.
    pub key: Vec<u64>,
    /// The familiar chunk that this one equals so far.
    pub familiar: Option<Arc<Familiar>>,
    /// The familiar chunk that this one equalled at first, and the operator where they differ.
    left: Option<(Arc<Familiar>, usize)>,
    /// The lines of the callers that were looked up. A familiar chunk has those of the others.
    lines: Vec<Line>,
}

impl Chunk {
    pub fn new(number: u64) -> Chunk {
        Chunk {
            number,
            scope: 0,
            nodes: Vec::new(),
            sources: Vec::new(),
            inputs: Vec::new(),
            extras: Vec::new(),
            outputs: Vec::new(),
            checks: Vec::new(),
            collective: None,
            group: None,
            places: Vec::new(),
            calls: Vec::new(),
            takes_job: false,
            bytes: 0,
            key: Vec::new(),
            familiar: None,
            left: None,
            lines: Vec::new(),
        }
    }

    /// Empties the chunk and keeps its memory.
    pub fn reset(&mut self, number: u64) {
        self.number = number;
        self.scope = 0;
        self.nodes.clear();
        self.sources.clear();
        self.inputs.clear();
        self.extras.clear();
        self.outputs.clear();
        self.checks.clear();
        self.collective = None;
        self.group = None;
        self.places.clear();
        self.calls.clear();
        self.takes_job = false;
        self.bytes = 0;
        self.key.clear();
        self.familiar = None;
        self.left = None;
        self.lines.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Appends a call.
    pub fn record(&mut self, instance: &Arc<Instance>, parts: &CallParts, random_state: [u64; 2]) {
        self.bytes += instance.result_bytes;
        let first_source = self.sources.len();
        let has_own_inputs = instance.has_own_inputs();
        for param in instance.params() {
            let source = match *param {
                // A storage without a value is never a parameter.
                ParamSource::Storage(i) => match instance.value_of(i, parts.storage(i)) {
                    Some(value) => self.source_of(value, has_own_inputs),
                    None => continue,
                },
                ParamSource::Size(i) => self.extra(Extra::Size(instance.size(i))),
                ParamSource::Scalar { index, dtype } => self.extra(Extra::Number(parts.scalars[index].0, dtype)),
                ParamSource::Offset(i) => self.extra(Extra::Number(Number::Int(parts.offsets[i]), DType::I64)),
                ParamSource::RandomState => self.extra(Extra::RandomState(random_state)),
            };
            self.sources.push(source);
        }
        add_to_key(&mut self.key, instance, &self.sources[first_source..]);
        self.push(instance, first_source as u32);
    }

    fn push(&mut self, instance: &Arc<Instance>, first_source: u32) {
        if self.collective.is_none() && !instance.replicas().is_empty() {
            self.collective = Some(Arc::clone(instance));
        }
        let first_output = self.outputs.len() as u32;
        self.nodes.push(Node { instance: Arc::clone(instance), first_source, first_output });
    }

    /// The next output of the last node, as a pending value.
    pub fn add_output(&mut self, ty: TypeId) -> Arc<Value> {
        let value = Value::new(ty, ValueState::Pending { output: self.outputs.len() as u32 });
        self.outputs.push(Arc::downgrade(&value));
        value
    }

    /// Makes sizes one input, each of which was one of its own until now.
    pub fn join_sizes(&mut self, wirings: &mut Wirings) {
        let is_size = |extra: &Extra| matches!(extra, Extra::Size(_));
        if self.nodes.len() < 2 || self.extras.iter().filter(|extra| is_size(extra)).count() < 2 {
            return;
        }
        let mut sizes = Vec::new();
        for node in 0..self.nodes.len() {
            sizes.extend(self.sources_of(node).iter().filter_map(|source| match *source {
                Source::Extra(extra) => match self.extras[extra as usize] {
                    Extra::Size(size) => Some((node, size)),
                    _ => None,
                },
                _ => None,
            }));
        }
        let mut inputs = wirings.of(&self.key, &sizes).iter();
        let (mut joined, mut of_inputs): (Vec<Extra>, Vec<u32>) = Default::default();
        let place = |&extra: &Extra| {
            let input = if is_size(&extra) { inputs.next() } else { None };
            if let Some(&known) = input.and_then(|&input| of_inputs.get(input as usize)) {
                return known;
            }
            let place = joined.len() as u32;
            joined.push(extra);
            of_inputs.extend(input.map(|_| place));
            place
        };
        let places: Vec<u32> = self.extras.iter().map(place).collect();
        for source in &mut self.sources {
            if let Source::Extra(extra) = source {
                *extra = places[*extra as usize];
            }
        }
        self.extras = joined;
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        for (node, Node { instance, .. }) in self.nodes.iter().enumerate() {
            add_to_key(&mut key, instance, self.sources_of(node));
        }
        self.key = key;
    }

    pub fn extra(&mut self, extra: Extra) -> Source {
        self.extras.push(extra);
        Source::Extra(self.extras.len() as u32 - 1)
    }

    /// The source of a value. If it is an input of its own, it is so whichever inputs the chunk has already.
    fn source_of(&mut self, value: Arc<Value>, is_own_input: bool) -> Source {
        if let Some(output) = value.pending() {
            return Source::Output(output);
        }
        if let Some(index) = self.input_index(&value).filter(|_| !is_own_input) {
            return Source::Input(index);
        }
        self.takes_job |= value.is_of_job;
        if !is_own_input {
            value.mark.store(self.number << 24 | self.inputs.len() as u64, Relaxed);
        }
        self.inputs.push(value);
        Source::Input(self.inputs.len() as u32 - 1)
    }

    /// The number of a value among the inputs.
    pub fn input_index(&self, value: &Value) -> Option<u32> {
        let mark = value.mark.load(Relaxed);
        (mark >> 24 == self.number).then_some((mark & 0xFF_FFFF) as u32)
    }

    pub fn sources_of(&self, node: usize) -> &[Source] {
        let end = self.nodes.get(node + 1).map_or(self.sources.len(), |next| next.first_source as usize);
        &self.sources[self.nodes[node].first_source as usize..end]
    }

    /// Whether the familiar chunk has the same operator at this position. If not, the chunk is no longer familiar.
    pub fn follow(&mut self, key_before: usize) -> bool {
        let Some(familiar) = &self.familiar else { return false };
        if familiar.key.get(key_before..self.key.len()) == Some(&self.key[key_before..]) {
            return true;
        }
        let node = self.nodes.len() - 1;
        self.lines.resize(node, Line::default());
        for (line, known) in self.lines.iter_mut().zip(&familiar.lines).filter(|(line, _)| !line.is_known()) {
            *line = *known;
        }
        self.left = self.familiar.take().map(|familiar| (familiar, node));
        false
    }

    /// Whether the line of the last operator's caller is unknown.
    pub fn lacks_line(&self) -> bool {
        self.familiar.is_none() && self.lines.len() < self.nodes.len()
    }

    /// Records the line of the last operator's caller.
    pub fn add_line(&mut self, line: Line) {
        self.lines.resize(self.nodes.len() - 1, Line::default());
        self.lines.push(line);
    }

    /// The line of an operator's caller.
    pub fn line_of(&self, node: usize) -> Line {
        let familiar = || self.familiar.as_ref()?.lines.get(node);
        self.lines.get(node).filter(|line| line.is_known()).or_else(familiar).copied().unwrap_or_default()
    }

    /// "relu at model.py:12".
    fn name_of(&self, node: usize) -> String {
        self.line_of(node).label(&self.nodes[node].instance.operator)
    }

    /// A description of what is new about a chunk whose operators are all known.
    pub fn novelty(&self, reason: Reason) -> String {
        let count = self.nodes.len();
        match (&self.familiar, &self.left) {
            (None, Some((_, node))) => {
                format!("after {node} operators as before, {} came instead of what came then", self.name_of(*node))
            }
            (Some(familiar), _) if familiar.lines.len() > count => {
                format!("it ended after {count} of the {} operators that came before: {reason}", familiar.lines.len())
            }
            (Some(_), _) => "the same operators as before, but other results are still in use".into(),
            (None, None) if count == 1 => "other results or inputs are still in use than before".into(),
            (None, None) => format!("operators in an order that is new, from {} on", self.name_of(0)),
        }
    }

    /// XLA's flags that the user gave with a compiled graph.
    pub fn flags(&self) -> Option<&Vec<(String, pjrt::Value)>> {
        self.nodes.iter().find_map(|node| node.instance.compiled.as_ref()).map(|compiled| &compiled.options)
    }

    /// The devices of the replicas of its program. Empty for a program of one device.
    pub fn replicas(&self) -> &[i64] {
        self.collective.as_ref().map_or(&[], |instance| instance.replicas())
    }

    /// Whether it can have a collective of these devices: a program has replicas on one list of devices.
    pub fn takes(&self, replicas: &[i64]) -> bool {
        self.collective.is_none() || self.replicas() == replicas
    }

    /// The number of collectives among the nodes.
    pub fn collectives(&self) -> u64 {
        self.nodes.iter().filter(|node| !node.instance.replicas().is_empty()).count() as u64
    }

    /// Which outputs are still referenced, and which inputs can be donated. A collective that is a program of its own
    /// must be the same on all ranks, so it does not depend on what is still referenced here. In a scope the ranks have
    /// promised to run the same calls; on the program of a chunk that a collective has joined they vote.
    pub fn usage(&self, types: &Types) -> Usage {
        let all = 0..self.outputs.len() as u32;
        if self.scope == 0 && self.group.is_none() && !self.replicas().is_empty() {
            return Usage { live: all.collect(), donated: vec![false; self.inputs.len()] };
        }
        let live = all.filter(|&index| self.outputs[index as usize].strong_count() > 0);
        let donated = self.inputs.iter().map(|input| is_given_up(input, 1, types));
        Usage { live: live.collect(), donated: donated.collect() }
    }

    /// The usage that a chunk of one call will have, if all results are used. The storages that the call writes still
    /// hold their values, the inputs.
    pub fn expected_usage(&self, parts: &CallParts, types: &Types) -> Usage {
        let instance = &self.nodes[0].instance;
        let written = instance.outputs.iter().filter_map(|plan| match plan {
            ResultPlan::Updated { storage, .. } => {
                self.input_index(&*instance.value_of(*storage, parts.storage(*storage))?)
            }
            _ => None,
        });
        let mut donated = vec![false; self.inputs.len()];
        for index in written {
            // The chunk and the storage hold it.
            donated[index as usize] = is_given_up(&self.inputs[index as usize], 2, types);
        }
        Usage { live: (0..instance.result_types().count() as u32).collect(), donated }
    }

    /// A chunk of one node of this chunk. `values` are this chunk's outputs.
    pub fn alone(&self, node: usize, values: &[Arc<Value>]) -> Chunk {
        let mut alone = Chunk::new(self.number);
        let mut inputs: Vec<u64> = Vec::new();
        let has_own_inputs = self.nodes[node].instance.has_own_inputs();
        let sources = self.sources_of(node).iter().map(|source| {
            let value = match *source {
                Source::Extra(k) => return alone.extra(self.extras[k as usize]),
                Source::Input(k) => &self.inputs[k as usize],
                Source::Output(k) => &values[k as usize],
            };
            // As when the operator is recorded by itself: a value is one input, or each input is one of its own.
            let known = inputs.iter().position(|input| *input == source.token());
            if let Some(known) = known.filter(|_| !has_own_inputs) {
                return Source::Input(known as u32);
            }
            inputs.push(source.token());
            alone.input(value)
        });
        let sources: Vec<Source> = sources.collect();
        alone.append(&self.nodes[node].instance, &sources);
        alone
    }

    /// The nodes that run if each runs by itself: their usage, and the outputs that no later node uses. `whole` is the usage
    /// of the chunk.
    pub fn usages_alone(&self, whole: &Usage) -> Vec<(usize, Usage, Vec<u32>)> {
        let (mut is_used, mut may_donate) = (vec![false; self.outputs.len()], whole.donated.clone());
        whole.live.iter().for_each(|&output| is_used[output as usize] = true);
        let mut alone = Vec::with_capacity(self.nodes.len());
        for (index, node) in self.nodes.iter().enumerate().rev() {
            let first = node.first_output as usize;
            let is_live = |output: &u32| is_used[first + *output as usize];
            let live: Vec<u32> = (0..node.num_outputs() as u32).filter(is_live).collect();
            if live.is_empty() {
                continue;
            }
            let (mut known, mut donated, mut last): (Vec<u64>, Vec<bool>, Vec<u32>) = Default::default();
            // Two inputs of its own may have one buffer, which cannot be donated.
            let has_own_inputs = node.instance.has_own_inputs();
            for source in self.sources_of(index) {
                if matches!(source, Source::Extra(_)) || !has_own_inputs && known.contains(&source.token()) {
                    continue;
                }
                known.push(source.token());
                let is_last = match *source {
                    Source::Input(input) => std::mem::take(&mut may_donate[input as usize]),
                    Source::Output(output) if !std::mem::replace(&mut is_used[output as usize], true) => {
                        last.push(output);
                        true
                    }
                    _ => false,
                };
                donated.push(is_last && !has_own_inputs);
            }
            alone.push((index, Usage { live, donated }, last));
        }
        alone.reverse();
        alone
    }

    /// Appends a node whose sources are known. Its outputs follow.
    pub fn append(&mut self, instance: &Arc<Instance>, sources: &[Source]) {
        let first_source = self.sources.len() as u32;
        add_to_key(&mut self.key, instance, sources);
        self.sources.extend_from_slice(sources);
        self.push(instance, first_source);
    }

    pub fn input(&mut self, value: &Arc<Value>) -> Source {
        self.inputs.push(Arc::clone(value));
        Source::Input(self.inputs.len() as u32 - 1)
    }

    pub fn output_types(&self) -> Vec<&Type> {
        self.nodes.iter().filter_map(|node| node.instance.function()).flat_map(|function| &function.results).collect()
    }
}

/// Adds a node to the key of a chunk.
fn add_to_key(key: &mut Vec<u64>, instance: &Instance, sources: &[Source]) {
    key.push(u64::from(instance.id));
    key.extend(sources.iter().map(|source| source.token()));
}

/// Whether an input can be donated: there are no more than these references to the value, only the value holds the
/// buffer, and the buffer is large enough.
fn is_given_up(input: &Arc<Value>, references: usize, types: &Types) -> bool {
    Arc::strong_count(input) - input.holds() == references
        && input.owns_buffer()
        && types.get(input.ty).size_bytes() > SMALL
}
