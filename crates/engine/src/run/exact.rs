//! Runs an operator on exact values when the compiler has refused its program with sizes as inputs.
//!
//! The call was recorded with padded values, and its results must have padding too, so the host converts both. Later
//! calls of the operator get programs for exact values.

use std::sync::Arc;

use aten::{Lowered, Output, ParamSource, lower_call};
use pjrt::Buffer;
use stablehlo::Type;

use super::execute::upload_extra;
use super::runtime::Runtime;
use crate::cache::Source;
use crate::cache::effort::Effort;
use crate::error::{Error, Result};
use crate::placement::Placement;
use crate::record::chunk::{self, Chunk};
use crate::registry::layout::Layout;
use crate::registry::types::Types;
use crate::storage::ValueState;

/// Runs the only operator of a chunk on exact values.
///
/// # Errors
/// `refusal`, the compiler's error, if the operator already takes exact values; else the error of the exact program.
pub(super) fn run_exactly(
    runtime: &mut Runtime,
    placement: Placement,
    chunk: &Chunk,
    types: &Types,
    refusal: Error,
) -> Result<()> {
    let [node] = &chunk.nodes[..] else { return Err(refusal) };
    let Some(call) = node.instance.exact_call() else { return Err(refusal) };
    let lowered = lower_call(call)?;
    let computed: Vec<&Output> = lowered.outputs.iter().filter(|output| !matches!(output, Output::Absent)).collect();
    let layouts: Vec<Option<&Layout>> = node.instance.layouts().collect();
    if computed.len() != layouts.len() {
        return Err(refusal);
    }
    let inputs = inputs(runtime, placement, chunk, types, &lowered)?;
    let inputs: Vec<&Buffer> = inputs.iter().map(|input| &**input).collect();
    let (text, operators) = (lowered.function.module(&[]), node.instance.operator.to_string());
    let source = Source { text, operators, flags: Vec::new(), replicas: Vec::new(), effort: Effort::Full };
    let (executable, _) = runtime.executable(source);
    let mut outputs = Vec::with_capacity(computed.len());
    let run = executable.get()?.execute(placement.device(), &inputs, &[], &mut outputs).map_err(Error::from)?;
    run.map(|run| runtime.track(placement, run));
    for (((output, layout), value), computed) in outputs.into_iter().zip(layouts).zip(&chunk.outputs).zip(computed) {
        let Some(value) = value.upgrade() else { continue };
        let ty = types.get(value.ty);
        let largest = match computed {
            // The largest size of a result whose size the data decide.
            Output::Fresh { base, .. } if layout.is_none() && base != ty => Some(Layout::of(ty, &base.dims)),
            _ => None,
        };
        let buffer = match layout.or(largest.as_ref()) {
            None => Arc::new(output),
            Some(layout) => {
                let mut exact = vec![0; Type::new(ty.dtype, &layout.actual()).size_bytes()];
                output.to_host(&mut exact)?;
                runtime.upload(placement, &layout.with_padding(ty, &exact), ty.dtype, &ty.dims)?
            }
        };
        value.settle(ValueState::Ready(buffer));
    }
    node.instance.note_refusal(&refusal.message);
    Ok(())
}

/// The inputs of the exact program.
fn inputs(
    runtime: &mut Runtime,
    placement: Placement,
    chunk: &Chunk,
    types: &Types,
    lowered: &Lowered,
) -> Result<Vec<Arc<Buffer>>> {
    let instance = &chunk.nodes[0].instance;
    let given: Vec<(&ParamSource, &chunk::Source)> = instance.params().iter().zip(chunk.sources_of(0)).collect();
    let input = |param: &ParamSource| {
        let source = given.iter().find(|(known, _)| *known == param).map(|(_, source)| **source);
        let value = match source {
            Some(chunk::Source::Input(k)) => &chunk.inputs[k as usize],
            Some(chunk::Source::Extra(k)) => return upload_extra(runtime, placement, chunk.extras[k as usize]),
            _ => return Err(Error::runtime(format!("internal error: {} lacks an exact input", instance.operator))),
        };
        let buffer = value.buffer()?;
        let ParamSource::Storage(storage) = *param else { return Ok(buffer) };
        let ty = types.get(value.ty);
        let Some(layout) = instance.layout_of(storage, ty) else { return Ok(buffer) };
        let mut padded = vec![0; ty.size_bytes()];
        buffer.to_host(&mut padded)?;
        runtime.upload(placement, &layout.without_padding(&padded), ty.dtype, &layout.actual())
    };
    lowered.params.iter().map(input).collect()
}
