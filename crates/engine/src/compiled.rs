//! Compiled graphs, which are called like operators.

use std::sync::Arc;

use aten::{Graph, ResultSpec};

use crate::bounded::BoundedInput;
use crate::engine::Engine;
use crate::operators::{ArgInfo, Operator, SchemaArg};

/// What torch.compile hands over: a graph that is called like an operator and runs as a program of its own.
#[derive(Clone, Debug)]
pub struct CompiledGraph {
    /// For messages.
    pub name: String,
    pub graph: Arc<Graph>,
    /// Its arguments: tensors, and numbers that are inputs of the program.
    pub args: Vec<SchemaArg>,
    /// What PyTorch says of the results: those written into arguments first, in order, then fresh ones.
    pub results: Vec<ResultSpec>,
    /// Which of the arguments have bounded dimensions; they are the graph's inputs of the same numbers.
    pub bounded: Vec<BoundedInput>,
    /// XLA's flags for its programs, by name.
    pub options: Vec<(String, pjrt::Value)>,
}

impl Operator {
    /// A compiled graph as an operator; its argument names are the numbers of its inputs.
    pub fn of_graph(graph: CompiledGraph) -> Operator {
        Operator {
            name: graph.name.clone(),
            row: None,
            names: (0..graph.args.len()).map(|i| i.to_string()).collect(),
            args: graph.args.iter().map(|arg| ArgInfo { dynamic: arg.ty != "Tensor", default: None }).collect(),
            types: graph.args.iter().map(|arg| arg.ty.clone()).collect(),
            mutated: (0..graph.args.len()).filter(|&i| graph.args[i].is_mutated).collect(),
            follows_precision: true,
            requirement: None,
            compiled: Some(Arc::new(graph)),
        }
    }
}

impl Engine {
    /// Registers a compiled graph, which is called like an operator.
    pub fn register_graph(&mut self, graph: CompiledGraph) -> u32 {
        self.operators.push(Operator::of_graph(graph));
        self.operators.len() as u32 - 1
    }

    /// Forgets a compiled graph that nobody can call any more, and its programs.
    pub fn forget_graph(&mut self, op: u32) {
        let is_other = |key: &[u64]| key[0] as u32 != op;
        self.instances.retain(|key, _| is_other(key));
        self.families.retain(|key, _| is_other(key));
        self.operators[op as usize] = Operator::new("", "", &[]);
    }
}
