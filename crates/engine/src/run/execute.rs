//! Execution of a program on the device, and of the operators of a chunk whose program failed.

use std::sync::Arc;
use std::time::Instant;

use pjrt::{Buffer, Event};

use super::exact::run_exactly;
use super::runtime::Runtime;
use super::{Context, Runner};
use crate::error::{Error, Result};
use crate::observe::Noted;
use crate::placement::Placement;
use crate::program::{Program, Usage};
use crate::record::chunk::{Chunk, Extra};
use crate::record::reason::Reason;
use crate::storage::{Value, ValueState};

impl Runner {
    /// Runs a failed chunk again, operator by operator. A read of a failed result raises its error.
    pub(super) fn run_one_by_one(
        &mut self,
        placement: Placement,
        chunk: &Chunk,
        reason: Reason,
        context: &mut Context<'_>,
    ) {
        let values = chunk.values();
        for (index, node) in chunk.nodes.iter().enumerate() {
            let first = node.first_output as usize;
            let results = &values[first..first + node.num_outputs()];
            let mut alone = chunk.alone(index, &values);
            alone.outputs = results.iter().map(Arc::downgrade).collect();
            let usage = Usage { live: (0..results.len() as u32).collect(), donated: vec![false; alone.inputs.len()] };
            let wanted: Vec<_> = results.iter().cloned().map(Some).collect();
            let run = self.program(&alone, &usage, context).and_then(|(program, is_new)| {
                let types = &context.registry.types;
                let noted = context.observer.note_run(&alone, &program, is_new, placement, reason, &usage, types);
                self.execute(placement, &alone, &program, &wanted, noted, context)
            });
            if let Err(error) = run {
                lose(results.iter(), &error.at(&chunk.line_of(index).name()));
            }
        }
    }

    /// Launches a program. Returns its run, unless it has ended.
    pub(super) fn execute(
        &mut self,
        placement: Placement,
        chunk: &Chunk,
        program: &Program,
        values: &[Option<Arc<Value>>],
        noted: Noted,
        context: &mut Context<'_>,
    ) -> Result<Option<Arc<Event>>> {
        let runtime = self.runtime()?;
        let made = program.executable_of_run(|source, urgency| runtime.executable_later(source, urgency));
        let is_quick = program.is_quick(made);
        let executable = match made.get() {
            Ok(executable) => executable,
            Err(refusal) => {
                run_exactly(runtime, placement, chunk, &context.registry.types, refusal)?;
                return Ok(None);
            }
        };
        let mut inputs: Vec<Arc<Buffer>> = Vec::with_capacity(chunk.inputs.len() + chunk.extras.len());
        for input in &chunk.inputs {
            inputs.push(input.buffer()?);
        }
        for extra in &chunk.extras {
            inputs.push(upload_extra(runtime, placement, *extra)?);
        }
        runtime.make_room(placement, made.run_bytes()).map_err(|error| error.within(&program.operators))?;
        let borrowed: Vec<&Buffer> = inputs.iter().map(|buffer| &**buffer).collect();
        let launched = noted.is_wanted().then(Instant::now);
        let mut outputs = Vec::with_capacity(values.len());
        let run = match chunk.replicas() {
            [] => executable.execute(placement.device(), &borrowed, &[], &mut outputs),
            replicas => executable.execute_replica(runtime.launch_id(replicas), &borrowed, &mut outputs),
        };
        let run = run.map_err(|error| Error::from(error).within(&program.operators))?;
        let run = run.map(|run| runtime.track(placement, run));
        if let (Some(run), Some(call)) = (&run, chunk.calls.first()) {
            runtime.collectives(placement).add(Arc::clone(run), call.clone());
        }
        if let Some(launched) = launched {
            context.observer.note_launch(noted, launched, is_quick, run.as_ref());
        }
        for (value, output) in values.iter().zip(outputs) {
            if let Some(value) = value {
                value.settle(ValueState::Ready(Arc::new(output)));
            }
        }
        Ok(run)
    }
}

/// Marks values as lost. A read of one raises the error.
pub(super) fn lose<'a>(values: impl Iterator<Item = &'a Arc<Value>>, error: &Error) {
    let failure = Arc::new(error.clone());
    values.for_each(|value| value.settle(ValueState::Failed(Arc::clone(&failure))));
}

pub(super) fn upload_extra(runtime: &mut Runtime, placement: Placement, extra: Extra) -> Result<Arc<Buffer>> {
    match extra {
        Extra::Number(number, dtype) => runtime.scalar(placement, number, dtype),
        Extra::Size(size) => runtime.scalar(placement, stablehlo::Number::Int(size), stablehlo::DType::I64),
        Extra::RandomState([seed, offset]) => {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&seed.to_ne_bytes());
            bytes[8..].copy_from_slice(&offset.to_ne_bytes());
            runtime.upload(placement, &bytes, stablehlo::DType::U64, &[2])
        }
    }
}
