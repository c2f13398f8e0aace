//! The operators that PyTorch may call, with their schemas.

use std::sync::Arc;

use aten::table;
use aten::{Requirement, Row, Setting};
use stablehlo::{DType, Number};

use super::compiled::{CompiledGraph, SchemaArg};
use crate::call::{self, Arg, Tag};
use crate::error::{Error, ErrorKind};

/// An operator known to the engine.
pub(crate) struct Operator {
    pub name: String,
    pub row: Option<&'static Row>,
    pub compiled: Option<Arc<CompiledGraph>>,
    pub names: Vec<String>,
    pub args: Vec<ArgInfo>,
    /// The schema's types as text.
    pub types: Vec<String>,
    pub mutated: Vec<usize>,
    /// Whether each element of its lists is computed from the same element of the others.
    pub is_by_element: bool,
    /// Whether a lowering has depended on the precision of products. Only then is the precision part of the key.
    pub follows_precision: bool,
    /// A condition on the numbers at these positions.
    pub requirement: Option<(Vec<usize>, Requirement)>,
}

/// How an argument enters the key of a call.
#[derive(Clone, Copy)]
pub(crate) struct ArgInfo {
    /// A number that is an input of the program unless it equals `default`.
    pub dynamic: bool,
    pub default: Option<Number>,
    /// The numbers that are constants nevertheless.
    pub special: Option<fn(Number) -> bool>,
    /// Ints that may be inputs of a program as offsets of views are.
    pub varies: bool,
    /// Whether each tensor that is a whole storage is an input of its own.
    pub is_own_input: bool,
}

impl ArgInfo {
    /// Whether a number is an input of the program.
    pub fn is_input(&self, number: Number) -> bool {
        self.dynamic && self.default != Some(number) && !self.special.is_some_and(|special| special(number))
    }
}

impl Operator {
    /// `functional` names the operator whose row computes an in-place or `out=` form.
    pub fn new(name: &str, functional: &str, args: &[SchemaArg]) -> Operator {
        // An out= form has no row if the functional operator also writes other arguments: that operator is called, and its
        // results are copied.
        let row = table::find(name).or_else(|| table::find(functional).filter(|row| row.writes.is_empty()));
        let info = |arg: &SchemaArg| {
            let number = matches!(arg.ty.as_str(), "Scalar" | "Scalar?" | "float" | "float?" | "Scalar[]");
            let is_input = row.is_some_and(|row| row.inputs.contains(&arg.name.as_str()));
            // Without a row the operator is traced by PyTorch, which sees the numbers as constants.
            let baked = row.is_none_or(|row| row.baked.contains(&arg.name.as_str()));
            let special = row.and_then(|row| row.special).filter(|_| baked);
            let varies = row.and_then(|row| row.varying).is_some_and(|ints| ints.names.contains(&arg.name.as_str()));
            let dynamic = number && (!baked || special.is_some()) || is_input;
            let is_own_input = row.is_some_and(|row| row.own_inputs);
            ArgInfo { dynamic, default: arg.default, special, varies, is_own_input }
        };
        let writes = row.map_or(&[][..], |row| row.writes);
        let position = |name: &&str| args.iter().position(|arg| arg.name == *name);
        let requirement = row.and_then(|row| row.requirement);
        let requirement =
            requirement.and_then(|wanted| Some((wanted.names.iter().map(position).collect::<Option<_>>()?, wanted)));
        Operator {
            name: name.to_owned(),
            row,
            compiled: None,
            names: args.iter().map(|arg| arg.name.clone()).collect(),
            args: args.iter().map(info).collect(),
            types: args.iter().map(|arg| arg.ty.clone()).collect(),
            is_by_element: row.is_some_and(Row::is_by_element),
            mutated: (0..args.len())
                .filter(|&i| args[i].is_mutated || writes.contains(&args[i].name.as_str()))
                .collect(),
            follows_precision: false,
            requirement,
        }
    }

    /// A compiled graph as an operator; its argument names are the numbers of its inputs.
    pub fn of_graph(graph: CompiledGraph) -> Operator {
        Operator {
            name: graph.name.clone(),
            row: None,
            names: (0..graph.args.len()).map(|i| i.to_string()).collect(),
            args: (graph.args.iter())
                .map(|arg| ArgInfo {
                    dynamic: arg.ty != "Tensor",
                    default: None,
                    special: None,
                    varies: false,
                    is_own_input: false,
                })
                .collect(),
            types: graph.args.iter().map(|arg| arg.ty.clone()).collect(),
            mutated: (0..graph.args.len()).filter(|&i| graph.args[i].is_mutated).collect(),
            is_by_element: false,
            follows_precision: true,
            requirement: None,
            compiled: Some(Arc::new(graph)),
        }
    }

    /// Whether the offsets of its arguments are inputs of its program from the first call on, where that costs nothing.
    pub fn opens_offsets(&self) -> bool {
        self.row.is_some_and(|row| row.open_offsets)
    }

    /// The class of the varying ints of a call. Calls of the same class share a program. `None` if the ints are constants of it.
    pub fn class(&self, args: &[Arg]) -> Option<Vec<i64>> {
        let varying = self.row?.varying?;
        let mut ints = Vec::new();
        for (arg, _) in args.iter().zip(&self.args).filter(|(_, info)| info.varies) {
            ints.extend_from_slice(arg.varying()?);
        }
        let named = args.iter().find(|arg| arg.tag == Tag::Dtype).map(|arg| arg.int() as i8);
        let tensor = args.iter().find(|arg| arg.tag == Tag::Tensor);
        let dim = args.iter().zip(&self.names).find(|(arg, name)| *name == "dim" && arg.tag == Tag::Int);
        let setting = Setting {
            dtype: named.or(tensor.map(|arg| arg.tensor().dtype)).and_then(call::dtype),
            sizes: tensor.map_or(&[], |arg| arg.tensor().sizes()),
            dim: dim.map(|(arg, _)| arg.int()),
        };
        (varying.class)(&ints, &setting)
    }

    /// Whether the numbers of a call satisfy the row's condition.
    pub fn accepts(&self, args: &[Arg]) -> bool {
        let Some((positions, wanted)) = &self.requirement else { return true };
        let number_at = |&i: &usize| {
            let arg = args.get(i)?;
            match arg.tag {
                Tag::None => Some(f64::NAN),
                Tag::Int | Tag::Float | Tag::Bool | Tag::ScalarTensor => Some(arg.number().to_f64()),
                _ => None,
            }
        };
        let numbers: Option<Vec<f64>> = positions.iter().map(number_at).collect();
        let tensor = args.iter().find(|arg| arg.tag == Tag::Tensor);
        let dtype = tensor.and_then(|arg| call::dtype(arg.tensor().dtype)).unwrap_or(DType::F64);
        numbers.is_none_or(|numbers| (wanted.holds)(&numbers, dtype))
    }

    /// The error for a call that is not accepted.
    pub fn refusal(&self) -> Error {
        let names = self.requirement.iter().flat_map(|(positions, _)| positions).map(|&i| self.names[i].as_str());
        let names: Vec<&str> = names.collect();
        Error::new(ErrorKind::Runtime, format!("{}: {} out of range", self.name, names.join(" and ")))
    }
}
