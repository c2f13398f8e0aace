//! Compiled graphs, which are called like operators.

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
    /// A keyword-only mutated argument: an `out=`.
    pub is_out: bool,
    pub default: Option<Number>,
}

/// A tensor argument of a compiled graph that has bounded dimensions.
#[derive(Clone, Debug)]
pub struct BoundedInput {
    /// The number of the argument, which is also that of the graph's input.
    pub arg: usize,
    pub dims: Vec<Dim>,
    /// As large as they can get.
    pub sizes: Vec<i64>,
    pub strides: Vec<i64>,
}

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
