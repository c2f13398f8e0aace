//! Exports a graph as the text of a StableHLO module.

use std::fmt::Write;
use std::sync::Arc;

use aten::{
    ArgSpec, Call, CallBody, Dim, Extent, Graph, Lowered, Output, ParamSource, ResultSpec, ScalarSpec, StorageSpec,
    TensorSpec, lower_call,
};
use stablehlo::{DType, Precision, Target, Type};

use crate::error::{Error, Result};
use crate::registry::compiled::BoundedInput;

/// An input of an exported module.
pub struct ExportInput {
    pub ty: Type,
    /// The dense row-major bytes, if the input is a constant of the module.
    pub constant: Option<Vec<u8>>,
}

/// The text of a module for the compiler of `target`. `@main` takes the inputs that are not constants and then the
/// graph's numbers, in order. It returns the graph's results, dense and row-major. In a graph with bounded
/// dimensions, inputs and results have their capacity, with the valid elements at the start.
///
/// If the module is called on a device (`is_called`), `@main` has one more input, the random state, if it draws
/// random numbers, and more results at the end, the results of its checks. Other users of the module cannot provide
/// or read them.
pub fn module_text(
    graph: Graph,
    bounded: &[BoundedInput],
    inputs: &[ExportInput],
    numbers: &[DType],
    results: Vec<ResultSpec>,
    target: Target,
    is_called: bool,
) -> Result<String> {
    let lowered = lower_call(&Call {
        operator: "the exported program".into(),
        body: CallBody::Graph(Arc::new(placed(graph, bounded))),
        names: (0..inputs.len() + numbers.len()).map(|i| i.to_string()).collect(),
        args: inputs
            .iter()
            .enumerate()
            .map(|(i, input)| whole(i, &input.ty))
            .chain(numbers.iter().map(number))
            .collect(),
        storages: inputs
            .iter()
            .map(|input| StorageSpec { base: Some(input.ty.clone()), nbytes: input.ty.size_bytes() })
            .collect(),
        mutated: Vec::new(),
        results: Some(results.into_iter().map(Some).collect()),
        precision: Precision::Highest,
        default_dtype: DType::F32,
        target,
        is_checked: is_called,
    })?;
    let is_scattered = |output: &Output| match output {
        Output::Fresh { extents, .. } => !extents.iter().all(Extent::is_prefix),
        _ => false,
    };
    if lowered.outputs.iter().any(is_scattered) {
        return Err(not_implemented("a result has padding between its elements, because it merges dimensions"));
    }
    let mut params: Vec<String> = Vec::new();
    let mut body = String::new();
    for (i, ExportInput { ty, constant }) in inputs.iter().enumerate() {
        match constant {
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
    params.extend(numbers.iter().enumerate().map(|(i, &dtype)| format!("%n{i}: {}", Type::new(dtype, &[]))));
    let draws = is_called && lowered.params.contains(&ParamSource::RandomState);
    params.extend(draws.then(|| format!("%random: {}", Type::new(DType::U64, &[2]))));
    let taken = main_operands(&lowered, numbers, draws, &mut body)?;
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

fn not_implemented(what: &str) -> Error {
    Error::new(crate::ErrorKind::NotImplemented, format!("an exported program: {what}"))
}

/// The graph with the layout of its bounded inputs that `@main` takes.
fn placed(mut graph: Graph, bounded: &[BoundedInput]) -> Graph {
    if let Some(bounds) = &mut graph.bounds {
        let sizes = &bounds.sizes;
        let extent = |dim: &Dim| dim.extent(|size| sizes[size as usize].1);
        bounds.inputs = bounded.iter().map(|input| (input.arg, input.dims.iter().map(extent).collect())).collect();
    }
    graph
}

/// The operands with which `@main` calls the function. A number is converted to each type in which operators use it.
fn main_operands(lowered: &Lowered, numbers: &[DType], draws: bool, body: &mut String) -> Result<Vec<String>> {
    let one = |(param, source): (usize, &ParamSource)| match *source {
        ParamSource::Storage(i) => Ok(format!("%i{i}")),
        ParamSource::Scalar { index, dtype } => {
            let (from, to) = (Type::new(numbers[index], &[]), Type::new(dtype, &[]));
            let _ = writeln!(body, "%p{param} = \"stablehlo.convert\"(%n{index}) : ({from}) -> {to}");
            Ok(format!("%p{param}"))
        }
        ParamSource::RandomState if draws => Ok("%random".into()),
        ParamSource::RandomState => Err(not_implemented("it cannot draw random numbers")),
        ParamSource::Offset(_) => Err(not_implemented("its views have constant offsets")),
        ParamSource::Size(_) => Err(not_implemented("its sizes are constants")),
    };
    lowered.params.iter().enumerate().map(one).collect()
}

/// A number that is an input of the program.
fn number(&dtype: &DType) -> ArgSpec {
    ArgSpec::Scalar(ScalarSpec { dtype, wrapped: true, is_tensor: false, baked: None })
}

/// A tensor that covers its whole storage.
fn whole(storage: usize, ty: &Type) -> ArgSpec {
    ArgSpec::Tensor(TensorSpec {
        storage,
        dtype: ty.dtype,
        sizes: ty.dims.clone(),
        strides: aten::contiguous_strides(&ty.dims),
        offset: 0,
        is_conj: false,
        is_neg: false,
        offset_input: None,
    })
}

fn literal(ty: &Type, bytes: &[u8]) -> String {
    if ty.numel() == 0 {
        return String::new();
    }
    if ty.dtype == DType::Bool {
        // Hexadecimal literals of booleans are bit-packed, and a flat list must be nested like the type.
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
