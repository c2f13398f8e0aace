//! What bounds the tables in memory: the least recently used go.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How much of a full table stays, so that making room is seldom.
const KEPT: f64 = 0.75;

/// When something was last used, on a clock of the table's owner.
#[derive(Default)]
pub(crate) struct LastUse(AtomicU64);

impl LastUse {
    pub fn new(now: u64) -> LastUse {
        LastUse(now.into())
    }

    #[inline]
    pub fn set(&self, now: u64) {
        self.0.store(now, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The moment up to which things must go from a table that has reached its limit; later ones stay.
pub(crate) fn deadline(mut uses: Vec<u64>, limit: usize) -> u64 {
    let goes = uses.len().saturating_sub((limit as f64 * KEPT) as usize);
    match goes.checked_sub(1) {
        Some(last) => *uses.select_nth_unstable(last).1,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_quarter_goes() {
        assert_eq!(deadline(vec![40, 10, 30, 20], 4), 10);
        assert_eq!(deadline((1..=100).rev().collect(), 100), 25);
        assert_eq!(deadline(vec![5, 6], 100), 0);
        assert_eq!(deadline(vec![], 0), 0);
    }
}
