//! A failure whose caller's line is not known yet.
//!
//! The line of a call that turns out to be new is looked up after the call. A program that is compiled at once can
//! have failed by then.

use std::sync::{Arc, Weak};

use super::execute::lose;
use crate::error::Error;
use crate::lines::Line;
use crate::storage::Value;

pub(super) struct Unlocated {
    error: Error,
    lost: Vec<Weak<Value>>,
}

impl Unlocated {
    pub fn new<'a>(error: &Error, lost: impl Iterator<Item = &'a Arc<Value>>) -> Unlocated {
        Unlocated { error: error.clone(), lost: lost.map(Arc::downgrade).collect() }
    }

    /// Adds the line to the error that a read of the lost values raises.
    pub fn locate(self, line: Line) {
        let lost: Vec<Arc<Value>> = self.lost.iter().filter_map(Weak::upgrade).collect();
        lose(lost.iter(), &self.error.at(&line.name()));
    }
}
