//! Counters for users.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time taken to make an executable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Making {
    pub begun: Option<Instant>,
    /// Whether there is an executable already, which this one replaces.
    pub is_improvement: bool,
    /// Whether nothing waits for it.
    pub is_in_background: bool,
    pub compiling: Duration,
    pub loading: Duration,
    /// The wait for another process that compiled it.
    pub waiting: Duration,
}

/// Counters of the compile cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStats {
    /// Programs requested.
    pub requests: u64,
    /// Of these, found in this process.
    pub hits: u64,
    /// Of these, loaded from disk.
    pub disk_hits: u64,
    pub load_time: Duration,
    /// Of these, compiled.
    pub compiles: u64,
    pub compile_time: Duration,
    /// Programs that were compiled again with full effort, because they were used much.
    pub improved: u64,
    /// How often this process waited for another process that was compiling the program.
    pub waits: u64,
    pub wait_time: Duration,
    /// Programs and lowered calls evicted from memory.
    pub evictions: u64,
    /// Programs evicted from disk when this process wrote others.
    pub disk_evictions: u64,
}

impl CacheStats {
    /// Adds the times of making an executable.
    pub(crate) fn add(&mut self, making: &Making) {
        self.compile_time += making.compiling;
        self.load_time += making.loading;
        self.wait_time += making.waiting;
    }

    /// The sum of the counters of two parts of the cache.
    pub(crate) fn and(self, other: CacheStats) -> CacheStats {
        CacheStats {
            requests: self.requests + other.requests,
            hits: self.hits + other.hits,
            disk_hits: self.disk_hits + other.disk_hits,
            load_time: self.load_time + other.load_time,
            compiles: self.compiles + other.compiles,
            compile_time: self.compile_time + other.compile_time,
            improved: self.improved + other.improved,
            waits: self.waits + other.waits,
            wait_time: self.wait_time + other.wait_time,
            evictions: self.evictions + other.evictions,
            disk_evictions: self.disk_evictions + other.disk_evictions,
        }
    }
}

/// Counts of operator calls, by how they ran.
#[derive(Clone, Debug, Default)]
pub struct OpStats {
    /// Operator calls.
    pub operators: u64,
    /// Calls that used PyTorch's decompositions, by operator.
    pub decomposed: BTreeMap<String, u64>,
    /// Calls that ran on the CPU because the user allowed it, by operator.
    pub fallen_back: BTreeMap<String, u64>,
    /// Arguments of graphs with bounded dimensions that the host padded, and results that it unpadded.
    pub padded: u64,
    pub unpadded: u64,
}
