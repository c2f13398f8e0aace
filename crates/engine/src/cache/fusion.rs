//! Limits what XLA's CPU compiler computes again in its kernels.
//!
//! The compiler fuses an elementwise operation into each operation that uses its result, and each of these kernels
//! computes it again. A loop whose values are used twice in each round then has kernels whose sizes double with every
//! round: sixty steps of a simulation took minutes to compile. So a value that is used more than once, and whose
//! computation has become large, gets an optimization barrier: it is computed once, and kept in memory.
//!
//! Where many operations each write a part of a value, the kernel that reads it has a case for each of them. So a value
//! gets a barrier after some tens of such writes, too.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::passes::{begins_regions, ends_regions, operation};

/// The number of operations that kernels may repeat for a value.
const MOST: u64 = 200;

/// Operations that compute different elements in different ways. The code for them grows with the square of their number.
const PARTS: [&str; 3] = ["concatenate", "dynamic_update_slice", "pad"];

/// The number of such operations in the computation of a value.
const MOST_PARTS: u64 = 32;

/// Operations whose results are kept in memory in any case.
const KEPT: [&str; 14] = [
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
        if self.params.len() as u64 > MOST {
            *self = Work { operations: self.total(), parts: self.parts, params: FxHashMap::default() };
        }
    }
}

/// What the callers of a function need to know.
struct Summary {
    /// Of each result.
    results: Vec<Work>,
    /// How many operations use each parameter.
    uses: Vec<usize>,
    text: String,
}

struct Module<'a> {
    functions: FxHashMap<&'a str, &'a str>,
    summaries: FxHashMap<&'a str, Summary>,
}

/// The text with barriers, if it needs any.
pub(super) fn with_barriers(text: &str) -> Cow<'_, str> {
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
    if changed.len() == text.len() { text.into() } else { changed.into() }
}

impl<'a> Module<'a> {
    fn summarize(&mut self, name: &'a str) {
        if self.summaries.contains_key(name) {
            return;
        }
        let function = self.functions[name];
        for line in function.lines().filter(|line| is_call(line)) {
            if self.functions.contains_key(symbol(line)) {
                self.summarize(symbol(line));
            }
        }
        let summary = self.summary(function);
        self.summaries.insert(name, summary);
    }

    fn summary(&self, function: &str) -> Summary {
        let uses = self.uses(function);
        let mut known: FxHashMap<&str, Work> = FxHashMap::default();
        let (mut results, mut text, mut depth) = (Vec::new(), String::new(), 0);
        let mut params = Vec::new();
        for (index, line) in function.split_inclusive('\n').enumerate() {
            depth -= usize::from(ends_regions(line)).min(depth);
            let (defined, used) = values(line);
            let mut barriers = Vec::new();
            if index == 0 {
                params = used;
                for (param, name) in params.iter().enumerate() {
                    known.insert(name, Work { params: [(param, 1)].into_iter().collect(), ..Work::default() });
                }
            } else if depth == 0 && line.contains("\"func.return\"") {
                results = used.iter().map(|name| known.get(name).cloned().unwrap_or_default()).collect();
            } else if depth == 0 {
                for (at, name) in defined.iter().enumerate() {
                    let mut work = self.work(line, at, &used, &known);
                    let is_repeated = work.total() > MOST && uses.get(name).is_some_and(|&count| count > 1);
                    if (is_repeated || work.parts > MOST_PARTS) && gives_arrays(line, defined.len()) {
                        barriers.push((at, *name));
                        work = Work { operations: 1, ..Work::default() };
                    }
                    known.insert(name, work);
                }
            }
            depth += usize::from(begins_regions(line));
            write_line(&mut text, line, &barriers);
        }
        let uses = params.iter().map(|name| uses.get(name).copied().unwrap_or(0)).collect();
        Summary { results, uses, text }
    }

    /// How many operations use each value, those in called functions included.
    fn uses<'f>(&self, function: &'f str) -> FxHashMap<&'f str, usize> {
        let mut uses: FxHashMap<&str, usize> = FxHashMap::default();
        for line in function.lines().skip(1) {
            let called = self.called(line);
            for (at, name) in values(line).1.into_iter().enumerate() {
                *uses.entry(name).or_default() +=
                    called.and_then(|summary| summary.uses.get(at)).map_or(1, |&count| count);
            }
        }
        uses
    }

    fn called(&self, line: &str) -> Option<&Summary> {
        is_call(line).then(|| self.summaries.get(symbol(line))).flatten()
    }

    /// The work of result `at` of the operation in a line.
    fn work(&self, line: &str, at: usize, used: &[&str], known: &FxHashMap<&str, Work>) -> Work {
        let mut work = Work::default();
        let mut add = |times: u64, name: Option<&&str>| {
            if let Some(of_operand) = name.and_then(|name| known.get(name)) {
                work.add(times, of_operand);
            }
        };
        if let Some(summary) = self.called(line) {
            let Some(result) = summary.results.get(at) else { return work };
            result.params.iter().for_each(|(&param, &times)| add(times, used.get(param)));
            work.add(1, &Work { params: FxHashMap::default(), ..*result });
            return work;
        }
        let is_any_of = |names: &[&str]| operation(line).is_some_and(|name| names.contains(&name));
        if !is_any_of(&KEPT) && !begins_regions(line) {
            used.iter().for_each(|name| add(1, Some(name)));
        }
        work.add(1, &Work { operations: 1, parts: u64::from(is_any_of(&PARTS)), ..Work::default() });
        work
    }
}

fn is_call(line: &str) -> bool {
    line.contains("func.call @")
}

/// The first name of a function in a line, without "@".
fn symbol(line: &str) -> &str {
    let rest = line.split_once('@').map_or("", |(_, rest)| rest);
    &rest[..rest.find('(').unwrap_or(rest.len())]
}

/// Whether all results of an operation have names of their own, and are arrays of constant sizes.
fn gives_arrays(line: &str, names: usize) -> bool {
    let types = result_types(line);
    types.len() == names && types.iter().all(|ty| ty.starts_with("tensor<") && !ty.contains('?'))
}

/// The values that a line defines, and those that it uses.
fn values(line: &str) -> (Vec<&str>, Vec<&str>) {
    let (left, right) = match line.split_once(" = ") {
        Some((left, right)) if left.starts_with('%') => (left, right),
        _ => ("", line),
    };
    (names(left), names(right))
}

fn names(text: &str) -> Vec<&str> {
    let end = |name: &str| name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    text.split('%').skip(1).map(|name| &name[..end(name)]).collect()
}

/// Writes a line, and a barrier for each of these results: `at` is the number of the result.
fn write_line(text: &mut String, line: &str, barriers: &[(usize, &str)]) {
    let Some((left, right)) = line.split_once(" = ").filter(|_| !barriers.is_empty()) else {
        text.push_str(line);
        return;
    };
    let mut defined: Vec<String> = left.split(", ").map(str::to_owned).collect();
    for &(at, name) in barriers {
        defined[at] = format!("%{name}_before");
    }
    text.push_str(&format!("{} = {right}", defined.join(", ")));
    let types = result_types(right);
    for &(at, name) in barriers {
        let ty = &types[at];
        text.push_str(&format!("%{name} = \"stablehlo.optimization_barrier\"(%{name}_before) {{}} : ({ty}) -> {ty}\n"));
    }
}

/// The types of an operation's results, from the right side of its line.
fn result_types(right: &str) -> Vec<String> {
    let types = right.rsplit_once("->").map_or("", |(_, types)| types.trim());
    let types = types.strip_prefix('(').and_then(|types| types.strip_suffix(')')).unwrap_or(types);
    let begins = |(at, ty): (usize, &str)| if at == 0 { ty.to_owned() } else { format!("tensor<{ty}") };
    types.split(", tensor<").enumerate().map(begins).collect()
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
        with_barriers(text).matches("optimization_barrier").count()
    }

    #[test]
    fn values_whose_work_doubles_are_kept() {
        assert_eq!(count(&doubling(6)), 0);
        let text = doubling(8);
        let changed = with_barriers(&text);
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
        write_line(&mut text, two, &[(1, "b")]);
        let kept = "%b = \"stablehlo.optimization_barrier\"(%b_before) {} : (tensor<3xf32>) -> tensor<3xf32>\n";
        assert_eq!(text, two.replace("%b", "%b_before") + kept);
        assert!(!gives_arrays(two, 2) && gives_arrays(kept, 1));
        assert!(!gives_arrays("%0:2 = \"stablehlo.while\"(%1, %2) {} : () -> (tensor<4xf32>, tensor<4xf32>)\n", 1));
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
