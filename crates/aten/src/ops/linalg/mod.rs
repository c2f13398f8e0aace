//! Matrix products, factorizations and solvers.

pub(crate) mod balance;
pub(crate) mod divide;
pub(crate) mod eig;
pub(crate) mod eigh;
pub(crate) mod jacobi;
pub(crate) mod ldl;
pub(crate) mod lu;
pub(crate) mod matmul;
pub(crate) mod qr;
pub(crate) mod quasi_triangle;
pub(crate) mod reduction;
pub(crate) mod scaled;
pub(crate) mod schur;
pub(crate) mod secular;
pub(crate) mod spectral;
pub(crate) mod svd;
pub(crate) mod triangular;
