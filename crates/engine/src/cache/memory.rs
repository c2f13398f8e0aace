//! Limits of the tables in memory: the least recently used items are removed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The share of a full table that is kept, so that it is rarely pruned.
const KEPT: f64 = 0.75;

/// The time of the last use, on a clock of the table's owner.
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

/// The limit of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    pub count: usize,
    pub bytes: usize,
}

/// For a table at its limit: items last used up to this time must be removed. `held` has the last use and the bytes
/// of each item.
pub(crate) fn deadline(mut held: Vec<(u64, usize)>, limit: Limit) -> u64 {
    held.sort_unstable_by_key(|(used, _)| std::cmp::Reverse(*used));
    let (mut count, mut bytes) = (limit.count as f64 * KEPT, limit.bytes as f64 * KEPT);
    let first_to_go = held.iter().find(|(_, size)| {
        count -= 1.;
        bytes -= *size as f64;
        count < 0. || bytes < 0.
    });
    first_to_go.map_or(0, |(used, _)| *used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_quarter_is_removed() {
        let limit = |count| Limit { count, bytes: 1 };
        assert_eq!(deadline([40, 10, 30, 20].map(|used| (used, 0)).into(), limit(4)), 10);
        assert_eq!(deadline((1..=100).rev().map(|used| (used, 0)).collect(), limit(100)), 25);
        assert_eq!(deadline(vec![(5, 0), (6, 0)], limit(100)), 0);
        assert_eq!(deadline(vec![], limit(0)), 0);
    }

    #[test]
    fn large_ones_need_more_room() {
        let held = vec![(1, 10), (2, 50), (3, 10), (4, 10)];
        assert_eq!(deadline(held.clone(), Limit { count: 100, bytes: 80 }), 2);
        assert_eq!(deadline(held, Limit { count: 100, bytes: 100 }), 1);
    }
}
