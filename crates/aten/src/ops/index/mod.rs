//! Reading and writing by index, and results whose size depends on the data.

pub(crate) mod dynamic;
pub(crate) mod indexing;
pub(crate) mod jagged;
pub(crate) mod scatter;
