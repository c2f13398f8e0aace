//! Makes the program of a compiled graph before a call needs it.

use std::sync::Arc;

use crate::call::Arg;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::placement::Placement;
use crate::program::Program;
use crate::record::reason::Reason;
use crate::registry::key::CallParts;

/// A program that is being made in the background.
pub struct Prepared(Arc<Program>);

impl Prepared {
    /// Whether the program is made: a call of the graph does not wait for it.
    ///
    /// # Errors
    /// If it cannot be compiled.
    pub fn is_ready(&self) -> Result<bool> {
        let executable = &self.0.executable;
        match executable.is_made() {
            true => executable.get().map(|_| true),
            false => Ok(false),
        }
    }
}

impl Engine {
    /// Begins to make, in the background, the program that a call of a compiled graph with these arguments runs. The
    /// arguments are not changed.
    ///
    /// # Errors
    /// If the graph cannot be lowered, or has bounded dimensions.
    pub fn prepare(&mut self, op: u32, args: &[Arg], placement: Placement) -> Result<Prepared> {
        let compiled = self.registry.operator(op).compiled.as_ref();
        if compiled.is_some_and(|compiled| compiled.graph.bounds.is_some()) {
            return Err(Error::new(
                ErrorKind::NotImplemented,
                "a graph with bounded sizes cannot be prepared: its first call makes its program",
            ));
        }
        self.open()?;
        self.recorder.check(placement)?;
        self.unpad(args)?;
        // The program may depend on which arguments have values.
        self.flush(placement, Reason::CompiledGraph)?;
        let mut parts = CallParts::exact();
        let Some(instance) = self.find(op, args, &mut parts)?.filter(|instance| instance.is_runnable()) else {
            return Err(Error::runtime("internal error: a compiled graph was not defined"));
        };
        let mut chunk = self.recorder.new_chunk();
        chunk.record(&instance, &parts, [0; 2]);
        let usage = chunk.expected_usage(&parts, &self.registry.types);
        self.with_runner(|runner, context| runner.prepare(&chunk, &usage, context)).map(Prepared)
    }
}
