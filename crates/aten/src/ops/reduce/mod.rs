//! Reductions, scans, sorts and order statistics.

pub(crate) mod order_statistics;
pub(crate) mod reductions;
pub(crate) mod scan;
pub(crate) mod segments;
pub(crate) mod sort;
pub(crate) mod vector_norm;
