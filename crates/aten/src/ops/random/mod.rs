//! Random numbers.

pub(crate) mod distributions;
pub(crate) mod rejection;
