//! A chunk that is due because of its last call: what the call returns after the run, and how to undo it.

use std::cell::RefCell;
use std::sync::Arc;

use stablehlo::Type;

use super::chunk::Chunk;
use super::reason::Reason;
use crate::call::{self, Out};
use crate::error::{Error, Result};
use crate::growth::Growth;
use crate::padded::{LiveSizes, Padded};
use crate::registry::key::CallParts;
use crate::registry::layout::Layout;
use crate::storage::{Storage, Value};
use crate::{invented, lines};

/// Why a chunk runs now, and its last call.
pub(crate) struct Due {
    pub reason: Reason,
    /// The number of fresh results of the call.
    pub fresh: usize,
    /// The storages that the call has written to, by number, with their old values.
    pub replaced: Vec<(usize, Replaced)>,
    /// The sizes of results that depend on the data.
    pub counts: Vec<Count>,
}

/// The old value of a written argument, to restore if the call fails. An input of the chunk is stored by number,
/// because another reference to it would prevent donation.
pub(crate) enum Replaced {
    Input(u32),
    Value(Option<Arc<Value>>, Option<Arc<Padded>>),
}

impl Replaced {
    pub fn new((old, padded): (Option<Arc<Value>>, Option<Arc<Padded>>), chunk: &Chunk) -> Replaced {
        match old.as_ref().and_then(|value| chunk.input_index(value)) {
            Some(index) => Replaced::Input(index),
            None => Replaced::Value(old, padded),
        }
    }
}

/// A size of a result that depends on the data.
pub(crate) struct Count {
    pub fresh: usize,
    pub axis: usize,
    /// The sizes of other dimensions that are less than the largest.
    pub others: Vec<(usize, i64)>,
    pub number: Arc<Value>,
}

impl Due {
    /// Sets the sizes of results that depend on the data. Their storages have the largest possible size. As long as they live,
    /// other values of such a size have its capacity.
    ///
    /// # Safety
    /// `is_dry` only if the call ran on a dry device.
    pub unsafe fn show_sizes(&self, outs: &mut [Out], is_dry: bool, growth: &mut Growth) -> Result<()> {
        thread_local! {
            // The caller reads this directly after the call.
            static SHOWN: RefCell<Vec<[Vec<i64>; 2]>> = const { RefCell::new(Vec::new()) };
        }
        if self.counts.is_empty() {
            return Ok(());
        }
        SHOWN.with_borrow_mut(|kept| {
            kept.clear();
            for Count { fresh, axis, others, number } in &self.counts {
                let out = &mut outs[*fresh];
                // SAFETY: `sizes` and `strides` point to `ndim` numbers of the instance.
                let (largest, room) = unsafe {
                    let (ndim, slice) = (out.ndim as usize, std::slice::from_raw_parts);
                    (slice(out.sizes, ndim), slice(out.strides, ndim))
                };
                let (mut sizes, mut strides) = (largest.to_vec(), room.to_vec());
                others.iter().for_each(|&(other, size)| sizes[other] = size);
                let Some(size) = sizes.get_mut(*axis) else {
                    return Err(Error::runtime("internal error: a counted result without dimensions"));
                };
                // SAFETY: `is_dry` says that the value is one of a dry device.
                *size = if is_dry { unsafe { invented::size(number, *size) }? } else { number.read_i64()? };
                // SAFETY: the plan of the result has stored its storage.
                if let Some(storage) = unsafe { out.storage().as_ref() } {
                    let size = sizes[*axis];
                    // A whole dimension's size is one of other values, which stays.
                    let is_part = !largest.contains(&size);
                    let live =
                        is_part.then(|| LiveSizes::of_count(size, growth.counted(lines::noted(), largest, size)));
                    storage.set_counted(live.unwrap_or_default());
                }
                if !is_dry && aten::memory_order(largest, room).is_some() {
                    strides = make_dense(out, [largest, room], &sizes, *axis)?;
                }
                kept.push([sizes, strides]);
                let [sizes, strides] = &kept[kept.len() - 1];
                (out.sizes, out.strides) = (sizes.as_ptr(), strides.as_ptr());
            }
            Ok(())
        })
    }

    /// Undoes a failed call: drops its results and restores the old values of its arguments. `inputs` are the inputs
    /// of the chunk that failed, if any.
    pub fn undo(self, parts: &CallParts, inputs: &[Arc<Value>], outs: &[Out]) {
        outs[..self.fresh].iter().for_each(Out::release);
        for (i, old) in self.replaced {
            let storage = parts.storage(i);
            if storage.held().is_some_and(|value| value.is_failed()) {
                match old {
                    Replaced::Input(index) => storage.restore(inputs.get(index as usize).cloned(), None),
                    Replaced::Value(value, padded) => storage.restore(value, padded),
                }
            }
        }
    }
}

/// Makes a result of these sizes dense, and returns its strides. Its memory has the `largest` sizes, with the strides
/// `room`. Dimension `axis` is the one whose size the data decide.
fn make_dense(out: &mut Out, [largest, room]: [&[i64]; 2], sizes: &[i64], axis: usize) -> Result<Vec<i64>> {
    // `memory_order` puts a dimension of size 1 beside the one before it. The stride says where it is: within a dimension of
    // the same stride.
    let mut order: Vec<usize> = (0..room.len()).collect();
    order.sort_by_key(|&axis| (std::cmp::Reverse(room[axis]), largest[axis] == 1));
    let outside: Vec<usize> = order.iter().copied().take_while(|&place| place != axis).collect();
    let mut strides = aten::dense_strides(sizes, &order);
    if sizes[axis] == 0 && !order.is_sorted() {
        // As PyTorch has it. In row-major order, an empty dimension counts as one of size 1.
        outside.iter().for_each(|&place| strides[place] = 0);
    }
    let dtype = call::tensor_dtype(out.dtype)?;
    // A user of the whole storage, such as a nested tensor, must get no more elements than the result has.
    out.nbytes = sizes.iter().product::<i64>() as usize * dtype.size_bytes();
    let innermost = order.iter().rposition(|&place| sizes[place] != largest[place]).unwrap_or(0);
    if order[..innermost].iter().any(|&place| sizes[place] > 1) && out.nbytes > 0 {
        show_part(out, &Layout::in_order(&Type::new(dtype, largest), sizes, order));
    }
    Ok(strides)
}

/// Replaces the storage of a result by one whose value is a part of the old value.
fn show_part(out: &mut Out, layout: &Layout) {
    // SAFETY: the call stored its own reference there, and nothing has taken it.
    let whole = unsafe { Arc::from_raw(out.storage()) };
    let part = whole.held().map(|value| layout.padded(whole.placement, value));
    out.set_storage(match part {
        Some(part) => Storage::with_padded(whole.placement, out.nbytes, part),
        None => whole,
    });
}
