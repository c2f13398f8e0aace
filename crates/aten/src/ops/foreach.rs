//! Operators over lists of tensors (`_foreach_…`): apply another row to each element.
//!
//! They have no rows of their own. The row follows from the name: `_foreach_add.Scalar` applies `add.Scalar`, and
//! `_foreach_exp` applies `exp`.

use crate::row::{Row, each};

/// The row of an operator over lists, if `find` has one for the elements.
pub(crate) fn derive(name: &str, find: impl Fn(&str) -> Option<&'static Row>) -> Option<Row> {
    let (base, overload) = name.strip_prefix("_foreach_")?.split_once('.').unwrap_or((&name["_foreach_".len()..], ""));
    let base = match (base, overload) {
        ("norm", _) => "linalg_vector_norm",
        ("powsum", _) => "linalg__powsum",
        // As PyTorch has it, a maximum of a tensor and a number does not exist for booleans.
        ("maximum", "Scalar" | "ScalarList") => "clamp_min",
        ("minimum", "Scalar" | "ScalarList") => "clamp_max",
        (base, _) => base,
    };
    // Overloads of the list operator, mapped to overloads of the element operator: a list becomes a tensor, a list of
    // numbers becomes a number.
    let overloads: &[&str] = match (base, overload) {
        ("pow", "List") => &["Tensor_Tensor"],
        ("pow", "Scalar" | "ScalarList") => &["Tensor_Scalar"],
        ("pow", "ScalarAndTensor") => &["Scalar"],
        (_, "List" | "Tensor") => &["Tensor", ""],
        (_, "Scalar" | "ScalarList") => &["Scalar", ""],
        _ => &[""],
    };
    let element = overloads.iter().find_map(|overload| match *overload {
        "" => find(base),
        overload => find(&format!("{base}.{overload}")),
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
