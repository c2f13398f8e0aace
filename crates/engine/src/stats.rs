//! Counters for users.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What it took to make an executable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Making {
    pub begun: Option<Instant>,
    /// Whether there is an executable already, and this one is to be better.
    pub is_improvement: bool,
    pub compiling: Duration,
    pub loading: Duration,
    /// Waiting for another process that compiled it.
    pub waiting: Duration,
}

/// Counters of the compile cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStats {
    /// Programs asked for.
    pub requests: u64,
    /// Of those, found in this process.
    pub hits: u64,
    /// Of those, loaded from disk.
    pub disk_hits: u64,
    pub load_time: Duration,
    /// Of those, compiled.
    pub compiles: u64,
    pub compile_time: Duration,
    /// Programs that were compiled once more, with full effort, because they were used much.
    pub improved: u64,
    /// Times that another process was compiling the program, and we waited for it.
    pub waits: u64,
    pub wait_time: Duration,
    /// Programs and lowered calls that had to leave memory.
    pub evictions: u64,
    /// Programs that had to leave the disk because this process wrote others.
    pub disk_evictions: u64,
}

impl CacheStats {
    /// Adds what making an executable took.
    pub(crate) fn add(&mut self, making: &Making) {
        self.compile_time += making.compiling;
        self.load_time += making.loading;
        self.wait_time += making.waiting;
    }

    /// The counters of two parts of the cache together.
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

/// Which operators ran, and how.
#[derive(Clone, Debug, Default)]
pub struct OpStats {
    /// Operator calls.
    pub operators: u64,
    /// Calls of operators that PyTorch's decompositions serve, by name.
    pub decomposed: BTreeMap<String, u64>,
    /// Calls that ran on the CPU because the user asked for that, by name.
    pub fallen_back: BTreeMap<String, u64>,
    /// Arguments of graphs with bounded dimensions that the host had to pad, and results that it had to cut.
    pub padded: u64,
    pub unpadded: u64,
}
