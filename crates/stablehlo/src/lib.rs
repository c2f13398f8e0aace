//! A checked builder of StableHLO functions: typed values, inference of shapes and types, text output.
//!
//! The crate knows neither PyTorch nor PJRT. Operations follow the StableHLO specification; what this
//! crate adds is NumPy-style broadcasting between the operands of elementwise operations.

mod bounds;
mod builder;
mod dot;
mod dtype;
mod element_types;
mod elementwise;
mod reduce;
mod refusal;
mod shape;
mod structured;
mod wide;

pub use bounds::{Extent, Factor};
pub use builder::{Builder, Function, Precision, Target, Type, Value};
pub use dot::DotDims;
pub use dtype::{DType, Number};
pub use element_types::DTypes;
pub use elementwise::{Comparison, broadcast_dims};
pub use refusal::Refusal;
pub use structured::{Convolution, Fft, Gather, Scatter, Window};
