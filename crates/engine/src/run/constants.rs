//! Small results that depend on no data, such as the initial gradient of a loss. They are the same in every step, so
//! they are computed once.

use std::sync::Arc;

use aten::ParamSource;
use pjrt::Buffer;
use rustc_hash::FxHashMap;

use crate::call::Out;
use crate::placement::Placement;
use crate::registry::instance::{Instance, ResultPlan};
use crate::registry::key::CallParts;
use crate::storage::{Value, ValueState};

/// The number of results to keep: a few megabytes, because all are small.
const KEPT: usize = 1024;

/// The values of calls' results, by key.
#[derive(Default)]
pub(crate) struct Constants {
    known: FxHashMap<Box<[u64]>, Box<[Arc<Value>]>>,
}

impl Constants {
    /// The buffers of a call's results. `None` if one is not ready or failed.
    pub fn get(&self, key: &[u64]) -> Option<Vec<Arc<Buffer>>> {
        self.known.get(key)?.iter().map(|value| value.buffer().ok()).collect()
    }

    pub fn insert(&mut self, key: Vec<u64>, values: Box<[Arc<Value>]>) {
        if self.known.len() >= KEPT {
            self.known.clear();
        }
        self.known.insert(key.into_boxed_slice(), values);
    }

    pub fn clear(&mut self) {
        self.known.clear();
    }
}

/// The key of the results of a call that only takes numbers.
pub(crate) fn key_of(instance: &Instance, placement: Placement, parts: &CallParts) -> Vec<u64> {
    let mut key = vec![u64::from(instance.id), placement.device() as u64];
    for param in instance.params() {
        match *param {
            ParamSource::Scalar { index, .. } => key.extend(parts.scalars[index].bits()),
            ParamSource::Offset(index) => key.push(parts.offsets[index] as u64),
            ParamSource::Storage(_) | ParamSource::Size(_) | ParamSource::RandomState => {}
        }
    }
    key
}

/// The values of the results that a call has just written.
pub(crate) fn written(instance: &Instance, parts: &CallParts, outs: &[Out]) -> Option<Box<[Arc<Value>]>> {
    let mut outs = outs.iter();
    let value_of = |plan: &ResultPlan| match plan {
        ResultPlan::Updated { storage, .. } => parts.storage(*storage).value(),
        // SAFETY: the call has just stored a storage there and owns a reference to it.
        _ => unsafe { &*outs.next()?.storage() }.value(),
    };
    instance.outputs.iter().map(value_of).collect()
}

/// Gives a call its known results. Each gets its own value: two storages with the same value would be one input of a
/// program that takes both, which would be a different program.
pub(crate) fn write(
    buffers: Vec<Arc<Buffer>>,
    instance: &Instance,
    placement: Placement,
    parts: &CallParts,
    outs: &mut [Out],
) {
    let mut outs = outs.iter_mut();
    for (plan, buffer) in instance.outputs.iter().zip(buffers) {
        let value = |ty| Value::new(ty, ValueState::Ready(buffer));
        match plan {
            ResultPlan::Updated { storage, ty, .. } => {
                parts.storage(*storage).set_value(Some(value(*ty)));
            }
            ResultPlan::Fresh(result) => {
                if let Some(out) = outs.next() {
                    *out = result.out(placement, value(result.ty));
                }
            }
            ResultPlan::Absent | ResultPlan::Count { .. } | ResultPlan::Check { .. } => {}
        }
    }
}
