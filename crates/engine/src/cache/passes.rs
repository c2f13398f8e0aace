//! Passes of XLA's CPU compiler that a program must not have.
//!
//! One pass removes optimization barriers before the compiler fuses operations. A write of a part of a value in place
//! needs its barrier there (`Value::before_write` in the crate stablehlo). Small loops have no code for barriers, so those
//! in regions are removed first.
//!
//! Another pass converts bfloat16 to float32 and back around operations, because few of the compiler's operations compute
//! in bfloat16. It does so around an update of a part of an array, too, and then a write of a few rows converts the whole
//! array instead of happening in place. A program that only moves bfloat16 does not need it.

use std::borrow::Cow;

use pjrt::Value;

/// Operations that copy elements as they are.
const MOVES: [&str; 17] = [
    "broadcast_in_dim",
    "case",
    "concatenate",
    "constant",
    "dynamic_slice",
    "dynamic_update_slice",
    "gather",
    "if",
    "optimization_barrier",
    "pad",
    "reshape",
    "return",
    "scatter",
    "select",
    "slice",
    "transpose",
    "while",
];

/// Operations that write a part of a value. A scatter with one index becomes an update of a slice.
const WRITES: [&str; 2] = ["\"stablehlo.dynamic_update_slice\"", "\"stablehlo.scatter\""];
pub(super) const BARRIER: &str = "\"stablehlo.optimization_barrier\"";

fn is_written(text: &str) -> bool {
    WRITES.iter().any(|name| text.contains(name))
}

/// XLA's flags for a program on a CPU. `needs_barriers`: where the program writes no part of a value, too.
pub(super) fn flags(text: &str, needs_barriers: bool) -> Option<(String, Value)> {
    let left_out = [
        ("cse_barrier_expander", needs_barriers || is_written(text)),
        ("float-normalization-bf16", only_moves_bfloat16(text)),
    ];
    let names: Vec<&str> = left_out.into_iter().filter_map(|(name, is_left_out)| is_left_out.then_some(name)).collect();
    (!names.is_empty()).then(|| ("xla_disable_hlo_passes".to_owned(), Value::Str(names.join(","))))
}

/// The text to compile with these flags.
pub(super) fn without_barriers_in_regions(text: &str) -> Cow<'_, str> {
    if !is_written(text) || !text.contains(BARRIER) {
        return text.into();
    }
    let mut depth = 0;
    let lines = text.split_inclusive('\n').map(|line| {
        depth -= usize::from(ends_regions(line)).min(depth);
        let is_inside = depth > 0;
        depth += usize::from(begins_regions(line));
        // The same value, by a reshape to its own shape.
        if is_inside { line.replace(BARRIER, "\"stablehlo.reshape\"").into() } else { Cow::Borrowed(line) }
    });
    lines.collect::<String>().into()
}

fn only_moves_bfloat16(text: &str) -> bool {
    let mut is_moved = false;
    // The operations with regions that a line is in.
    let mut open: Vec<Option<&str>> = Vec::new();
    for line in text.lines() {
        let ends = ends_regions(line).then(|| open.pop().flatten());
        let name = ends.unwrap_or_else(|| operation(line));
        if line.contains("bf16>") && !line.starts_with("^bb") {
            let is_move = match name {
                // What the pass would insert.
                Some("convert") => line.contains("f32>"),
                Some(name) => MOVES.contains(&name),
                None => line.contains("func."),
            };
            if !is_move {
                return false;
            }
            is_moved = true;
        }
        if begins_regions(line) {
            open.push(name);
        }
    }
    is_moved
}

/// Whether an operation begins in a line and has its regions in the next ones.
pub(super) fn begins_regions(line: &str) -> bool {
    line.trim_end().ends_with("({")
}

pub(super) fn ends_regions(line: &str) -> bool {
    line.starts_with("})")
}

/// The name of the operation of a line.
pub(super) fn operation(line: &str) -> Option<&str> {
    line.split_once("\"stablehlo.")?.1.split_once('"').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: &str = r#"func.func private @graph(%v0: tensor<9x8xbf16> , %v1: tensor<2x1xi32> , %v2: tensor<2x8xbf16> ) -> (tensor<9x8xbf16>) {
%v3 = "stablehlo.add"(%v1, %v1) {} : (tensor<2x1xi32>, tensor<2x1xi32>) -> tensor<2x1xi32>
%v6 = "stablehlo.scatter"(%v0, %v3, %v2) ({
^bb0(%v4: tensor<bf16>, %v5: tensor<bf16>):
"stablehlo.return"(%v5) : (tensor<bf16>) -> ()
}) {unique_indices = false} : (tensor<9x8xbf16>, tensor<2x1xi32>, tensor<2x8xbf16>) -> (tensor<9x8xbf16>)
"func.return"(%v6) : (tensor<9x8xbf16>) -> ()
}"#;

    #[test]
    fn passes_are_left_out() {
        let update = "%v1 = \"stablehlo.dynamic_update_slice\"(%v0, %v0, %v2) {} : (tensor<8xf32>) -> tensor<8xf32>";
        let passes = |text: &str| flags(text, false).map(|(_, value)| value);
        let named = |names: &str| Some(Value::Str(names.into()));
        assert_eq!(passes(update), named("cse_barrier_expander"));
        assert_eq!(passes(WRITE), named("cse_barrier_expander,float-normalization-bf16"));
        assert_eq!(passes(&WRITE.replace("scatter", "gather")), named("float-normalization-bf16"));
        assert_eq!(passes(&update.replace("f32", "bf16")), named("cse_barrier_expander,float-normalization-bf16"));
        assert_eq!(passes(&update.replace("dynamic_update_slice", "negate")), None);
    }

    #[test]
    fn barriers_stay_outside_regions() {
        let barrier = "%v8 = \"stablehlo.optimization_barrier\"(%v0) {} : (tensor<4xf32>) -> tensor<4xf32>\n";
        let region = format!(
            "%v6 = \"stablehlo.while\"(%v0) ({{\n^bb0(%v4: tensor<4xf32>):\n{barrier}}}, {{\n{barrier}}}) {{}}\n"
        );
        let update = "%v1 = \"stablehlo.dynamic_update_slice\"(%v0, %v0, %v2) {}\n";
        let text = format!("{barrier}{region}{update}{barrier}");
        let changed = without_barriers_in_regions(&text);
        assert_eq!(changed, format!("{barrier}{}{update}{barrier}", region.replace("optimization_barrier", "reshape")));
        assert_eq!(without_barriers_in_regions(&region), region);
    }

    #[test]
    fn writes_of_rows_move() {
        assert!(only_moves_bfloat16(WRITE));
        assert!(!only_moves_bfloat16(&WRITE.replace("bf16", "f16")), "nothing is bfloat16");
    }

    #[test]
    fn arithmetic_does_not_move() {
        let added = WRITE.replace(
            "\"stablehlo.return\"(%v5)",
            "%v7 = \"stablehlo.add\"(%v4, %v5) {} : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>\n\"stablehlo.return\"(%v7)",
        );
        assert!(!only_moves_bfloat16(&added));
        assert!(!only_moves_bfloat16(&WRITE.replace("stablehlo.scatter", "stablehlo.reduce_window")));
        assert!(only_moves_bfloat16("%1 = \"stablehlo.convert\"(%0) {} : (tensor<8xf32>) -> tensor<8xbf16>"));
        assert!(!only_moves_bfloat16("%1 = \"stablehlo.convert\"(%0) {} : (tensor<8xi32>) -> tensor<8xbf16>"));
        assert!(!only_moves_bfloat16("%1 = chlo.erf %0 : tensor<8xbf16> -> tensor<8xbf16>"));
    }
}
