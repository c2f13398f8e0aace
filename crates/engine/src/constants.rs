//! Small results that follow from no data, such as the ones with which the gradient of a loss begins: they are the same
//! in every step, so they are made once.

use std::sync::Arc;

use aten::ParamSource;
use pjrt::Buffer;
use rustc_hash::FxHashMap;

use crate::call::Out;
use crate::instance::{Instance, ResultPlan};
use crate::key::CallParts;
use crate::storage::{Storage, Value, ValueState};

/// What a value takes at most, in bytes, whose buffer others may share. No program is given the memory of such a value:
/// were it, one that takes a shared buffer would have to be another program.
pub(crate) const SMALL: usize = 4096;

/// How many results are kept: with all of them this small, a few megabytes.
const KEPT: usize = 1024;

/// The values of calls' results, by what decides them.
#[derive(Default)]
pub(crate) struct Constants {
    known: FxHashMap<Box<[u64]>, Box<[Arc<Value>]>>,
}

impl Constants {
    /// The buffers of a call's results, unless one is still to be made or is lost.
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

/// What decides the results of a call that takes nothing but numbers.
pub(crate) fn key_of(instance: &Instance, device: usize, parts: &CallParts) -> Vec<u64> {
    let mut key = vec![u64::from(instance.id), device as u64];
    for param in instance.params() {
        match *param {
            ParamSource::Scalar { index, .. } => key.extend(parts.scalars[index].bits()),
            ParamSource::Offset(index) => key.push(parts.offsets[index] as u64),
            ParamSource::Storage(_) | ParamSource::RandomState => {}
        }
    }
    key
}

/// The values that a call's results have just got.
pub(crate) fn written(instance: &Instance, parts: &CallParts, outs: &[Out]) -> Option<Box<[Arc<Value>]>> {
    let mut outs = outs.iter();
    let storage_of = |plan: &ResultPlan| match plan {
        ResultPlan::Updated { storage, .. } => Some(parts.storages[*storage]),
        _ => Some(outs.next()?.storage()),
    };
    // SAFETY: the storages are those of the call's arguments and results, alive during the call.
    let value_of = |storage: *const Storage| unsafe { &*storage }.value();
    instance.outputs.iter().map(storage_of).map(|storage| value_of(storage?)).collect()
}

/// Gives a call the results that are known. Each has a value of its own: two storages with one would be one input of
/// whatever takes both, and so another program.
pub(crate) fn write(
    buffers: Vec<Arc<Buffer>>,
    instance: &Instance,
    device: usize,
    parts: &CallParts,
    outs: &mut [Out],
) {
    let mut outs = outs.iter_mut();
    for (plan, buffer) in instance.outputs.iter().zip(buffers) {
        let value = |ty| Value::new(ty, ValueState::Ready(buffer));
        match plan {
            ResultPlan::Updated { storage, ty } => {
                // SAFETY: as for `written`.
                unsafe { &*parts.storages[*storage] }.set_value(Some(value(*ty)));
            }
            ResultPlan::Fresh(result) => {
                if let Some(out) = outs.next() {
                    *out = result.out(device, value(result.ty));
                }
            }
            ResultPlan::Absent | ResultPlan::Count { .. } | ResultPlan::Check(_) => {}
        }
    }
}
