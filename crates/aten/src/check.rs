//! What a row asks of the data. A program cannot raise: it tells what it has met, and whoever reads next is told.

use crate::error::Error;

/// A demand that a program has looked into: it returns [`Check::HOLDS`], or a number that does not meet the demand.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What is raised, where [`Check::NUMBER`] stands for the number.
    pub error: Error,
}

impl Check {
    /// What the program returns where all is well.
    pub const HOLDS: i64 = i64::MIN;

    /// Stands for the number in a message.
    pub const NUMBER: &str = "{number}";

    /// The error for a number that a program has returned.
    pub fn error_for(&self, number: i64) -> Option<Error> {
        let message = || self.error.message.replace(Check::NUMBER, &number.to_string());
        (number != Check::HOLDS).then(|| Error::new(self.error.kind, message()))
    }
}

/// How an index may count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    FromStart,
    /// Negative numbers count from the end.
    FromBothEnds,
}
