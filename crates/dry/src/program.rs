//! A program as the plugin runs it: with one number for each value, which stands for all of its elements.
//!
//! The text is the one that `crates/stablehlo` writes: an operation to a line, but for its regions. Functions of another
//! form, such as those of kernels, are skipped: the numbers of their results are unknown. What an operation is
//! not known to do to a number, and what would no longer be finite, becomes 1.

use rustc_hash::FxHashMap;

use crate::element::Element;

/// The number for a value of which nothing is known.
const UNKNOWN: f64 = 1.0;

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    pub element: Element,
    pub dims: Vec<i64>,
}

impl Type {
    /// The type of a text such as `tensor<4x3xf32>`. What follows behind a comma, such as an encoding, is left out.
    fn parse(text: &str) -> Option<Type> {
        let inner = text.trim().strip_prefix("tensor<")?.strip_suffix('>')?;
        let inner = if inner.contains("complex<") { inner } else { inner.split(',').next()?.trim() };
        let mut dims = Vec::new();
        let mut rest = inner;
        while let Some((dim, after)) = rest.split_once('x') {
            let Ok(dim) = dim.parse() else { break };
            dims.push(dim);
            rest = after;
        }
        Some(Type { element: Element::from_name(rest)?, dims })
    }

    pub fn count(&self) -> i64 {
        self.dims.iter().product()
    }

    pub fn size_bytes(&self) -> usize {
        self.count() as usize * self.element.size()
    }
}

#[derive(Debug)]
enum Kind {
    /// A call of a function of the module.
    Call(String),
    Constant(f64),
    Operation(String),
}

#[derive(Debug)]
struct Operation {
    kind: Kind,
    operands: Vec<usize>,
    operand_types: Vec<Type>,
    results: Vec<usize>,
    result_types: Vec<Type>,
    /// The last operation of its region, of one that has a region.
    combines: Option<String>,
    /// The comparison, of one that compares.
    direction: Option<String>,
}

#[derive(Debug, Default)]
struct Function {
    parameters: Vec<usize>,
    operations: Vec<Operation>,
    returned: Vec<usize>,
    values: usize,
}

#[derive(Debug)]
pub struct Program {
    functions: FxHashMap<String, Function>,
    pub results: Vec<Type>,
}

impl Program {
    /// # Errors
    /// Where the text is not of the form that is written here.
    pub fn parse(text: &str) -> Result<Program, String> {
        let mut functions = FxHashMap::default();
        let mut results = None;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(header) = line.trim().strip_prefix("func.func ") else { continue };
            let Some((name, function, types)) = function(header, &mut lines) else {
                // The functions of kernels come from elsewhere, in MLIR's short form. Their results are unknown.
                if header.contains("@main(") {
                    return Err(format!("in {line:?}"));
                }
                continue;
            };
            if name == "main" {
                results = Some(types);
            }
            functions.insert(name, function);
        }
        Ok(Program { functions, results: results.ok_or("it has no @main")? })
    }

    /// The numbers of the results, from those of the inputs.
    pub fn run(&self, inputs: &[f64]) -> Vec<f64> {
        let mut results = self.call("main", inputs);
        results.resize(self.results.len(), UNKNOWN);
        results
    }

    fn call(&self, name: &str, inputs: &[f64]) -> Vec<f64> {
        let Some(function) = self.functions.get(name) else { return Vec::new() };
        let mut values = vec![UNKNOWN; function.values];
        for (parameter, input) in function.parameters.iter().zip(inputs) {
            values[*parameter] = *input;
        }
        for operation in &function.operations {
            let operands: Vec<f64> = operation.operands.iter().map(|operand| values[*operand]).collect();
            let results = match &operation.kind {
                Kind::Call(name) => self.call(name, &operands),
                Kind::Constant(number) => vec![*number],
                Kind::Operation(name) => operation.run(name, &operands),
            };
            let numbers = results.into_iter().chain(std::iter::repeat(UNKNOWN));
            for (result, number) in operation.results.iter().zip(numbers) {
                values[*result] = number;
            }
        }
        function.returned.iter().map(|value| values[*value]).collect()
    }
}

impl Operation {
    fn run(&self, name: &str, operands: &[f64]) -> Vec<f64> {
        let Some(name) = name.strip_prefix("stablehlo.") else { return Vec::new() };
        let result = match (name, operands) {
            ("reduce" | "reduce_window" | "scatter" | "select_and_scatter", _) => {
                return self.run_region(name, operands);
            }
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
            return operands.first().copied().into_iter().collect();
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
            Some("stablehlo.minimum") => initial.min(*value),
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
        "not" => (!(x as i64)) as f64,
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
    let whole = |f: fn(i64, i64) -> i64| f(x as i64, y as i64) as f64;
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
        _ => x,
    }
}

/// A function, from what follows `func.func `, and the lines of its body.
fn function<'a>(header: &str, lines: &mut impl Iterator<Item = &'a str>) -> Option<(String, Function, Vec<Type>)> {
    let name = header.split_once('@')?.1.split('(').next()?.to_owned();
    let (parameters, after) = between_parentheses(header)?;
    let results = between_parentheses(after)?.0;
    let mut function = Function::default();
    let mut names = FxHashMap::default();
    for parameter in split(parameters).into_iter().filter(|text| !text.is_empty()) {
        let parameter = parameter.split(':').next()?.trim();
        let value = number_of(parameter, &mut names);
        function.parameters.push(value);
    }
    while let Some(line) = lines.next() {
        let line = line.trim();
        if line == "}" {
            break;
        }
        if let Some(rest) = line.strip_prefix("\"func.return\"") {
            let returned = between_parentheses(rest)?.0;
            function.returned = split(returned).into_iter().map(|name| number_of(name, &mut names)).collect();
            continue;
        }
        if let Some(operation) = operation(line, lines, &mut names) {
            function.operations.push(operation);
        }
    }
    function.values = names.len();
    Some((name, function, split(results).into_iter().filter_map(Type::parse).collect()))
}

fn operation<'a>(
    line: &str,
    lines: &mut impl Iterator<Item = &'a str>,
    names: &mut FxHashMap<String, usize>,
) -> Option<Operation> {
    let (results, text) = match line.split_once(" = ") {
        Some((results, text)) if results.starts_with('%') => (split(results), text),
        _ => (Vec::new(), line),
    };
    let (operands, mut tail) = between_parentheses(text)?;
    // The last operation of a region tells how it combines two elements.
    let (mut combines, mut last, mut depth) = (None, None, usize::from(line.ends_with("({")));
    while depth > 0 {
        let inner = lines.next()?.trim();
        if inner.contains("\"stablehlo.return\"") && depth == 1 {
            combines = combines.or(last.take());
        } else if let Some(name) = quoted_name(inner) {
            last = Some(name);
        }
        depth += usize::from(inner.ends_with("({"));
        if inner.starts_with("})") {
            depth -= 1;
            tail = inner;
        }
    }
    let types = tail.rsplit_once(" : ").map(|(_, types)| types).unwrap_or_default();
    let (operand_types, result_types) = types.split_once(" -> ").unwrap_or_default();
    let kind = match text.strip_prefix("func.call @") {
        Some(call) => Kind::Call(call.split('(').next()?.to_owned()),
        None => match quoted_name(text)? {
            name if name == "stablehlo.constant" => Kind::Constant(constant(text)?),
            name => Kind::Operation(name),
        },
    };
    let direction = tail.split_once("<comparison_direction ").map(|(_, rest)| rest.chars().take(2).collect());
    Some(Operation {
        kind,
        operands: split(operands)
            .into_iter()
            .filter(|name| name.starts_with('%'))
            .map(|name| number_of(name, names))
            .collect(),
        operand_types: types_of(operand_types),
        results: results.into_iter().map(|name| number_of(name, names)).collect(),
        result_types: types_of(result_types),
        combines,
        direction,
    })
}

/// The types of a list, with or without parentheses around it.
fn types_of(list: &str) -> Vec<Type> {
    let list = list.trim().trim_start_matches('(').trim_end_matches(')');
    split(list).into_iter().filter_map(Type::parse).collect()
}

/// The name of an operation, which stands between quotes.
fn quoted_name(text: &str) -> Option<String> {
    let name = text.split('"').nth(1)?;
    name.contains('.').then(|| name.to_owned())
}

fn number_of(name: &str, names: &mut FxHashMap<String, usize>) -> usize {
    let next = names.len();
    *names.entry(name.trim().to_owned()).or_insert(next)
}

/// The first element of a constant.
fn constant(text: &str) -> Option<f64> {
    let (literal, ty) = text.split_once("dense<")?.1.split_once("> : ")?;
    let element = Type::parse(ty.split('}').next()?)?.element;
    let first = literal.trim_start_matches(['[', '(', '"']).split([',', ']', ')', '"']).next()?.trim();
    Some(match first {
        "true" => 1.0,
        "false" => 0.0,
        _ => match first.strip_prefix("0x") {
            // The bytes of all elements in order, or the bits of one.
            Some(hex) if literal.starts_with('"') => {
                let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
                let bytes: Option<Vec<u8>> = (0..element.size()).map(|index| byte(2 * index)).collect();
                element.read(&bytes?)
            }
            Some(hex) => element.read(&u64::from_str_radix(hex, 16).ok()?.to_le_bytes()),
            None => first.parse().ok()?,
        },
    })
}

/// The text between the first parenthesis and its closing one, and the text after it.
fn between_parentheses(text: &str) -> Option<(&str, &str)> {
    let start = text.find('(')?;
    let mut depth = 0;
    for (index, character) in text[start..].char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&text[start + 1..start + index], &text[start + index + 1..]));
        }
    }
    // A region opens in the last parenthesis: the operands are in those before.
    None
}

/// Splits at the commas that stand in no bracket.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (index, character) in text.char_indices() {
        match character {
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
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
        assert_eq!(program.run(&[2.5, 12.0]), [0.0, 2.5]);
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
        assert_eq!(Program::parse(&format!("{kernel}{main}")).unwrap().run(&[3.0]), [UNKNOWN]);
        assert!(Program::parse(kernel).is_err());
    }

    #[test]
    fn types() {
        let parsed = Type::parse("tensor<4x3xcomplex<f32>>").unwrap();
        assert_eq!((parsed.element, parsed.size_bytes()), (Element::Complex(64), 96));
        assert_eq!(Type::parse("tensor<ui8>").unwrap().element, Element::Unsigned(8));
        assert!(Type::parse("tensor<4xf4>").is_none_or(|ty| ty.element == Element::Float(4)));
    }

    #[test]
    fn constants() {
        let text = |literal: &str| format!("\"stablehlo.constant\"() {{value = dense<{literal}}} : () -> tensor<f32>");
        assert_eq!(constant(&text("-100> : tensor<i64>")), Some(-100.0));
        assert_eq!(constant(&text("[3, 4]> : tensor<2xi64>")), Some(3.0));
        assert_eq!(constant(&text("0x3F80> : tensor<4xbf16>")), Some(1.0));
        assert_eq!(constant(&text("(0x40000000, 0x00000000)> : tensor<complex<f32>>")), Some(2.0));
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
        };
        assert_eq!(operation.run("stablehlo.divide", &[1.0, 0.0]), [1.0]);
    }
}
