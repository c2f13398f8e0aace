//! Factorisations and solvers.

use crate::table::Row;

pub(crate) const ROWS: &[Row] = &[];
