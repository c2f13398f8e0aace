//! Checks of the data. A program cannot raise an error, so it returns a number for each check. The host looks at the
//! number at its next read and raises the error.

use crate::error::Error;

/// A check of the data. The program returns [`Check::HOLDS`], or a number from the data that fails the check.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The error to raise. [`Check::NUMBER`] in its message is replaced by the number, [`Check::HIGH`] and
    /// [`Check::LOW`] by its upper and lower 32 bits.
    pub error: Error,
}

impl Check {
    /// What the program returns if the check passes.
    pub const HOLDS: i64 = i64::MIN;

    /// The placeholder for the number in a message.
    pub const NUMBER: &str = "{number}";

    /// The placeholders for the two halves of a number that packs two, for instance a batch element and an index.
    pub const HIGH: &str = "{high}";
    pub const LOW: &str = "{low}";

    /// The placeholder for a size that changes. The number that the program returns then has the size in its upper 32 bits
    /// and [`Check::NUMBER`] in its lower ones.
    pub const SIZE: &str = "{size}";

    /// The error for the number that a program returned, `None` if the check passed.
    pub fn error_for(&self, number: i64) -> Option<Error> {
        let fill = |message: &str, place, number: i64| message.replace(place, &number.to_string());
        let message = || {
            let message = match self.error.message.contains(Check::SIZE) {
                true => {
                    fill(&fill(&self.error.message, Check::SIZE, number >> 32), Check::NUMBER, i64::from(number as i32))
                }
                false => fill(&self.error.message, Check::NUMBER, number),
            };
            fill(&fill(&message, Check::HIGH, number >> 32), Check::LOW, number & i64::from(u32::MAX))
        };
        (number != Check::HOLDS).then(|| Error::new(self.error.kind, message()))
    }
}

/// Which indices are allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    FromStart,
    /// Negative numbers count from the end.
    FromBothEnds,
}
