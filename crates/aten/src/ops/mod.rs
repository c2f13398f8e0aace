//! The rows: a folder for each kind of operator, a file for each family. [`crate::table`] lists them.

pub(crate) mod collectives;
pub(crate) mod control;
pub(crate) mod elementwise;
pub(crate) mod fft;
pub(crate) mod foreach;
pub(crate) mod index;
pub(crate) mod linalg;
pub(crate) mod nn;
pub(crate) mod optim;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod shape;
