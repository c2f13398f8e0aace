//! Compiled graphs. They are called like operators.

use std::sync::Arc;

use aten::{Dim, Graph, ResultSpec};
use stablehlo::Number;

/// One argument of a schema.
#[derive(Clone, Debug)]
pub struct SchemaArg {
    pub name: String,
    /// The schema's type: "Tensor", "Scalar?", "int[]", …
    pub ty: String,
    pub is_mutated: bool,
    /// A keyword-only mutated argument (`out=`).
    pub is_out: bool,
    pub default: Option<Number>,
}

/// A tensor argument of a compiled graph with bounded dimensions.
#[derive(Clone, Debug)]
pub struct BoundedInput {
    /// The number of the argument, which is also the number of the graph's input.
    pub arg: usize,
    pub dims: Vec<Dim>,
    /// The capacities.
    pub sizes: Vec<i64>,
    pub strides: Vec<i64>,
}

/// A graph from torch.compile. It is called like an operator and runs as a program of its own.
#[derive(Clone, Debug)]
pub struct CompiledGraph {
    /// The name in messages.
    pub name: String,
    pub graph: Arc<Graph>,
    /// Its arguments: tensors, and numbers that are inputs of the program.
    pub args: Vec<SchemaArg>,
    /// The results from PyTorch: first those written to arguments, in order, then the fresh ones.
    pub results: Vec<ResultSpec>,
    /// The arguments with bounded dimensions. They are the graph's inputs of the same numbers.
    pub bounded: Vec<BoundedInput>,
    /// XLA's flags for its programs, by name.
    pub options: Vec<(String, pjrt::Value)>,
    /// The devices of its replicas, by their global ids. Empty for a program of one device. This process runs one
    /// replica, and other processes run the others.
    pub replicas: Vec<i64>,
}
