//! Code that rows of several families share. No file here imports a row.

pub(crate) mod bounded_views;
pub(crate) mod chebyshev;
pub(crate) mod chosen;
pub(crate) mod clamp;
pub(crate) mod completed;
pub(crate) mod filters;
pub(crate) mod index_check;
pub(crate) mod loops;
pub(crate) mod loss_reduction;
pub(crate) mod matrices;
pub(crate) mod parameters;
pub(crate) mod pooling;
pub(crate) mod random_bits;
pub(crate) mod reductions;
pub(crate) mod reflectors;
pub(crate) mod sampling;
pub(crate) mod sort_keys;
pub(crate) mod sorting;
pub(crate) mod strided_views;
pub(crate) mod windows;
