//! What mixes the elements of dimensions: reductions, scans, sorts, order statistics.

pub(crate) mod order_statistics;
pub(crate) mod reductions;
pub(crate) mod scan;
pub(crate) mod sort;
pub(crate) mod vector_norm;
