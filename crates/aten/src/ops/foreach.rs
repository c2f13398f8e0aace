//! Operators over lists of tensors (`_foreach_…`): another row applied to each element.
//!
//! None of them has a row of its own. Which row it applies follows from its name: `_foreach_add.Scalar`
//! applies `add.Scalar`, `_foreach_exp` applies `exp`.

use stablehlo::Value;

use crate::cx::{Arg, Cx};
use crate::error::{Error, Result};
use crate::table::{self, Row, each};

/// The row of an operator over lists, if there is one for its elements.
pub(crate) fn derive(name: &str) -> Option<Row> {
    let (base, overload) = name.strip_prefix("_foreach_")?.split_once('.').unwrap_or((&name["_foreach_".len()..], ""));
    let base = match base {
        "norm" => "linalg_vector_norm",
        "powsum" => "linalg__powsum",
        base => base,
    };
    // Lists stand for tensors, and an element of a list of numbers for a number.
    let overloads: &[&str] = match (base, overload) {
        ("pow", "List") => &["Tensor_Tensor"],
        ("pow", "Scalar" | "ScalarList") => &["Tensor_Scalar"],
        ("pow", "ScalarAndTensor") => &["Scalar"],
        (_, "List" | "Tensor") => &["Tensor", ""],
        (_, "Scalar" | "ScalarList") => &["Scalar", ""],
        _ => &[""],
    };
    let element = overloads.iter().find_map(|overload| match *overload {
        "" => table::find(base),
        overload => table::find(&format!("{base}.{overload}")),
    })?;
    Some(each(element, parameters(base)))
}

/// The element operator's arguments, in the order of the list operator's.
fn parameters(base: &str) -> &'static [&'static str] {
    match base {
        "addcdiv" | "addcmul" => &["self", "tensor1", "tensor2", "value"],
        "clamp_max" => &["self", "max"],
        "clamp_min" => &["self", "min"],
        "copy" => &["self", "src", "non_blocking"],
        "lerp" => &["self", "end", "weight"],
        "linalg_vector_norm" | "linalg__powsum" => &["self", "ord", "dtype"],
        "mm" => &["self", "mat2"],
        "pow" => &["self", "exponent"],
        _ => &["self", "other", "alpha"],
    }
}

/// One result of `element` per element of the lists.
pub(crate) fn lower_each<'b>(
    cx: &Cx<'b>,
    element: &Row,
    parameters: &'static [&'static str],
) -> Result<Vec<Value<'b>>> {
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
