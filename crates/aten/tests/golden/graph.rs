//! Calls of graphs of rows.

use aten::{ArgSpec, Bounds, DType, Dim, Graph, GraphArg, Node};

use crate::case::Case;

/// One node with one result. Values are numbered: the inputs, then the results of the nodes.
pub fn node(operator: &str, args: &[(&str, GraphArg)]) -> Node {
    let args = args.iter().map(|(name, arg)| ((*name).into(), arg.clone())).collect();
    Node { operator: operator.into(), args, results: 1 }
}

pub fn value(number: usize) -> GraphArg {
    GraphArg::Value(number)
}

pub fn values(numbers: &[usize]) -> GraphArg {
    GraphArg::Values(numbers.iter().copied().map(Some).collect())
}

pub fn int(int: i64) -> GraphArg {
    GraphArg::Plain(ArgSpec::Int(int))
}

pub fn ints(ints: &[i64]) -> GraphArg {
    GraphArg::Plain(ArgSpec::Ints(ints.to_vec()))
}

pub fn dims(dims: &[Dim]) -> GraphArg {
    GraphArg::Plain(ArgSpec::Dims(dims.to_vec()))
}

pub fn bool(bool: bool) -> GraphArg {
    GraphArg::Plain(ArgSpec::Bool(bool))
}

/// A graph whose result is the last of its values.
pub fn graph(inputs: usize, nodes: Vec<Node>) -> Graph {
    let last = inputs + nodes.len() - 1;
    Graph { inputs, nodes, outputs: vec![Some(last)], bounds: None }
}

/// A size that is known.
pub fn known(size: i64) -> Dim {
    Dim::known(size)
}

/// A size that is a product of sizes of the graph, given by their numbers, and of a known number.
pub fn bounded(capacity: i64, sizes: &[u32]) -> Dim {
    Dim::new(capacity, sizes.to_vec())
}

/// A graph with bounded dimensions. It takes float32 tensors of the given sizes and then its sizes, of the given
/// capacities. Each node comes with the sizes that PyTorch gives its result.
pub fn bounded_graph(title: &str, inputs: &[&[Dim]], capacities: &[i64], nodes: Vec<(Node, &[Dim])>) -> Case {
    let extents = |dims: &[Dim]| dims.iter().map(|dim| dim.extent(|size| capacities[size as usize])).collect();
    let bounds = Bounds {
        sizes: capacities.iter().enumerate().map(|(i, &capacity)| (inputs.len() + i, capacity)).collect(),
        inputs: inputs.iter().enumerate().map(|(i, dims)| (i, extents(dims))).collect(),
        results: nodes.iter().map(|(_, dims)| Some(vec![Some(dims.to_vec())])).collect(),
    };
    let nodes = nodes.into_iter().map(|(node, _)| node).collect();
    let graph = Graph { bounds: Some(bounds), ..graph(inputs.len() + capacities.len(), nodes) };
    let mut case = Case::graph(title, graph);
    for (i, dims) in inputs.iter().enumerate() {
        case = case.tensor(&format!("x{i}"), DType::F32, &Dim::capacities(dims));
    }
    for (i, capacity) in capacities.iter().enumerate() {
        case = case.number(&format!("size {i} of at most {capacity}"), DType::I64);
    }
    case
}
