//! How the ranks of a group compare the programs that they are about to launch, where the program has collectives and
//! depends on what each rank has called: by a promise (`compare`), or by votes (`vote.rs`).

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::vote::Exchange;

/// Waits until all ranks have told what they launch. An error if they differ.
type Compare = dyn Fn(&str) -> Result<()> + Send + Sync;

/// Says which collective has this number. If it is late, also what the other ranks wait in; the group has failed then.
type Describe = dyn Fn(u64, bool) -> String + Send + Sync;

/// How the ranks of a process group compare programs, and what is known of their calls.
#[derive(Clone)]
pub struct Agreement {
    /// The name in errors.
    pub name: String,
    /// The lane of the group's jobs. The ranks compare in the order of this lane.
    pub lane: u64,
    pub compare: Arc<Compare>,
    pub exchange: Arc<Exchange>,
    /// How long a collective may take.
    pub timeout: Duration,
    pub describe: Arc<Describe>,
}

/// A call of a collective.
#[derive(Clone)]
pub(crate) struct Called {
    pub agreement: Agreement,
    /// Its number in the process group.
    pub number: u64,
}

impl Called {
    pub fn name(&self) -> String {
        (self.agreement.describe)(self.number, false)
    }

    /// The error of a call that has not ended in time.
    pub fn late(&self) -> Error {
        let milliseconds = self.agreement.timeout.as_millis();
        Error::runtime(format!("did not end within {milliseconds} ms"))
            .within(&(self.agreement.describe)(self.number, true))
    }
}
