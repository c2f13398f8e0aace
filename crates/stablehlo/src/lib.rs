//! A checked builder of StableHLO functions: typed values, inference of shapes and types, text output.
//!
//! The crate does not depend on PyTorch or PJRT. Operations follow the StableHLO specification. In addition, operands
//! of elementwise operations broadcast as in NumPy.

mod bounds;
mod builder;
mod collectives;
mod convert;
mod dot;
mod dtype;
mod element_types;
mod elementwise;
mod random;
mod reduce;
mod refusal;
mod shape;
mod structured;
mod wide;

pub use bounds::{Extent, Factor};
pub use builder::{Builder, Function, Precision, Target, Type, Uniform, Value};
pub use collectives::Groups;
pub use dot::DotDims;
pub use dtype::{DType, Number, half_pair};
pub use element_types::DTypes;
pub use elementwise::{Comparison, broadcast_dims};
pub use refusal::{Refusal, overflow_of};
pub use shape::count_by;
pub use structured::{Convolution, Fft, Gather, Scatter, Window};
