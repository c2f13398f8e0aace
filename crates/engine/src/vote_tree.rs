//! How the ranks of a process group exchange opinions: along a tree of ranks. Each rank receives the opinions of its
//! children, and sends that of all of them to its parent. The outcome comes back along the same connections.
//!
//! A rank sends and receives at most 34 messages, and the steps of a vote grow with the logarithm of the number of ranks.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::vote::Opinion;

/// The number of children of a rank.
const ARITY: usize = 16;

/// The messages of one rank. They arrive in the order in which they were sent.
pub trait Messages: Send + Sync {
    /// # Errors
    /// If the rank cannot be reached.
    fn send(&self, to: usize, opinion: Opinion) -> Result<()>;

    /// Waits for an opinion on a collective.
    ///
    /// # Errors
    /// If it does not come within the timeout of the group.
    fn receive(&self, from: usize, collective: u64) -> Result<Opinion>;
}

fn children(rank: usize, size: usize) -> Range<usize> {
    let first = size.min(rank * ARITY + 1);
    first..size.min(first + ARITY)
}

/// Tells the other ranks an opinion. Returns that of all.
///
/// # Errors
/// If a message fails, or a rank votes on another collective.
pub fn exchange(rank: usize, size: usize, mine: Opinion, messages: &dyn Messages) -> Result<Opinion> {
    let mut opinion = mine;
    for child in children(rank, size) {
        let theirs = messages.receive(child, mine.first)?;
        if theirs.first != mine.first {
            let (wrong, right) = (theirs.first, mine.first);
            return Err(Error::runtime(format!(
                "internal error: rank {child} votes on collective {wrong}, and not on {right}"
            )));
        }
        opinion = opinion.and(theirs);
    }
    if rank > 0 {
        let parent = (rank - 1) / ARITY;
        messages.send(parent, opinion)?;
        opinion = messages.receive(parent, mine.first)?;
    }
    children(rank, size).try_for_each(|child| messages.send(child, opinion))?;
    Ok(opinion)
}
