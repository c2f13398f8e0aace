//! Graphs of rows: decompositions, compiled graphs and the functions that control flow calls.

use stablehlo::{Extent, Number};

use crate::spec::{ArgSpec, Dim};

/// A decomposition, or a whole compiled graph: nodes in order, each a row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The number of inputs: the call's tensor arguments in order. Lists are flattened. Absent tensors and tensors
    /// that are only written (`out=`) are skipped. Numbers that are inputs of the program count.
    pub inputs: usize,
    pub nodes: Vec<Node>,
    pub outputs: Vec<Option<usize>>,
    /// Set if the graph has bounded dimensions.
    pub bounds: Option<Bounds>,
}

/// The bounded dimensions of a graph's values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    /// The inputs that are sizes (all numbers), with their capacities.
    pub sizes: Vec<(usize, i64)>,
    /// The extents of inputs with bounded dimensions, by input number.
    pub inputs: Vec<(usize, Vec<Extent>)>,
    /// The sizes that PyTorch gives each node's results, if known.
    pub results: Vec<Option<Vec<Option<Vec<Dim>>>>>,
}

/// One node. Values are numbered: the inputs first, then the results of each node in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub operator: String,
    pub args: Vec<(String, GraphArg)>,
    pub results: usize,
}

/// An argument of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphArg {
    Value(usize),
    Values(Vec<Option<usize>>),
    Scalar(Number),
    Scalars(Vec<Number>),
    /// A function that the operator calls, such as a loop's body.
    Graph(Box<Graph>),
    Plain(ArgSpec),
}
