//! A graph as the text of a module of its own, for other users of StableHLO.

use std::fmt::Write;
use std::sync::Arc;

use aten::{ArgSpec, Call, CallBody, Graph, ParamSource, ResultSpec, StorageSpec, TensorSpec, lower_call};
use stablehlo::{DType, Precision, Target, Type};

use crate::error::{Error, Result};

/// An input of an exported module.
pub struct ExportInput {
    pub ty: Type,
    /// The dense row-major bytes of one that becomes a constant of the module.
    pub constant: Option<Vec<u8>>,
}

/// The module's text: `@main` takes the inputs that are no constants, in order, and returns the graph's results, all of
/// them dense and row-major.
pub fn module_text(graph: Arc<Graph>, inputs: &[ExportInput], results: Vec<ResultSpec>) -> Result<String> {
    let args = inputs.iter().enumerate().map(|(i, input)| ArgSpec::Tensor(whole(i, &input.ty))).collect();
    let storages = inputs
        .iter()
        .map(|input| StorageSpec { base: Some(input.ty.clone()), nbytes: input.ty.size_bytes() })
        .collect();
    let lowered = lower_call(&Call {
        operator: "the exported program".into(),
        body: CallBody::Graph(graph),
        names: (0..inputs.len()).map(|i| i.to_string()).collect(),
        args,
        storages,
        mutated: Vec::new(),
        results: Some(results.into_iter().map(Some).collect()),
        precision: Precision::Highest,
        target: Target::Other,
        is_checked: false,
    })?;
    let mut taken = Vec::new();
    for param in &lowered.params {
        match param {
            ParamSource::Storage(i) => taken.push(format!("%i{i}")),
            _ => {
                return Err(Error::new(
                    crate::ErrorKind::NotImplemented,
                    "an exported program cannot draw random numbers",
                ));
            }
        }
    }
    let mut params = Vec::new();
    let mut body = String::new();
    for (i, input) in inputs.iter().enumerate() {
        let ty = &input.ty;
        match &input.constant {
            None => params.push(format!("%i{i}: {ty}")),
            Some(bytes) => {
                let _ = writeln!(
                    body,
                    "%i{i} = \"stablehlo.constant\"() {{value = dense<{}> : {ty}}} : () -> {ty}",
                    literal(ty, bytes)
                );
            }
        }
    }
    let function = &lowered.function;
    let names: Vec<String> = (0..function.results.len()).map(|i| format!("%o{i}")).collect();
    let equals = if names.is_empty() { "" } else { " = " };
    let (names, results) = (names.join(", "), list(&function.results));
    Ok(format!(
        "module @torchtpu {{\nfunc.func public @main({}) -> ({results}) {{\n{body}{names}{equals}func.call @graph({}) : ({}) -> \
         ({results})\n\"func.return\"({names}) : ({results}) -> ()\n}}\n{}{}}}\n",
        params.join(", "),
        taken.join(", "),
        list(&function.params),
        function.print("graph", "private", &[]),
        function.functions.concat()
    ))
}

/// A tensor that is all of its storage.
fn whole(storage: usize, ty: &Type) -> TensorSpec {
    TensorSpec {
        storage,
        dtype: ty.dtype,
        sizes: ty.dims.clone(),
        strides: aten::contiguous_strides(&ty.dims),
        offset: 0,
        is_conj: false,
        is_neg: false,
        offset_input: None,
    }
}

fn literal(ty: &Type, bytes: &[u8]) -> String {
    if ty.numel() == 0 {
        return String::new();
    }
    if ty.dtype == DType::Bool {
        // Packed in hexadecimal form; a flat list would have to be nested as the type is shaped.
        return nested(&ty.dims, &mut bytes.iter().map(|&byte| if byte == 0 { "false" } else { "true" }));
    }
    let mut text = String::with_capacity(2 * bytes.len() + 4);
    text.push_str("\"0x");
    for byte in bytes {
        let _ = write!(text, "{byte:02X}");
    }
    text.push('"');
    text
}

fn nested<'a>(dims: &[i64], elements: &mut impl Iterator<Item = &'a str>) -> String {
    match dims.split_first() {
        None => elements.next().unwrap_or_default().to_owned(),
        Some((&size, inner)) => {
            let items: Vec<String> = (0..size).map(|_| nested(inner, elements)).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

fn list(types: &[Type]) -> String {
    types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
