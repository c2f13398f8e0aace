//! A chunk that waits to be launched.

use std::sync::Arc;

use crate::observe::Noted;
use crate::program::{Program, Usage};
use crate::record::chunk::Chunk;
use crate::record::reason::Reason;
use crate::ticket::Ticket;
use crate::vote::Vote;

/// A chunk to be launched.
pub(super) struct Launch {
    pub chunk: Chunk,
    pub usage: Usage,
    pub program: Arc<Program>,
    /// The ranks compare the program before its launch, or vote on it.
    pub agreed: Option<Arc<Ticket>>,
    pub vote: Option<Arc<Vote>>,
    pub reason: Reason,
    pub noted: Noted,
}

impl Launch {
    /// The job with which the ranks compare the program, or their vote on it, while they do.
    pub fn comparing(&self) -> Option<&Arc<Ticket>> {
        self.agreed.as_ref().filter(|ticket| ticket.result().is_none())
    }

    /// Whether the ranks do not all have the program.
    pub fn is_refused(&self) -> bool {
        self.vote.as_ref().is_some_and(|vote| vote.is_refused())
    }

    /// Whether it needs no executable any more.
    pub fn is_made(&self) -> bool {
        self.program.executable.is_made() || self.is_refused()
    }
}
