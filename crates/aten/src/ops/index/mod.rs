//! Elements read and written by index, and results whose size the data decide.

pub(crate) mod dynamic;
pub(crate) mod indexing;
pub(crate) mod jagged;
pub(crate) mod scatter;
