//! Matrix products, factorizations and solvers.

pub(crate) mod eig;
pub(crate) mod ldl;
pub(crate) mod lu;
pub(crate) mod matmul;
pub(crate) mod qr;
pub(crate) mod spectral;
pub(crate) mod triangular;
