//! The lowering of PyTorch's ATen operators to StableHLO.
//!
//! [The table](table) lists the [rows](row): one for each operator, in one file per family (`ops/`). A row holds only
//! the mathematics, on whole values. What the operator's schema implies (`out=`, in-place forms, aliasing, writing
//! through views) and what its arguments are (views of storages, numbers) is dealt with once, in [`lower`]. The crate
//! knows neither PyTorch's C++ nor PJRT, devices or modes.
//!
//! Each file imports only files below it:
//!
//! - [`lower`] turns a call into a function, and [`nodes`] the nodes of a graph; they look rows up in [`table`].
//! - `ops/` has the rows. They share what is in `common/`, and see their arguments through [`cx`].
//! - [`inputs`] has the function's parameters, which are read and written through [`view`] and [`places`].
//! - [`spec`] and [`graph`] describe arguments and graphs; [`check`] and [`number_check`] what rows ask of data and
//!   numbers.

mod call;
mod check;
mod common;
mod cx;
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
mod row;
mod spec;
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
pub use row::{Requirement, Row};
pub use spec::{ArgSpec, Dim, ResultSpec, ScalarSpec, StorageSpec, TensorSpec};
pub use stablehlo::{Builder, DType, Extent, Factor, Number, Precision, Target, Type, Value};
pub use view::{contiguous_strides, memory_order, offset_class};
