//! A program as the plugin runs it: with one number for each value, which stands for all of its elements.
//!
//! The text is the one that `crates/stablehlo` writes: an operation to a line, but for its regions. Functions of another
//! form, such as those of kernels, are skipped: the numbers of their results are unknown. What an operation is
//! not known to do to a number, and what would no longer be finite, becomes 1.

use rustc_hash::FxHashMap;

use crate::array::{self, Elements, Type};
use crate::element::Element;

/// The number for a value of which nothing is known.
const UNKNOWN: f64 = 1.0;

#[derive(Debug)]
pub(crate) enum Kind {
    /// A call of a function of the module.
    Call(String),
    Constant {
        number: f64,
        /// Whether all elements are this number.
        is_splat: bool,
    },
    Operation(String),
}

#[derive(Debug)]
pub(crate) struct Operation {
    pub kind: Kind,
    pub operands: Vec<usize>,
    pub operand_types: Vec<Type>,
    pub results: Vec<usize>,
    pub result_types: Vec<Type>,
    /// The last operation of its region, of one that has a region.
    pub combines: Option<String>,
    /// The comparison, of one that compares.
    pub direction: Option<String>,
    /// The text of its attributes.
    pub attributes: String,
}

/// The knowledge of a value: one number that stands for all of its elements, and the elements of a small value if they
/// are known.
#[derive(Clone, Debug)]
pub struct Known {
    pub number: f64,
    pub elements: Option<Elements>,
    /// Whether all elements are the number, whatever the data: of constants, and of searches for what is not finite,
    /// which finds nothing here.
    pub is_certain: bool,
    /// Whether the elements are known because of the data that was uploaded.
    pub is_exact: bool,
}

impl Known {
    pub const UNKNOWN: Known = Known::invented(UNKNOWN);

    pub const fn invented(number: f64) -> Known {
        Known { number, elements: None, is_certain: false, is_exact: false }
    }

    pub fn of(number: f64, elements: Option<Elements>) -> Known {
        let number = match elements.as_deref() {
            Some(&[element]) => element,
            _ => number,
        };
        let is_certain = elements.as_ref().is_some_and(|elements| elements.iter().all(|&each| each == number));
        Known { number, is_exact: elements.is_some(), elements, is_certain }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Function {
    pub parameters: Vec<usize>,
    pub operations: Vec<Operation>,
    pub returned: Vec<usize>,
    pub values: usize,
}

#[derive(Debug)]
pub struct Program {
    pub(crate) functions: FxHashMap<String, Function>,
    pub results: Vec<Type>,
}

impl Program {
    /// Computes the knowledge of the results from that of the inputs.
    pub fn run(&self, inputs: &[Known]) -> Vec<Known> {
        let mut results = self.call("main", inputs);
        results.resize(self.results.len(), Known::UNKNOWN);
        results
    }

    fn call(&self, name: &str, inputs: &[Known]) -> Vec<Known> {
        let Some(function) = self.functions.get(name) else { return Vec::new() };
        let mut values = vec![Known::UNKNOWN; function.values];
        for (parameter, input) in function.parameters.iter().zip(inputs) {
            values[*parameter] = input.clone();
        }
        for operation in &function.operations {
            let operands: Vec<Known> = operation.operands.iter().map(|operand| values[*operand].clone()).collect();
            let results = match &operation.kind {
                Kind::Call(name) => self.call(name, &operands),
                Kind::Constant { number, is_splat } => {
                    let ty = operation.result_types.first().filter(|_| *is_splat);
                    let known = Known::of(*number, ty.and_then(|ty| array::filled(ty, *number)));
                    vec![Known { is_certain: *is_splat, ..known }]
                }
                Kind::Operation(name) => operation.known(name, &operands),
            };
            let results = results.into_iter().chain(std::iter::repeat(Known::UNKNOWN));
            for (place, result) in operation.results.iter().zip(results) {
                values[*place] = result;
            }
        }
        function.returned.iter().map(|value| values[*value].clone()).collect()
    }
}

impl Operation {
    fn known(&self, name: &str, operands: &[Known]) -> Vec<Known> {
        let numbers: Vec<f64> = operands.iter().map(|operand| operand.number).collect();
        let elements: Vec<Option<Elements>> = operands.iter().map(|operand| operand.elements.clone()).collect();
        let is_exact = operands.iter().all(|operand| operand.is_exact);
        let mut elements = self.elements(name, &elements).or_else(|| self.shared_out(name, operands));
        let is_certain = self.is_certain(name, operands);
        let known = |number| {
            let known = Known::of(number, elements.take());
            let (is_certain, is_exact) = (known.is_certain && is_exact || is_certain, known.is_exact && is_exact);
            Known { is_certain, is_exact, ..known }
        };
        self.run(name, &numbers).into_iter().map(known).collect()
    }

    /// The numbers of the results, from those of the operands.
    pub(crate) fn run(&self, name: &str, operands: &[f64]) -> Vec<f64> {
        let Some(name) = name.strip_prefix("stablehlo.") else { return Vec::new() };
        let result = match (name, operands) {
            ("reduce" | "reduce_window" | "scatter" | "select_and_scatter", _) => {
                return self.run_region(name, operands);
            }
            // What is sorted with the keys, such as their positions, keeps its numbers.
            ("sort", _) => return operands.to_vec(),
            ("compare", [x, y]) => truth(match self.direction.as_deref() {
                Some("EQ") => x == y,
                Some("NE") => x != y,
                Some("LT") => x < y,
                Some("LE") => x <= y,
                Some("GT") => x > y,
                _ => x >= y,
            }),
            ("is_finite", [x]) => truth(x.is_finite()),
            ("select", [predicate, x, y]) => return vec![if *predicate != 0.0 { *x } else { *y }],
            ("clamp", [low, x, high]) => x.max(*low).min(*high),
            ("dot_general" | "convolution" | "custom_call" | "rng_bit_generator" | "while" | "case" | "if", _) => {
                return Vec::new();
            }
            ("bitcast_convert", [x]) => match (self.operand_types.first(), self.element()) {
                (Some(from), Some(to)) if from.element.size() == to.size() => to.read(&from.element.write(*x)),
                _ => *x,
            },
            ("iota", _) => 0.0,
            ("concatenate" | "dynamic_slice" | "dynamic_update_slice" | "gather" | "pad", [x, ..]) => *x,
            (name, [x]) => unary(name, *x, self.element()),
            (name, [x, y]) => binary(name, *x, *y, self.element()),
            (_, [x, ..]) => *x,
            (_, []) => UNKNOWN,
        };
        // An infinity that is given is kept: it is what a search for infinities compares with.
        let is_given = operands.iter().any(|operand| !operand.is_finite());
        vec![if result.is_finite() || is_given && !result.is_nan() { result } else { UNKNOWN }]
    }

    fn element(&self) -> Option<Element> {
        self.result_types.first().map(|ty| ty.element)
    }

    /// Reductions: the operands are values and then as many initial values.
    fn run_region(&self, name: &str, operands: &[f64]) -> Vec<f64> {
        if name != "reduce" {
            // Updates that replace as many elements as there are replace them all.
            let is_whole = match self.operand_types.as_slice() {
                [into, _, updates] => name == "scatter" && self.combines.is_none() && into.count() == updates.count(),
                _ => false,
            };
            let (from, shares) = (usize::from(is_whole) * 2, self.shares());
            let added = shares.map_or(0.0, |(each, _)| each * operands.get(2).copied().unwrap_or_default());
            return operands.get(from).map(|number| number + added).into_iter().collect();
        }
        let half = operands.len() / 2;
        let count = match (self.operand_types.first(), self.result_types.first()) {
            (Some(from), Some(to)) if to.count() > 0 => (from.count() / to.count()) as f64,
            _ => 1.0,
        };
        let (values, initial) = operands.split_at(half);
        let several = half != 1;
        let combined = values.iter().zip(initial).map(|(value, initial)| match self.combines.as_deref() {
            // Values that are reduced together, such as maxima and their indices, keep their own numbers.
            _ if several => *value,
            Some("stablehlo.add") => initial + value * count,
            Some("stablehlo.maximum") => initial.max(*value),
            Some("stablehlo.minimum") => match initial.min(*value) {
                // A search for the first position finds none, because its values were invented.
                least if least == *initial && matches!(self.element(), Some(Element::Signed(_))) => 0.0,
                least => least,
            },
            Some("stablehlo.or") => truth(*initial != 0.0 || *value != 0.0),
            Some("stablehlo.and") => truth(*initial != 0.0 && *value != 0.0),
            _ => *value,
        });
        combined.map(|number| if number.is_finite() { number } else { UNKNOWN }).collect()
    }
}

fn truth(is_true: bool) -> f64 {
    f64::from(u8::from(is_true))
}

fn unary(name: &str, x: f64, element: Option<Element>) -> f64 {
    match name {
        "abs" => x.abs(),
        "negate" => -x,
        "exponential" => x.exp(),
        "exponential_minus_one" => x.exp_m1(),
        "log" => x.ln(),
        "log_plus_one" => x.ln_1p(),
        "logistic" => 1.0 / (1.0 + (-x).exp()),
        "tanh" => x.tanh(),
        "sine" => x.sin(),
        "cosine" => x.cos(),
        "sqrt" => x.sqrt(),
        "rsqrt" => 1.0 / x.sqrt(),
        "cbrt" => x.cbrt(),
        "sign" => {
            if x == 0.0 {
                0.0
            } else {
                x.signum()
            }
        }
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "round_nearest_even" => x.round_ties_even(),
        "round_nearest_afz" => x.round(),
        "not" if element == Some(Element::Bool) => truth(x == 0.0),
        "not" => wrapped(!(x as i128), element),
        "convert" => match element {
            Some(Element::Bool) => truth(x != 0.0),
            Some(element) if element.is_float() => x,
            _ => x.trunc(),
        },
        // Shapes change, and no number.
        _ => x,
    }
}

fn binary(name: &str, x: f64, y: f64, element: Option<Element>) -> f64 {
    let is_bool = element == Some(Element::Bool);
    let whole = |f: fn(i128, i128) -> i128| wrapped(f(x as i128, y as i128), element);
    match name {
        "add" => x + y,
        "subtract" => x - y,
        "multiply" => x * y,
        "divide" if element.is_some_and(Element::is_float) => x / y,
        "divide" => (x / y).trunc(),
        "remainder" => x % y,
        "power" => x.powf(y),
        "atan2" => x.atan2(y),
        "maximum" => x.max(y),
        "minimum" => x.min(y),
        "and" if is_bool => truth(x != 0.0 && y != 0.0),
        "or" if is_bool => truth(x != 0.0 || y != 0.0),
        "xor" if is_bool => truth((x != 0.0) != (y != 0.0)),
        "and" => whole(|x, y| x & y),
        "or" => whole(|x, y| x | y),
        "xor" => whole(|x, y| x ^ y),
        "shift_left" => whole(|x, y| x << y.clamp(0, 63)),
        "shift_right_arithmetic" => whole(|x, y| x >> y.clamp(0, 63)),
        // The sign bit of a negative number is one of its bits.
        "shift_right_logical" if x < 0.0 => x,
        "shift_right_logical" => whole(|x, y| x >> y.clamp(0, 63)),
        _ => x,
    }
}

/// A whole number as an element of so many bits holds it.
fn wrapped(number: i128, element: Option<Element>) -> f64 {
    let bits = match element {
        Some(Element::Signed(bits) | Element::Unsigned(bits)) => bits,
        _ => return number as f64,
    };
    let high = 128 - bits;
    match element {
        Some(Element::Unsigned(_)) => ((number as u128) << high >> high) as f64,
        _ => (number << high >> high) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether there is an infinity or a NaN among the elements, and their mean.
    const TEXT: &str = r#"module @torchtpu {
func.func public @main(%i0: tensor<4x3xf32> {jax.buffer_donor = true}, %x0: tensor<f32>) -> (tensor<i1>, tensor<f32>) {
%o0, %o1 = func.call @op0(%i0, %x0) : (tensor<4x3xf32>, tensor<f32>) -> (tensor<i1>, tensor<f32>)
"func.return"(%o0, %o1) : (tensor<i1>, tensor<f32>) -> ()
}
func.func private @op0(%v0: tensor<4x3xf32> , %v1: tensor<f32>) -> (tensor<i1>, tensor<f32>) {
%v2 = "stablehlo.abs"(%v0) {} : (tensor<4x3xf32>) -> tensor<4x3xf32>
%v3 = "stablehlo.constant"() {value = dense<0x7F800000> : tensor<f32>} : () -> tensor<f32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4x3xf32>
%v5 = "stablehlo.compare"(%v2, %v4) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xi1>
%v6 = "stablehlo.constant"() {value = dense<false> : tensor<i1>} : () -> tensor<i1>
%v10 = "stablehlo.reduce"(%v5, %v6) ({
^bb0(%v7: tensor<i1>, %v8: tensor<i1>):
%v9 = "stablehlo.or"(%v7, %v8) {} : (tensor<i1>, tensor<i1>) -> tensor<i1>
"stablehlo.return"(%v9) : (tensor<i1>) -> ()
}) {dimensions = array<i64: 0, 1>} : (tensor<4x3xi1>, tensor<i1>) -> (tensor<i1>)
%v11 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v15 = "stablehlo.reduce"(%v0, %v11) ({
^bb0(%v12: tensor<f32>, %v13: tensor<f32>):
%v14 = "stablehlo.add"(%v12, %v13) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v14) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 0, 1>} : (tensor<4x3xf32>, tensor<f32>) -> (tensor<f32>)
%v16 = "stablehlo.divide"(%v15, %v1) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"func.return"(%v10, %v16) : (tensor<i1>, tensor<f32>) -> ()
}
}
"#;

    #[test]
    fn numbers_follow_the_program() {
        let program = Program::parse(TEXT).unwrap();
        let scalar = |element| Type { element, dims: Vec::new() };
        assert_eq!(program.results, [scalar(Element::Bool), scalar(Element::Float(32))]);
        let known = Known::invented;
        let numbers: Vec<f64> = program.run(&[known(2.5), known(12.0)]).iter().map(|result| result.number).collect();
        assert_eq!(numbers, [0.0, 2.5]);
        let elements: Elements = (0..12).map(f64::from).collect();
        let found = program.run(&[Known::of(1.0, Some(elements)), known(12.0)]);
        assert_eq!((found[0].number, found[1].elements.as_deref()), (0.0, None));
        let divisor = Known::of(12.0, Some([12.0].into()));
        let elements: Elements = (0..12).map(f64::from).collect();
        let found = program.run(&[Known::of(1.0, Some(elements)), divisor]);
        assert_eq!(found[1].number, 5.5);
    }

    /// Boxes as (left, top, right, bottom): whether one has no area, and the last column of all, twice.
    #[test]
    fn small_arrays_are_known() {
        let text = r#"module @torchtpu {
func.func public @main(%i0: tensor<2x4xf32>) -> (tensor<i1>, tensor<2x2xf32>) {
%v1 = "stablehlo.slice"(%i0) {start_indices = array<i64: 0, 2>, limit_indices = array<i64: 2, 4>, strides = array<i64: 1, 1>} : (tensor<2x4xf32>) -> tensor<2x2xf32>
%v2 = "stablehlo.slice"(%i0) {start_indices = array<i64: 0, 0>, limit_indices = array<i64: 2, 2>, strides = array<i64: 1, 1>} : (tensor<2x4xf32>) -> tensor<2x2xf32>
%v3 = "stablehlo.compare"(%v1, %v2) {comparison_direction = #stablehlo<comparison_direction LE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xi1>
%v4 = "stablehlo.constant"() {value = dense<false> : tensor<i1>} : () -> tensor<i1>
%v8 = "stablehlo.reduce"(%v3, %v4) ({
^bb0(%v5: tensor<i1>, %v6: tensor<i1>):
%v7 = "stablehlo.or"(%v5, %v6) {} : (tensor<i1>, tensor<i1>) -> tensor<i1>
"stablehlo.return"(%v7) : (tensor<i1>) -> ()
}) {dimensions = array<i64: 0, 1>} : (tensor<2x2xi1>, tensor<i1>) -> (tensor<i1>)
%v9 = "stablehlo.transpose"(%v1) {permutation = array<i64: 1, 0>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
%v10 = "stablehlo.slice"(%v9) {start_indices = array<i64: 1, 0>, limit_indices = array<i64: 2, 2>, strides = array<i64: 1, 1>} : (tensor<2x2xf32>) -> tensor<1x2xf32>
%v11 = "stablehlo.concatenate"(%v10, %v10) {dimension = 0 : i64} : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
"func.return"(%v8, %v11) : (tensor<i1>, tensor<2x2xf32>) -> ()
}
}
"#;
        let program = Program::parse(text).unwrap();
        let found = |boxes: [f64; 8]| program.run(&[Known::of(1.0, Some(boxes.into()))]);
        let results = found([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(results[0].number, 0.0);
        assert_eq!(results[1].elements.as_deref(), Some(&[4.0, 8.0, 4.0, 8.0][..]));
        assert_eq!(found([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 5.0, 8.0])[0].number, 1.0);
        // One number stands for a large or computed array, so each of its elements equals each other one.
        assert_eq!(program.run(&[Known::UNKNOWN])[0].number, 1.0);
    }

    /// Positions that a mask selects, which are written over others, and the order of a sort.
    #[test]
    fn positions_are_in_range() {
        let text = r#"module @torchtpu {
func.func public @main(%i0: tensor<6xf32>, %i1: tensor<6x1xi32>) -> (tensor<6xi32>, tensor<6xi32>, tensor<i1>) {
%v1 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<6xi32>
%v2 = "stablehlo.constant"() {value = dense<6> : tensor<i32>} : () -> tensor<i32>
%v3 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v6 = "stablehlo.scatter"(%v3, %i1, %v1) ({
^bb0(%v4: tensor<i32>, %v5: tensor<i32>):
"stablehlo.return"(%v5) : (tensor<i32>) -> ()
}) {unique_indices = true} : (tensor<6xi32>, tensor<6x1xi32>, tensor<6xi32>) -> (tensor<6xi32>)
%v12, %v13 = "stablehlo.sort"(%i0, %v1) ({
^bb0(%v7: tensor<f32>, %v8: tensor<f32>, %v9: tensor<i32>, %v10: tensor<i32>):
%v11 = "stablehlo.compare"(%v7, %v8) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
"stablehlo.return"(%v11) : (tensor<i1>) -> ()
}) {dimension = 0 : i64} : (tensor<6xf32>, tensor<6xi32>) -> (tensor<6xf32>, tensor<6xi32>)
%v14 = "stablehlo.compare"(%i0, %i0) {comparison_direction = #stablehlo<comparison_direction NE>} : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
%v15 = "stablehlo.constant"() {value = dense<false> : tensor<i1>} : () -> tensor<i1>
%v19 = "stablehlo.reduce"(%v14, %v15) ({
^bb0(%v16: tensor<i1>, %v17: tensor<i1>):
%v18 = "stablehlo.or"(%v16, %v17) {} : (tensor<i1>, tensor<i1>) -> tensor<i1>
"stablehlo.return"(%v18) : (tensor<i1>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<6xi1>, tensor<i1>) -> (tensor<i1>)
"func.return"(%v6, %v13, %v19) : (tensor<6xi32>, tensor<6xi32>, tensor<i1>) -> ()
}
}
"#;
        let found = Program::parse(text).unwrap().run(&[Known::UNKNOWN, Known::UNKNOWN]);
        let told: Vec<(f64, bool)> = found.iter().map(|result| (result.number, result.is_certain)).collect();
        assert_eq!(told, [(0.0, false), (0.0, false), (0.0, true)]);
    }

    /// Ten tokens whose experts are not known: the counts have their sum, and were invented.
    #[test]
    fn counts_have_the_right_sum() {
        let text = r#"module @torchtpu {
func.func public @main(%i0: tensor<4xi64>, %i1: tensor<10x1xi64>, %i2: tensor<10xi64>) -> (tensor<4xi64>) {
%v6 = "stablehlo.scatter"(%i0, %i1, %i2) ({
^bb0(%v4: tensor<i64>, %v5: tensor<i64>):
%v7 = "stablehlo.add"(%v4, %v5) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v7) : (tensor<i64>) -> ()
}) {unique_indices = false} : (tensor<4xi64>, tensor<10x1xi64>, tensor<10xi64>) -> (tensor<4xi64>)
"func.return"(%v6) : (tensor<4xi64>) -> ()
}
}
"#;
        let zeros = Known::of(0.0, Some([0.0; 4].into()));
        let found = Program::parse(text).unwrap().run(&[zeros, Known::UNKNOWN, Known::invented(1.0)]);
        assert_eq!((found[0].elements.as_deref(), found[0].is_exact), (Some(&[3.0, 3.0, 2.0, 2.0][..]), false));
    }

    /// A key for a sort: bits of a float above those of a position.
    #[test]
    fn bits_stay_in_their_type() {
        let unsigned = |bits| Some(Element::Unsigned(bits));
        assert_eq!(unary("not", 5.0, unsigned(32)), 4_294_967_290.0);
        assert_eq!(unary("not", 5.0, Some(Element::Signed(64))), -6.0);
        let key = binary("shift_left", 4_294_967_290.0, 32.0, unsigned(64));
        assert_eq!(binary("shift_right_logical", key, 32.0, unsigned(64)), 4_294_967_290.0);
        assert_eq!(
            binary("and", binary("shift_right_logical", key, 1.0, unsigned(64)), 2_147_483_647.0, unsigned(64)),
            0.0
        );
    }

    #[test]
    fn functions_in_the_short_form_have_unknown_results() {
        let kernel = r#"func.func private @k1_main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"#;
        let main = r#"func.func public @main(%i0: tensor<4xf32>) -> (tensor<4xf32>) {
%o0 = "func.call"(%i0) {callee = @k1_main} : (tensor<4xf32>) -> (tensor<4xf32>)
"func.return"(%o0) : (tensor<4xf32>) -> ()
}
"#;
        assert_eq!(Program::parse(&format!("{kernel}{main}")).unwrap().run(&[Known::invented(3.0)])[0].number, UNKNOWN);
        assert!(Program::parse(kernel).is_err());
    }

    #[test]
    fn what_would_not_be_finite_is_one() {
        let divided = binary("divide", 1.0, 0.0, Some(Element::Float(32)));
        assert!(divided.is_infinite());
        let operation = Operation {
            kind: Kind::Operation("stablehlo.divide".into()),
            operands: vec![0, 1],
            operand_types: Vec::new(),
            results: vec![2],
            result_types: vec![Type { element: Element::Float(32), dims: Vec::new() }],
            combines: None,
            direction: None,
            attributes: String::new(),
        };
        assert_eq!(operation.run("stablehlo.divide", &[1.0, 0.0]), [1.0]);
    }
}
