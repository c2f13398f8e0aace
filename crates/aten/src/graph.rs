//! Graphs of rows: decompositions, compiled graphs and the functions that control flow calls.

use stablehlo::{Extent, Number};

use crate::spec::{ArgSpec, Dim};

/// A decomposition, or a whole compiled graph: nodes in order, each a row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// How many values the graph takes: the call's tensor arguments in order, lists flattened, absent
    /// ones skipped, written-only ones (`out=`) left out. Numbers that are inputs of the program count.
    pub inputs: usize,
    pub nodes: Vec<Node>,
    pub outputs: Vec<Option<usize>>,
    /// In a graph with bounded dimensions.
    pub bounds: Option<Bounds>,
}

/// The bounded dimensions of a graph's values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Which inputs, all numbers, are its sizes, with their capacities.
    pub sizes: Vec<(usize, i64)>,
    /// The extents of inputs that have such dimensions, by the numbers of the inputs.
    pub inputs: Vec<(usize, Vec<Extent>)>,
    /// The sizes that PyTorch gives each node's results, where they are known.
    pub results: Vec<Option<Vec<Option<Vec<Dim>>>>>,
}

/// One node: values are numbered inputs first, then each node's results as they come.
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
