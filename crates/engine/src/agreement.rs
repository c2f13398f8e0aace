//! How the ranks of a group compare the programs that they are about to launch, where the program has collectives and
//! depends on what each rank has called: by a promise (`compare`), or by votes (`vote.rs`).

use std::sync::Arc;

use crate::error::Result;
use crate::vote::Exchange;

/// Waits until all ranks have told what they launch. An error if they differ.
type Compare = dyn Fn(&str) -> Result<()> + Send + Sync;

/// How the ranks of a process group compare programs.
#[derive(Clone)]
pub struct Agreement {
    /// The name in errors.
    pub name: String,
    /// The lane of the group's jobs. The ranks compare in the order of this lane.
    pub lane: u64,
    pub compare: Arc<Compare>,
    pub exchange: Arc<Exchange>,
}
