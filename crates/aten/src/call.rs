//! A call of an operator: its arguments without their values, and how its results are computed.

use std::sync::Arc;

use stablehlo::{DType, Precision, Target};

use crate::graph::Graph;
use crate::row::Row;
use crate::spec::{ArgSpec, ResultSpec, StorageSpec, TensorSpec};

/// How a call's results are computed.
#[derive(Clone, Debug)]
pub enum Body {
    Row(&'static Row),
    Graph(Arc<Graph>),
}

/// A call to lower.
#[derive(Clone, Debug)]
pub struct Call {
    /// The operator's name, for messages.
    pub operator: String,
    /// A row of the table, PyTorch's decomposition, or a compiled graph.
    pub body: Body,
    /// The schema's argument names, and the arguments.
    pub names: Vec<String>,
    pub args: Vec<ArgSpec>,
    pub storages: Vec<StorageSpec>,
    /// Which arguments the operator writes, in schema order.
    pub mutated: Vec<usize>,
    /// The results as PyTorch's meta kernel describes them: first the mutated arguments, then the fresh results.
    /// `None` if there is no meta kernel. An element is `None` if the call has no such result (`output_mask`).
    pub results: Option<Vec<Option<ResultSpec>>>,
    pub precision: Precision,
    /// `torch.get_default_dtype()`: what integers become, and what Python's floats are.
    pub default_dtype: DType,
    pub target: Target,
    /// Whether the program computes the checks of the data that rows add.
    pub is_checked: bool,
}

impl Call {
    /// See [`crate::Row::own_inputs`].
    pub(crate) fn has_own_inputs(&self) -> bool {
        matches!(self.body, Body::Row(row) if row.own_inputs)
    }

    /// The tensors that the call writes, in schema order with lists flattened.
    pub fn written_tensors(&self) -> Vec<&TensorSpec> {
        fn collect<'a>(arg: &'a ArgSpec, into: &mut Vec<&'a TensorSpec>) {
            match arg {
                ArgSpec::Tensor(tensor) => into.push(tensor),
                ArgSpec::List(items) => items.iter().for_each(|item| collect(item, into)),
                _ => {}
            }
        }
        let mut tensors = Vec::new();
        for &i in &self.mutated {
            collect(&self.args[i], &mut tensors);
        }
        tensors
    }
}
