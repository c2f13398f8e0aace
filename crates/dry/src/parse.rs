//! Reads a program's text.

use rustc_hash::FxHashMap;

use crate::array::Type;
use crate::element::Element;
use crate::program::{Function, Kind, Operation, Program};

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
            name if name == "stablehlo.constant" => Kind::Constant {
                number: constant(text)?,
                is_splat: !text.contains("dense<[") && !text.contains("dense<\""),
            },
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
        attributes: tail.to_owned(),
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
}
