//! Counters for users.

use std::collections::BTreeMap;
use std::time::Duration;

/// How the compile cache did.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStats {
    /// Programs asked for.
    pub requests: u64,
    /// Of those, found compiled.
    pub hits: u64,
    pub compiles: u64,
    pub compile_time: Duration,
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
}
