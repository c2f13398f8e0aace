//! The lowering of PyTorch's ATen operators to StableHLO.
//!
//! The heart is [the table](table): one row per operator, in one file per family. A row holds only the
//! mathematics, on whole values. What the operator's schema implies (`out=`, in-place forms, aliasing,
//! writing through views) and what its arguments are (views of storages, numbers) is dealt with once, in
//! [`lower`]. The crate knows neither PyTorch's C++ nor PJRT, devices or modes.

mod check;
mod cx;
mod error;
mod inputs;
mod lower;
mod number_check;
mod promote;
mod spec;
pub mod table;
mod view;

mod ops;

pub use check::Check;
pub use cx::{Arg, Cx};
pub use error::{Error, ErrorKind, Result};
pub use inputs::ParamSource;
pub use lower::{Lowered, Output, lower_call};
pub use number_check::NumberCheck;
pub use spec::{
    ArgSpec, Body as CallBody, Bounds, Call, Dim, Graph, GraphArg, Node, ResultSpec, ScalarSpec, StorageSpec,
    TensorSpec,
};
pub use stablehlo::{Builder, DType, Extent, Factor, Number, Precision, Target, Type, Value};
pub use table::{Row, find};
pub use view::{contiguous_strides, memory_order, offset_class};
