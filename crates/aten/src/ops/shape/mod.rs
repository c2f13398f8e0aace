//! Tensors made, viewed, joined and rearranged.

pub(crate) mod factory;
pub(crate) mod rearrange;
pub(crate) mod views;
