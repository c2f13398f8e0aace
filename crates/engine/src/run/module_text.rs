//! The text of a program.

use std::fmt::Write;

use aten::ParamSource;
use rustc_hash::FxHashMap;
use stablehlo::{DType, Type};

use crate::program::Usage;
use crate::record::chunk::{Chunk, Source};
use crate::registry::types::Types;

/// The text of a chunk's module: each distinct instance once, as a private function, and a `@main` that calls them in
/// order. XLA inlines the calls. Names only depend on the chunk, so the same text is the same program in every
/// process.
pub(crate) fn module_text(chunk: &Chunk, types: &Types, usage: &Usage) -> String {
    let mut functions = String::new();
    let mut called: Vec<&String> = Vec::new();
    let mut names: FxHashMap<u32, usize> = FxHashMap::default();
    let mut extra_types = vec![Type::new(DType::U64, &[2]); chunk.extras.len()];
    let mut body = String::new();
    for (index, node) in chunk.nodes.iter().enumerate() {
        let Some(function) = node.instance.function() else { continue };
        let next = names.len();
        let name = *names.entry(node.instance.id).or_insert(next);
        if name == next {
            called.extend(&function.functions);
            functions.push_str(&function.print(&format!("op{name}"), "private", &[]));
        }
        let sources = chunk.sources_of(index);
        for (source, param) in sources.iter().zip(node.instance.params()) {
            let Source::Extra(k) = source else { continue };
            match param {
                ParamSource::Scalar { dtype, .. } => extra_types[*k as usize] = Type::new(*dtype, &[]),
                ParamSource::Offset(_) | ParamSource::Size(_) => extra_types[*k as usize] = Type::new(DType::I64, &[]),
                ParamSource::Storage(_) | ParamSource::RandomState => {}
            }
        }
        let arguments: Vec<String> = sources.iter().map(Source::name).collect();
        let results: Vec<String> =
            (0..function.results.len()).map(|i| format!("%o{}", node.first_output as usize + i)).collect();
        let equals = if results.is_empty() { "" } else { " = " };
        let _ = writeln!(
            body,
            "{}{equals}func.call @op{name}({}) : ({}) -> ({})",
            results.join(", "),
            arguments.join(", "),
            list(&function.params),
            list(&function.results)
        );
    }
    called.sort();
    called.dedup();
    called.into_iter().for_each(|text| functions.push_str(text));
    let mut params = Vec::new();
    for (k, value) in chunk.inputs.iter().enumerate() {
        let donor = if usage.donated[k] { " {jax.buffer_donor = true}" } else { "" };
        params.push(format!("%i{k}: {}{donor}", types.get(value.ty)));
    }
    for (k, ty) in extra_types.iter().enumerate() {
        params.push(format!("%x{k}: {ty}"));
    }
    let output_types = chunk.output_types();
    let names: Vec<String> = usage.live.iter().map(|o| format!("%o{o}")).collect();
    let results: Vec<&Type> = usage.live.iter().map(|&o| output_types[o as usize]).collect();
    let (names, results) = (names.join(", "), list(&results));
    format!(
        "module @torchtpu {{\nfunc.func public @main({}) -> ({results}) {{\n{body}\"func.return\"({names}) : ({results}) -> ()\n}}\n{functions}}}\n",
        params.join(", ")
    )
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// "add.Tensor, mm, relu and 12 more": the name of a program in messages.
pub(crate) fn describe(chunk: &Chunk) -> String {
    let names: Vec<&str> = chunk.nodes.iter().take(3).map(|node| &*node.instance.operator).collect();
    match chunk.nodes.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more operators", names.join(", ")),
    }
}
