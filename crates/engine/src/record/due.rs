//! A chunk that is due to run because of a call: what the call shows once it has run, and how it is undone.

use std::cell::RefCell;
use std::sync::Arc;

use super::chunk::Chunk;
use super::reason::Reason;
use crate::call::{self, Out};
use crate::error::{Error, Result};
use crate::registry::key::CallParts;
use crate::storage::Value;

/// Why a chunk runs now, with what is known of its last call.
pub(crate) struct Due {
    pub reason: Reason,
    /// How many fresh results the call has.
    pub fresh: usize,
    /// The storages that the call has written to, by number, with their old values.
    pub replaced: Vec<(usize, Replaced)>,
    /// The sizes of results that the data decide.
    pub counts: Vec<Count>,
}

/// The old value of an argument that was written, for the case that the call fails. An input of the chunk is left to the
/// chunk, because another reference would keep its buffer from being donated.
pub(crate) enum Replaced {
    Input(u32),
    Value(Option<Arc<Value>>),
}

impl Replaced {
    pub fn new(old: Option<Arc<Value>>, chunk: &Chunk) -> Replaced {
        match old.as_ref().and_then(|value| chunk.input_index(value)) {
            Some(index) => Replaced::Input(index),
            None => Replaced::Value(old),
        }
    }
}

/// A size of a result that the data decide.
pub(crate) struct Count {
    pub fresh: usize,
    pub axis: usize,
    pub number: Arc<Value>,
}

impl Due {
    /// Gives results the sizes that the data have decided: a storage holds the longest that they can be.
    pub fn show_sizes(&self, outs: &mut [Out]) -> Result<()> {
        thread_local! {
            // Read by the caller right after the call.
            static SIZES: RefCell<Vec<Vec<i64>>> = const { RefCell::new(Vec::new()) };
        }
        if self.counts.is_empty() {
            return Ok(());
        }
        SIZES.with_borrow_mut(|kept| {
            kept.clear();
            for Count { fresh, axis, number } in &self.counts {
                let count = number.read_i64()?;
                let out = &mut outs[*fresh];
                // SAFETY: `sizes` points to `ndim` sizes of the instance.
                let mut sizes = unsafe { std::slice::from_raw_parts(out.sizes, out.ndim as usize) }.to_vec();
                let Some(size) = sizes.get_mut(*axis) else {
                    return Err(Error::runtime("internal error: a counted result without dimensions"));
                };
                *size = count;
                // Whoever takes all of the storage, such as a nested tensor, must get no more than the result shows.
                if *axis == 0 {
                    out.nbytes = sizes.iter().product::<i64>() as usize * call::tensor_dtype(out.dtype)?.size_bytes();
                }
                kept.push(sizes);
                out.sizes = kept[kept.len() - 1].as_ptr();
            }
            Ok(())
        })
    }

    /// Undoes the call, which has failed: its results go, and arguments get their old values back. `inputs` are those of
    /// the chunk, if it is what failed.
    pub fn undo(self, parts: &CallParts, inputs: &[Arc<Value>], outs: &[Out]) {
        outs[..self.fresh].iter().for_each(Out::release);
        for (i, old) in self.replaced {
            let storage = parts.storage(i);
            if storage.value().is_some_and(|value| value.is_failed()) {
                storage.set_value(match old {
                    Replaced::Input(index) => inputs.get(index as usize).cloned(),
                    Replaced::Value(value) => value,
                });
            }
        }
    }
}
