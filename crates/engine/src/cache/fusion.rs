//! Limits what XLA's CPU compiler computes again in its kernels.
//!
//! The compiler fuses an elementwise operation into each operation that uses its result, and each of these kernels
//! computes it again. A loop whose values are used twice in each round then has kernels whose sizes double with every
//! round: sixty steps of a simulation took minutes to compile. So a value that is used more than once, and whose
//! computation has become large, gets an optimization barrier: it is computed once, and kept in memory.
//!
//! Where many operations each write a part of a value, the kernel that reads it has a case for each of them. So a value
//! gets a barrier after some tens of such writes, too.

use rustc_hash::FxHashMap;

use super::passes::{BARRIER, begins_regions, ends_regions, operation};

/// The number of operations that kernels may repeat for a value.
const MOST_OPERATIONS: u64 = 200;

/// Operations that compute different elements in different ways. The code for them grows with the square of their number.
const PARTS: [&str; 3] = ["concatenate", "dynamic_update_slice", "pad"];

/// The number of such operations in the computation of a value.
const MOST_PARTS: u64 = 32;

/// Operations after which the count of a value's operations starts again. Kernels do not repeat what comes before them, or
/// nothing does. Operations with regions, such as reductions, are treated the same.
const FIRST: [&str; 14] = [
    "all_gather",
    "all_reduce",
    "case",
    "constant",
    "convolution",
    "custom_call",
    "dot_general",
    "fft",
    "if",
    "iota",
    "optimization_barrier",
    "scatter",
    "sort",
    "while",
];

/// The number of operations that compute an element of a value, where those of shared values count for each use.
#[derive(Clone, Default)]
struct Work {
    operations: u64,
    /// How many of them are of [`PARTS`].
    parts: u64,
    /// How often each parameter of the function is read.
    params: FxHashMap<usize, u64>,
}

impl Work {
    fn total(&self) -> u64 {
        self.params.values().fold(self.operations, |sum, &count| sum.saturating_add(count))
    }

    fn add(&mut self, times: u64, other: &Work) {
        self.operations = self.operations.saturating_add(times.saturating_mul(other.operations));
        self.parts = self.parts.saturating_add(times.saturating_mul(other.parts));
        for (&param, &count) in &other.params {
            let sum = self.params.entry(param).or_default();
            *sum = sum.saturating_add(times.saturating_mul(count));
        }
        // Only whether it is more matters, and the table would grow with each value of a long program.
        if self.params.len() as u64 > MOST_OPERATIONS {
            *self = Work { operations: self.total(), parts: self.parts, params: FxHashMap::default() };
        }
    }
}

/// A line of a function, and the names of its values.
struct Line<'a> {
    text: &'a str,
    defined: Vec<&'a str>,
    used: Vec<&'a str>,
    /// The function that it calls.
    called: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn read(text: &'a str) -> Self {
        let (left, right) = match text.split_once(" = ") {
            Some((left, right)) if left.starts_with('%') => (left, right),
            _ => ("", text),
        };
        let called = right.starts_with("func.call @").then(|| symbol(right));
        Self { text, defined: names(left), used: names(right), called }
    }

    fn is_any_of(&self, operations: &[&str]) -> bool {
        operation(self.text).is_some_and(|name| operations.contains(&name))
    }

    /// Whether all results have names of their own, and are arrays of constant sizes.
    fn gives_arrays(&self) -> bool {
        let types = result_types(self.text);
        types.len() == self.defined.len() && types.iter().all(|ty| ty.starts_with("tensor<") && !ty.contains('?'))
    }

    /// Writes the line, and a barrier for each of these results.
    fn write(&self, text: &mut String, barriers: &[usize]) {
        let Some((_, right)) = self.text.split_once(" = ").filter(|_| !barriers.is_empty()) else {
            text.push_str(self.text);
            return;
        };
        let end = |at: usize| if barriers.contains(&at) { "_before" } else { "" };
        let defined = self.defined.iter().enumerate().map(|(at, name)| format!("%{name}{}", end(at)));
        text.push_str(&format!("{} = {right}", defined.collect::<Vec<_>>().join(", ")));
        let types = result_types(right);
        for &at in barriers {
            let (name, ty) = (self.defined[at], &types[at]);
            text.push_str(&format!("%{name} = {BARRIER}(%{name}_before) {{}} : ({ty}) -> {ty}\n"));
        }
    }
}

/// A function with barriers, and what its callers need to know of it.
struct Summary {
    text: String,
    /// The work of each result.
    results: Vec<Work>,
    /// How many operations use each parameter.
    uses: Vec<usize>,
}

struct Module<'a> {
    functions: FxHashMap<&'a str, &'a str>,
    summaries: FxHashMap<&'a str, Summary>,
}

/// The text with barriers, or None if it needs none.
pub(super) fn with_barriers(text: &str) -> Option<String> {
    let mut module = Module { functions: FxHashMap::default(), summaries: FxHashMap::default() };
    // Names of functions, each after the text before it.
    let mut order = Vec::new();
    let mut rest = text;
    while let Some((before, body)) = rest.find("func.func ").map(|at| rest.split_at(at)) {
        let (function, after) = body.split_at(body.find("\n}\n").map_or(body.len(), |end| end + 1));
        order.push((before, symbol(function)));
        module.functions.insert(symbol(function), function);
        rest = after;
    }
    let mut changed = String::with_capacity(text.len());
    for (before, name) in order {
        module.summarize(name);
        changed.extend([before, &module.summaries[name].text]);
    }
    changed.push_str(rest);
    (changed.len() > text.len()).then_some(changed)
}

impl<'a> Module<'a> {
    fn summarize(&mut self, name: &'a str) {
        if self.summaries.contains_key(name) {
            return;
        }
        let lines: Vec<Line<'a>> = self.functions[name].split_inclusive('\n').map(Line::read).collect();
        for called in lines.iter().filter_map(|line| line.called) {
            if self.functions.contains_key(called) {
                self.summarize(called);
            }
        }
        let summary = self.summary(&lines);
        self.summaries.insert(name, summary);
    }

    /// The summary of a function. The functions that it calls have their summaries already.
    fn summary(&self, lines: &[Line<'_>]) -> Summary {
        let Some((signature, body)) = lines.split_first() else {
            return Summary { text: String::new(), results: Vec::new(), uses: Vec::new() };
        };
        let uses = self.uses(body);
        let params = signature.used.iter().enumerate();
        let mut known: FxHashMap<&str, Work> = params
            .map(|(param, &name)| (name, Work { params: [(param, 1)].into_iter().collect(), ..Work::default() }))
            .collect();
        let (mut results, mut text, mut depth) = (Vec::new(), signature.text.to_owned(), 0);
        for line in body {
            depth -= usize::from(ends_regions(line.text)).min(depth);
            let mut barriers = Vec::new();
            if depth == 0 && line.text.contains("\"func.return\"") {
                results = line.used.iter().map(|name| known.get(name).cloned().unwrap_or_default()).collect();
            } else if depth == 0 {
                for (at, name) in line.defined.iter().enumerate() {
                    let mut work = self.work(line, at, &known);
                    let is_shared = uses.get(name).is_some_and(|&count| count > 1);
                    let is_large = work.parts > MOST_PARTS || (is_shared && work.total() > MOST_OPERATIONS);
                    if is_large && line.gives_arrays() {
                        barriers.push(at);
                        work = Work { operations: 1, ..Work::default() };
                    }
                    known.insert(name, work);
                }
            }
            depth += usize::from(begins_regions(line.text));
            line.write(&mut text, &barriers);
        }
        let uses = signature.used.iter().map(|name| uses.get(name).copied().unwrap_or(0)).collect();
        Summary { text, results, uses }
    }

    /// How many operations use each value, those in called functions included.
    fn uses<'f>(&self, body: &[Line<'f>]) -> FxHashMap<&'f str, usize> {
        let mut uses: FxHashMap<&str, usize> = FxHashMap::default();
        for line in body {
            let called = self.called(line);
            for (at, name) in line.used.iter().enumerate() {
                *uses.entry(name).or_default() +=
                    called.and_then(|summary| summary.uses.get(at)).map_or(1, |&count| count);
            }
        }
        uses
    }

    fn called(&self, line: &Line<'_>) -> Option<&Summary> {
        self.summaries.get(line.called?)
    }

    /// The work of result `at` of a line.
    fn work(&self, line: &Line<'_>, at: usize, known: &FxHashMap<&str, Work>) -> Work {
        let mut work = Work::default();
        let mut add = |times: u64, name: Option<&&str>| {
            if let Some(of_operand) = name.and_then(|name| known.get(name)) {
                work.add(times, of_operand);
            }
        };
        if let Some(summary) = self.called(line) {
            let Some(result) = summary.results.get(at) else { return work };
            result.params.iter().for_each(|(&param, &times)| add(times, line.used.get(param)));
            work.add(1, &Work { params: FxHashMap::default(), ..*result });
            return work;
        }
        if !line.is_any_of(&FIRST) && !begins_regions(line.text) {
            line.used.iter().for_each(|name| add(1, Some(name)));
        }
        work.add(1, &Work { operations: 1, parts: u64::from(line.is_any_of(&PARTS)), ..Work::default() });
        work
    }
}

/// The first name of a function in a text, without "@".
fn symbol(text: &str) -> &str {
    let rest = text.split_once('@').map_or("", |(_, rest)| rest);
    &rest[..rest.find('(').unwrap_or(rest.len())]
}

/// The names of values in a text, without "%".
fn names(text: &str) -> Vec<&str> {
    let end = |name: &str| name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    // The names follow a "%" each. The text before the first one has none.
    text.split('%').skip(1).map(|name| &name[..end(name)]).collect()
}

/// The types of an operation's results.
fn result_types(text: &str) -> Vec<String> {
    let types = text.rsplit_once("->").map_or("", |(_, types)| types.trim());
    let types = types.strip_prefix('(').and_then(|types| types.strip_suffix(')')).unwrap_or(types);
    let whole = |(at, ty): (usize, &str)| if at == 0 { ty.to_owned() } else { format!("tensor<{ty}") };
    types.split(", tensor<").enumerate().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TY: &str = "tensor<4xf32>";

    /// A module that calls `op0` on the result of the last call, `rounds` times. `op0` reads its parameter twice.
    fn doubling(rounds: usize) -> String {
        let calls: Vec<String> =
            (1..=rounds).map(|i| format!("%o{i} = func.call @op0(%o{}) : ({TY}) -> ({TY})\n", i - 1)).collect();
        let calls = calls.concat();
        format!(
            "module @torchtpu {{\nfunc.func public @main(%o0: {TY}) -> ({TY}) {{\n{calls}\"func.return\"(%o{rounds}) : \
             ({TY}) -> ()\n}}\nfunc.func private @op0(%v0: {TY} ) -> ({TY}) {{\n%v1 = \"stablehlo.add\"(%v0, %v0) {{}} : \
             ({TY}, {TY}) -> {TY}\n\"func.return\"(%v1) : ({TY}) -> ()\n}}\n}}\n"
        )
    }

    fn count(text: &str) -> usize {
        with_barriers(text).map_or(0, |text| text.matches("optimization_barrier").count())
    }

    #[test]
    fn values_whose_work_doubles_are_kept() {
        assert_eq!(count(&doubling(6)), 0);
        let text = doubling(8);
        let changed = with_barriers(&text).expect("barriers");
        let kept = format!(
            "%o7_before = func.call @op0(%o6) : ({TY}) -> ({TY})\n\
             %o7 = \"stablehlo.optimization_barrier\"(%o7_before) {{}} : ({TY}) -> {TY}\n\
             %o8 = func.call @op0(%o7) : ({TY}) -> ({TY})\n"
        );
        assert!(changed.contains(&kept), "{changed}");
        // The work is that of one operation again: seven more rounds until the next one.
        assert_eq!(count(&doubling(60)), 8);
    }

    #[test]
    fn values_of_many_parts_are_kept() {
        let written = |rounds| {
            doubling(rounds).replace("stablehlo.add\"(%v0, %v0)", "stablehlo.dynamic_update_slice\"(%v0, %v2)")
        };
        assert_eq!(count(&written(32)), 0);
        assert_eq!(count(&written(33)), 1);
        assert_eq!(count(&written(100)), 3);
    }

    #[test]
    fn long_chains_and_results_of_products_need_no_barriers() {
        assert_eq!(count(&doubling(1000).replace("(%v0, %v0)", "(%v0, %v2)")), 0);
        assert_eq!(count(&doubling(60).replace("stablehlo.add", "stablehlo.dot_general")), 0);
    }

    #[test]
    fn one_of_two_results_is_kept() {
        let two = "%a, %b = func.call @op(%c) : (tensor<1xf32>) -> (tensor<?x2xf32, #stablehlo.bounds<4, ?>>, tensor<3xf32>)\n";
        let mut text = String::new();
        Line::read(two).write(&mut text, &[1]);
        let kept = "%b = \"stablehlo.optimization_barrier\"(%b_before) {} : (tensor<3xf32>) -> tensor<3xf32>\n";
        assert_eq!(text, two.replace("%b", "%b_before") + kept);
        assert!(!Line::read(two).gives_arrays() && Line::read(kept).gives_arrays());
        let together = "%0:2 = \"stablehlo.while\"(%1, %2) {} : () -> (tensor<4xf32>, tensor<4xf32>)\n";
        assert!(!Line::read(together).gives_arrays());
    }

    #[test]
    fn regions_are_left_alone() {
        let doubled: String = (1..=20)
            .map(|i| format!("%v{i} = \"stablehlo.add\"(%v{}, %v{}) {{}} : () -> {TY}\n", i - 1, i - 1))
            .collect();
        let region = format!("%w = \"stablehlo.while\"(%v0) ({{\n{doubled}}}) {{}} : () -> {TY}\n");
        let text = |body: &str| {
            format!("func.func private @op0(%v0: {TY} ) -> ({TY}) {{\n{body}\"func.return\"(%w) : () -> ()\n}}\n")
        };
        assert_eq!(count(&text(&region)), 0);
        assert_eq!(count(&text(&doubled)), 2);
    }
}
