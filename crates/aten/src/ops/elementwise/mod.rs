//! Elementwise operators.

pub(crate) mod activation;
pub(crate) mod bessel;
pub(crate) mod binary;
pub(crate) mod compare;
pub(crate) mod complex;
pub(crate) mod gamma_gradient;
pub(crate) mod logarithms;
pub(crate) mod polynomial;
pub(crate) mod quantize;
pub(crate) mod special;
pub(crate) mod unary;
