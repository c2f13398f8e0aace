//! Posts jobs of the host.

use std::sync::Arc;

use stablehlo::Type;

use crate::call::TensorArg;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::host::type_of;
use crate::placement::Placement;
use crate::record::reason::Reason;
use crate::run::jobs::{Job, Work};
use crate::storage::{Value, ValueState};
use crate::ticket::Ticket;

/// A tensor that a job writes. With `initial`, its memory starts as a copy of that input; otherwise it is undefined.
pub struct JobOutput {
    pub tensor: TensorArg,
    pub initial: Option<usize>,
}

impl Engine {
    /// A new lane for jobs.
    pub fn open_lane(&mut self) -> u64 {
        self.runner.jobs.open_lane()
    }

    /// The jobs of these lanes that may not have finished.
    pub fn unfinished_jobs(&self, lanes: &[u64]) -> Vec<Arc<Ticket>> {
        self.runner.jobs.unfinished_of(lanes)
    }

    /// Posts a job. It starts when its inputs are ready and the earlier jobs of the same lane have run. The outputs
    /// have their new values immediately, as promises.
    ///
    /// # Errors
    /// If the arguments cannot be used. A later error is stored in the outputs and in the ticket.
    pub fn post_job(
        &mut self,
        lane: u64,
        name: String,
        placement: Placement,
        inputs: &[TensorArg],
        outputs: &[JobOutput],
        work: Work,
    ) -> Result<Arc<Ticket>> {
        if !self.runner.jobs.has_lane(lane) {
            return Err(Error::runtime(format!("{name}: the process group was destroyed")));
        }
        let client = self.runtime()?.platform.client.clone();
        self.recorder.check(placement)?;
        let mut read = Vec::with_capacity(inputs.len());
        for input in inputs {
            let ty = type_of(input)?;
            let value = if ty.numel() == 0 { None } else { self.dense_value(input, &ty)? };
            read.push((value, ty));
        }
        if self.recorder.group(placement).is_some() {
            self.flush(placement, Reason::Job)?;
        } else if read.iter().flat_map(|(value, _)| value).any(|value| value.pending().is_some()) {
            self.flush(placement, Reason::Collective)?;
        }
        self.recorder.end_stretch(placement, Reason::Job);
        let ticket = Arc::new(Ticket::new(name.clone()));
        let mut promised = Vec::with_capacity(outputs.len());
        let mut written = Vec::with_capacity(outputs.len());
        for output in outputs {
            let ty = type_of(&output.tensor)?;
            let value = Value::new(self.registry.types.intern(&ty), ValueState::Promised(Arc::clone(&ticket)));
            written.push((Arc::downgrade(&value), ty.clone(), output.initial));
            promised.push((value, ty));
        }
        let bytes = |types: &mut dyn Iterator<Item = &Type>| types.map(Type::size_bytes).sum::<usize>();
        let moved = bytes(&mut read.iter().map(|(_, ty)| ty)).max(bytes(&mut written.iter().map(|(_, ty, _)| ty)));
        let times = self.observer.note_job(&name, placement, moved);
        let ticket_of_job = Arc::clone(&ticket);
        let job = Job {
            name,
            placement,
            client,
            inputs: read,
            outputs: written,
            work,
            ticket: ticket_of_job,
            times,
            precedes_program: false,
        };
        self.runner.jobs.post(lane, job);
        for (output, (value, ty)) in outputs.iter().zip(promised) {
            self.write_whole(&output.tensor, &ty, value)?;
        }
        self.launch_made();
        Ok(ticket)
    }
}
