//! Chunks that collectives have joined without a promise: whole where the ranks vote for them, else in pieces.

use std::sync::{Arc, Weak};

use super::{Context, Launch, Runner, Submitted, lose};
use crate::placement::Placement;
use crate::program::Usage;
use crate::record::chunk::Chunk;
use crate::record::reason::Reason;

impl Runner {
    /// Runs a chunk that collectives of a group have joined. The ranks vote on its program, and the chunk waits in the
    /// queue. It is not voted on where this rank would not run it as a whole.
    pub(super) fn run_unit(
        &mut self,
        placement: Placement,
        mut chunk: Chunk,
        group: u64,
        reason: Reason,
        context: &mut Context<'_>,
    ) -> (Submitted, Option<Chunk>) {
        let usage = chunk.usage(&context.registry.types);
        let count = chunk.collectives();
        let ballot = context.registry.ballot(chunk.replicas(), group);
        let is_whole = ballot.is_some() && !usage.live.is_empty() && !chunk.is_deep(&usage);
        let program = if is_whole { self.program(&chunk, &usage, context).ok() } else { None };
        if let (Some(ballot), Some((program, is_new))) = (&ballot, program) {
            let types = &context.registry.types;
            let noted = context.observer.note_run(&chunk, &program, is_new, placement, reason, &usage, types);
            let vote = ballot.propose(count, program.digest, std::mem::take(&mut chunk.places));
            let agreed = Some(Arc::clone(&vote.ticket));
            let launch = Launch { chunk, usage, program, agreed, vote: Some(vote), reason, noted };
            return self.launch_or_queue(placement, launch, context);
        }
        if let Some(ballot) = ballot {
            ballot.cut(count, false);
        }
        let mut result = Ok(());
        for (piece, usage) in chunk.around_collectives(&usage, &context.registry.types) {
            result = result.and(self.run_with(placement, piece, usage, Reason::NotAsked, context).0);
        }
        (result, Some(chunk))
    }

    /// Puts the pieces of a chunk in its place at the front of the queue: the ranks have not voted for its program.
    pub(super) fn queue_pieces(&mut self, placement: Placement, refused: Launch, context: &mut Context<'_>) {
        let Launch { mut chunk, usage, noted, .. } = refused;
        context.observer.withdraw(noted);
        let mut launches = Vec::new();
        for (piece, usage) in chunk.around_collectives(&usage, &context.registry.types) {
            launches.extend(self.piece(placement, piece, usage, context));
        }
        for launch in launches.into_iter().rev() {
            self.queues[placement.device()].push_front(launch);
        }
    }

    fn piece(&mut self, placement: Placement, piece: Chunk, usage: Usage, context: &mut Context<'_>) -> Option<Launch> {
        match self.program(&piece, &usage, context) {
            Ok((program, is_new)) => {
                let (reason, types) = (Reason::Refused, &context.registry.types);
                let noted = context.observer.note_run(&piece, &program, is_new, placement, reason, &usage, types);
                piece.inputs.iter().for_each(|input| input.hold());
                Some(Launch { chunk: piece, usage, program, agreed: None, vote: None, reason, noted })
            }
            Err(error) => {
                let values: Vec<_> = piece.outputs.iter().filter_map(Weak::upgrade).collect();
                lose(values.iter(), &error);
                None
            }
        }
    }
}
