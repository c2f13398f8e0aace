//! A row of the table: the operators that share a lowering, and the lowering.

use stablehlo::{DTypes, Refusal, Value};

use crate::cx::{Arg, Cx};
use crate::error::{Error, Result, not_implemented_for};

/// How a row computes: one result, several, or another row's for each element of its lists.
#[derive(Clone, Copy)]
pub enum Lower {
    One(for<'b> fn(&Cx<'b>) -> Result<Value<'b>>),
    Many(for<'b> fn(&Cx<'b>) -> Result<Vec<Value<'b>>>),
    Each { element: &'static Row, parameters: &'static [&'static str] },
}

/// One row: the operators that share a lowering.
pub struct Row {
    /// Names with overload, such as `add.Tensor`; without the `aten::`.
    pub names: &'static [&'static str],
    pub(crate) lower: Lower,
    /// Number arguments that are part of the program instead of inputs of it, because they decide its
    /// form. A change of such a number recompiles.
    pub baked: &'static [&'static str],
    pub requirement: Option<Requirement>,
    pub(crate) takes: Option<Takes>,
    /// Whether it takes values with bounded dimensions: the valid elements of its results do not depend on padding, and
    /// it uses no capacity as a size. What it builds is checked as well.
    pub(crate) bounded: bool,
    pub(crate) shapes_like: &'static [(&'static str, &'static str)],
}

impl Row {
    pub const fn baked(mut self, baked: &'static [&'static str]) -> Row {
        self.baked = baked;
        self
    }

    /// Calls are refused unless these numbers are such that `holds`; PyTorch's kernel words the refusal.
    pub const fn requires(mut self, names: &'static [&'static str], holds: fn(&[f64]) -> bool) -> Row {
        self.requirement = Some(Requirement { names, holds });
        self
    }

    /// Calls with other types are refused, as PyTorch's kernels refuse them. Element types that an operation of the program
    /// does not take are refused without this.
    pub(crate) const fn takes(mut self, names: &'static [&'static str], dtypes: DTypes) -> Row {
        self.takes = Some(Takes { names, dtypes });
        self
    }

    /// For each of the named operators, the one with a meta kernel whose results look as its own do. PyTorch has for these
    /// only references in Python, with other strides and error texts than any device gives.
    pub(crate) const fn shapes_like(mut self, operators: &'static [(&'static str, &'static str)]) -> Row {
        self.shapes_like = operators;
        self
    }

    pub(crate) const fn bounded(mut self) -> Row {
        self.bounded = true;
        self
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Row({:?})", self.names)
    }
}

impl Row {
    pub(crate) fn lower<'b>(&self, cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
        if let Some(takes) = &self.takes {
            takes.check(cx)?;
        }
        let values = match self.lower {
            Lower::One(f) => vec![f(cx)?],
            Lower::Many(f) => f(cx)?,
            Lower::Each { element, parameters } => lower_each(cx, element, parameters)?,
        };
        match cx.b().refusal() {
            // Whoever finishes the function raises what its target does not have.
            None | Some(Refusal::Target(_)) => Ok(values),
            Some(Refusal::Bounded(what)) => {
                Err(Error::not_implemented(format!("{} with bounded dimensions: {what}", cx.operator)))
            }
            Some(Refusal::ElementType(dtype)) => Err(not_implemented_for(cx.operator, dtype)),
            Some(Refusal::Mistake(what)) => {
                Err(Error::runtime(format!("{}: internal error in its lowering: {what}", cx.operator)))
            }
        }
    }
}

/// What must hold of number arguments that are inputs of the program. Their values are not part of a call's key, so
/// PyTorch's own checks, made once for a key, do not see all of them.
#[derive(Clone, Copy)]
pub struct Requirement {
    pub names: &'static [&'static str],
    /// Takes the numbers in the order of the names.
    pub holds: fn(&[f64]) -> bool,
}

/// Of what type some of the arguments, promoted together as PyTorch does, may be.
#[derive(Clone, Copy)]
pub(crate) struct Takes {
    names: &'static [&'static str],
    dtypes: DTypes,
}

impl Takes {
    pub(crate) fn check(&self, cx: &Cx<'_>) -> Result<()> {
        cx.check_dtype(cx.promoted(self.names)?, self.dtypes)
    }
}

/// A row with one result.
pub const fn one(names: &'static [&'static str], lower: for<'b> fn(&Cx<'b>) -> Result<Value<'b>>) -> Row {
    Row {
        names,
        lower: Lower::One(lower),
        baked: &[],
        requirement: None,
        takes: None,
        bounded: false,
        shapes_like: &[],
    }
}

/// A row with several results.
pub const fn many(names: &'static [&'static str], lower: for<'b> fn(&Cx<'b>) -> Result<Vec<Value<'b>>>) -> Row {
    Row {
        names,
        lower: Lower::Many(lower),
        baked: &[],
        requirement: None,
        takes: None,
        bounded: false,
        shapes_like: &[],
    }
}

/// A family whose rows all take values with bounded dimensions.
pub(crate) const fn all_bounded<const N: usize>(mut rows: [Row; N]) -> [Row; N] {
    let mut i = 0;
    while i < N {
        rows[i].bounded = true;
        i += 1;
    }
    rows
}

/// A row that applies `element` to each element of its lists. `parameters` are the element operator's
/// names for the arguments.
pub(crate) const fn each(element: &'static Row, parameters: &'static [&'static str]) -> Row {
    Row {
        names: &[],
        lower: Lower::Each { element, parameters },
        baked: element.baked,
        requirement: None,
        takes: None,
        bounded: false,
        shapes_like: &[],
    }
}

/// One result of `element` per element of the lists.
fn lower_each<'b>(cx: &Cx<'b>, element: &Row, parameters: &'static [&'static str]) -> Result<Vec<Value<'b>>> {
    let lengths =
        cx.args.iter().filter_map(|(_, arg)| if let Arg::List(items) = arg { Some(items.len()) } else { None });
    let count = lengths.max().unwrap_or(0);
    let mut results = Vec::with_capacity(count);
    for i in 0..count {
        let args =
            parameters.iter().zip(&cx.args).map(|(name, (list_name, arg))| Ok((*name, nth(cx, list_name, arg, i)?)));
        results.extend(element.lower(&cx.with(args.collect::<Result<_>>()?))?);
    }
    Ok(results)
}

/// What the `i`-th elements see of an argument: their own element of a list, all of anything else.
fn nth<'b>(cx: &Cx<'b>, name: &str, arg: &Arg<'b>, i: usize) -> Result<Arg<'b>> {
    match arg {
        Arg::List(items) => {
            items.get(i).cloned().ok_or_else(|| Error::runtime(format!("{name}: the lists have different lengths")))
        }
        // The one tensor that holds a number for each element: addcmul's and addcdiv's "scalars".
        Arg::Tensor(_) | Arg::Value(_) if name == "scalars" => {
            let numbers = cx.tensor(name)?;
            if numbers.rank() != 1 || numbers.dim(0) <= i as i64 {
                return Err(Error::runtime("scalars: expected a 1-d tensor with a number for each tensor of the list"));
            }
            Ok(Arg::Value(numbers.select_axis(0, i as i64)))
        }
        other => Ok(other.clone()),
    }
}
