//! The operators that PyTorch may call, with what their schemas say.

use std::sync::Arc;

use aten::table;
use aten::{Requirement, Row};
use stablehlo::Number;

use crate::call::Arg;
use crate::compiled::CompiledGraph;
use crate::error::{Error, ErrorKind};
use crate::key;

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
    /// Whether a lowering depended on the precision of products: only then it is part of the key.
    pub follows_precision: bool,
    /// What must hold of the numbers at these positions.
    pub requirement: Option<(Vec<usize>, Requirement)>,
}

/// How an argument enters the key of a call.
#[derive(Clone, Copy)]
pub(crate) struct ArgInfo {
    /// A number that is an input of the program unless it equals `default`.
    pub dynamic: bool,
    pub default: Option<Number>,
}

impl Operator {
    /// `functional` names the operator whose row computes an in-place or `out=` form.
    pub fn new(name: &str, functional: &str, args: &[SchemaArg]) -> Operator {
        let row = table::find(name).or_else(|| table::find(functional));
        let info = |arg: &SchemaArg| {
            let number = matches!(arg.ty.as_str(), "Scalar" | "Scalar?" | "float" | "float?" | "Scalar[]");
            // Without a row the operator is traced by PyTorch, which sees the numbers as constants.
            let baked = row.is_none_or(|row| row.baked.contains(&arg.name.as_str()));
            ArgInfo { dynamic: number && !baked, default: arg.default }
        };
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
            mutated: (0..args.len()).filter(|&i| args[i].is_mutated).collect(),
            follows_precision: false,
            requirement,
        }
    }

    /// Whether the call's numbers are such as the operator's row requires.
    pub fn accepts(&self, args: &[Arg]) -> bool {
        let Some((positions, wanted)) = &self.requirement else { return true };
        let numbers: Option<Vec<f64>> =
            positions.iter().map(|&i| args.get(i).and_then(key::number_at).map(Number::to_f64)).collect();
        numbers.is_none_or(|numbers| (wanted.holds)(&numbers))
    }

    /// The error of a call that is not accepted.
    pub fn refusal(&self) -> Error {
        let names = self.requirement.iter().flat_map(|(positions, _)| positions).map(|&i| self.names[i].as_str());
        let names: Vec<&str> = names.collect();
        Error::new(ErrorKind::Runtime, format!("{}: {} out of range", self.name, names.join(" and ")))
    }
}
