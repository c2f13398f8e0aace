//! Factory functions, views, concatenation and rearrangement.

pub(crate) mod factory;
pub(crate) mod rearrange;
pub(crate) mod views;
