//! A PJRT plugin without a device. It takes programs, allocates nothing and computes nothing, so that a script runs to
//! its end on a machine without the chip, and its programs can be given to the chip's compiler.
//!
//! A buffer has a type, dimensions, and one number that stands for all of its elements. A run computes that number for
//! each result from those of the inputs ([`program`]). A read fills the host's memory with it: a loss is some number, and
//! a search for infinities finds none. Of small arrays that are uploaded, and of what is sliced or compared of them, all
//! elements are known (`exact`).
//!
//! The plugin is part of this library: [`chip`] says which chips it can stand for, [`get_api`] is its `GetPjrtApi`.

mod api;
mod array;
pub mod chip;
mod element;
mod exact;
mod parse;
mod program;

pub use api::{fill, get_api, is_invented};
pub use array::MOST;
