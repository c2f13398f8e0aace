//! The lowering of PyTorch's ATen operators to StableHLO.
//!
//! [The table](table) lists the [rows](row), one for each operator, in one file per family (`ops/`). A row contains
//! only the mathematics, on whole values. [`lower`] handles everything that follows from the operator's schema
//! (`out=`, in-place forms, aliasing, writes through views) and from the kinds of arguments (views of storages,
//! numbers). The crate depends neither on PyTorch's C++ nor on PJRT, devices or modes.
//!
//! Each file imports only files below it:
//!
//! - [`lower`] lowers a call to a function, and [`nodes`] lowers the nodes of a graph. Both look up rows in
//!   [`table`].
//! - `ops/` contains the rows. They share the code in `common/` and read their arguments through [`cx`].
//! - [`inputs`] contains the function's parameters. [`view`] and [`places`] read and write them.
//! - [`spec`] and [`graph`] describe arguments and graphs. [`check`] and [`number_check`] describe what rows require
//!   of data and numbers.

mod call;
mod check;
mod common;
mod cx;
mod draw;
mod error;
mod graph;
mod inputs;
pub mod layouts;
mod lower;
mod nodes;
mod number_check;
mod ops;
mod places;
mod promote;
mod radix;
mod row;
mod sized;
mod spec;
mod strides;
pub mod table;
mod view;

pub use call::{Body as CallBody, Call};
pub use check::Check;
pub use cx::{Arg, Cx};
pub use error::{Error, ErrorKind, Result};
pub use graph::{Bounds, Graph, GraphArg, Node};
pub use inputs::ParamSource;
pub use lower::{Lowered, Output, lower_call};
pub use number_check::NumberCheck;
pub use row::{Requirement, Row, Setting, Varying};
pub use sized::{Division, Paired, Part, SizedView, Sizes, Start, ViewDim, Windowed, computed_results, lower_sized};
pub use spec::{ArgSpec, Dim, ResultSpec, ScalarSpec, StorageSpec, TensorSpec};
pub use stablehlo::{Builder, DType, Extent, Factor, Number, Precision, Target, Type, Value};
pub use strides::{contiguous_strides, dense_strides, memory_order};
pub use view::{OffsetClass, offset_class, stored_type};
