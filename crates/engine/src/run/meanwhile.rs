//! Runs programs that exist in place of one that is being compiled, where the host would wait for it.
//!
//! A program of the same calls that returns more results, or the programs of the operators, compute the same. The new
//! program runs from the next time on that it is ready.

use std::sync::{Arc, Weak};

use rustc_hash::FxHashSet;

use super::launch::Launch;
use super::{Context, Runner, answers, lose};
use crate::cache::effort::may_run_others;
use crate::error::Result;
use crate::placement::Placement;
use crate::program::Usage;
use crate::record::chunk::Chunk;
use crate::record::reason::Reason;
use crate::storage::{Value, ValueState};

/// So many programs, for each hundred operators, may have to be made first. A chunk that repeats few operators many times, such
/// as the steps of a solver, then runs at once.
const MISSING: usize = 10;

impl Runner {
    /// Launches the first chunks of a queue by programs that exist, as long as the ones for them are being made.
    pub fn launch_meanwhile(&mut self, placement: Placement, context: &mut Context<'_>) {
        while self.awaited(placement).is_some() && self.job_before_next(placement).is_none() {
            if !self.launch_otherwise(placement, context) {
                return;
            }
            self.launch_made(context);
        }
    }

    /// Whether other programs than its own may compute a chunk.
    pub(super) fn may_run_otherwise(&self, chunk: &Chunk) -> bool {
        let is_dry = self.runtime.as_ref().is_none_or(|runtime| runtime.platform.is_dry);
        // A step that the user has made one program stays one. All ranks run the same programs.
        let is_free = chunk.scope == 0 && chunk.group.is_none() && chunk.replicas().is_empty();
        !is_dry && is_free && chunk.flags().is_none() && may_run_others()
    }

    /// Launches the first chunk of a queue by programs that exist. Returns whether there are any.
    fn launch_otherwise(&mut self, placement: Placement, context: &mut Context<'_>) -> bool {
        let Some(next) = self.queues[placement.device()].front() else { return false };
        let chunk = &next.chunk;
        if !self.may_run_otherwise(chunk) {
            return false;
        }
        let serving = self.programs.serving(chunk, &next.usage);
        if serving.is_none() && !self.have_programs(chunk, &next.usage) {
            return false;
        }
        let Some(mut launch) = self.queues[placement.device()].pop_front() else { return false };
        launch.chunk.inputs.iter().for_each(|input| input.release());
        context.observer.withdraw(launch.noted);
        if let Some((usage, program)) = serving {
            let (chunk, types) = (&launch.chunk, &context.registry.types);
            let noted = context.observer.note_run(chunk, &program, false, placement, Reason::Compiling, &usage, types);
            // As in the other case, a read of a failed result raises the error.
            let _ = self.launch(placement, Launch { usage, program, noted, ..launch }, context);
        } else {
            self.run_alone(placement, &launch.chunk, &launch.usage, context);
            answers::keep(&mut self.answers[placement.device()], &mut launch.chunk);
            self.begin_jobs();
        }
        true
    }

    /// Whether the operators of a chunk have programs of their own, or need few more.
    fn have_programs(&self, chunk: &Chunk, usage: &Usage) -> bool {
        let (values, nodes) = (chunk.values(), chunk.usages_alone(usage));
        let mut missing = FxHashSet::default();
        for (node, wanted, _) in &nodes {
            let one = chunk.alone(*node, &values);
            if self.programs.serving(&one, wanted).is_none() {
                missing.insert((chunk.nodes[*node].instance.id, wanted.live.clone(), wanted.donated.clone()));
            }
            if missing.len() * 100 > MISSING * nodes.len() {
                return false;
            }
        }
        nodes.len() > 1
    }

    /// Runs the operators of a chunk by their own programs. A read of a failed result raises its error.
    fn run_alone(&mut self, placement: Placement, chunk: &Chunk, whole: &Usage, context: &mut Context<'_>) {
        let mut values = chunk.values();
        let nodes = chunk.usages_alone(whole);
        // Programs that are missing are made at the same time.
        let programs: Vec<_> = nodes
            .iter()
            .map(|(node, wanted, _)| {
                let one = chunk.alone(*node, &values);
                match self.programs.serving(&one, wanted) {
                    Some((usage, program)) => Ok((usage, program, false)),
                    None => {
                        self.program(&one, wanted, context).map(|(program, is_new)| (wanted.clone(), program, is_new))
                    }
                }
            })
            .collect();
        for ((node, _, last), found) in nodes.into_iter().zip(programs) {
            let results = chunk.nodes[node].first_output as usize..;
            let results = &values[results][..chunk.nodes[node].num_outputs()];
            let mut one = chunk.alone(node, &values);
            one.outputs = results.iter().map(Arc::downgrade).collect();
            let run: Result<()> = found.and_then(|(usage, program, is_new)| {
                let types = &context.registry.types;
                let reason = Reason::Compiling;
                let noted = context.observer.note_run(&one, &program, is_new, placement, reason, &usage, types);
                let live = usage.live.iter().map(|&output| Some(Arc::clone(&results[output as usize])));
                let run = self.execute(placement, &one, &program, &live.collect::<Vec<_>>(), noted, context)?;
                self.keep_donated(run, &one, &usage);
                Ok(())
            });
            if let Err(error) = run {
                lose(results.iter(), &error.at(&chunk.line_of(node).name()));
            }
            for output in last {
                values[output as usize] = Value::new(values[output as usize].ty, ValueState::Queued);
            }
        }
    }
}

impl Chunk {
    /// The values of all outputs: those in use, and others for the rest.
    pub fn values(&self) -> Vec<Arc<Value>> {
        let types = self.nodes.iter().flat_map(|node| node.instance.result_types());
        let value =
            |(output, ty): (&Weak<Value>, _)| output.upgrade().unwrap_or_else(|| Value::new(ty, ValueState::Queued));
        self.outputs.iter().zip(types).map(value).collect()
    }
}
