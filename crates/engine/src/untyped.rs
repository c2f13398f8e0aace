//! The element types of storages that PyTorch copies as bytes.
//!
//! `copy.deepcopy`, `pickle` and `torch.load` copy the storage of a tensor as bytes, and then make a tensor of another type
//! on the copy. A value has one element type, and a program that reads it in another one converts it each time. So the
//! copy gets the type of its elements.

use stablehlo::{DType, Type};

use crate::call::TensorArg;
use crate::engine::{Engine, lock, lock_when_launched};
use crate::error::Result;
use crate::host::{copy_to_host, type_of};
use crate::record::reason::Reason;
use crate::registry::division::{Around, dims_around};
use crate::storage::{Storage, Value, ValueState};

/// Copies the bytes of a storage to another one of the same device, which takes the value with its type. Both tensors are
/// bytes. Returns false if one of them does not show its whole storage, or if the value has bytes as its elements.
///
/// # Errors
/// If the value could not be computed.
pub fn copy_bytes(source: &TensorArg, destination: &TensorArg) -> Result<bool> {
    let (from, to) = (source.storage(), destination.storage());
    if !shows_all_bytes(source) || !shows_all_bytes(destination) || from.nbytes() != to.nbytes() {
        return Ok(false);
    }
    let value = {
        let mut engine = lock()?;
        engine.unpad_storage(from)?;
        let Some(value) = from.value() else { return Ok(false) };
        if engine.registry.types.get(value.ty).dtype == DType::U8 {
            return Ok(false);
        }
        value
    };
    lock_when_launched(from.placement, Reason::Read)?.1?;
    // A value belongs to one storage. The two values have one buffer, which is not donated then.
    let buffer = value.buffer()?;
    to.set_value(Some(Value::new(value.ty, ValueState::Ready(buffer))));
    Ok(true)
}

/// Gives a value whose elements are bytes the element type of a tensor that shows it and has elements, by way of the host. It
/// then has the tensor's dimensions, in the order of memory.
///
/// # Errors
/// If the value could not be computed.
pub fn take_type(tensor: &TensorArg) -> Result<()> {
    let storage = tensor.storage();
    let Ok(ty) = type_of(tensor) else { return Ok(()) };
    let element = ty.dtype.size_bytes();
    let is_dry = {
        let engine = lock()?;
        if ty.dtype == DType::U8 || storage.nbytes() % element != 0 || !engine.has_bytes(storage) {
            return Ok(());
        }
        engine.is_dry()
    };
    let mut bytes = vec![0; storage.nbytes()];
    if !is_dry {
        copy_to_host(&TensorArg::new(storage, &[bytes.len() as i64], &[1], 0, DType::U8), &mut bytes)?;
    }
    let numel = (bytes.len() / element) as i64;
    let dim = |dim: Around| match dim {
        Around::Shown(axis) => ty.dims[axis],
        Around::Other(size) => size,
    };
    let dims = dims_around(&ty.dims, tensor.strides(), numel).map(|dims| dims.into_iter().map(dim).collect());
    let dims: Vec<i64> = dims.unwrap_or_else(|| vec![numel]);
    let strides = aten::contiguous_strides(&dims);
    // SAFETY: the storage has as many bytes.
    unsafe {
        lock()?.copy_from_host(&TensorArg::new(storage, &dims, &strides, 0, ty.dtype), bytes.as_ptr(), None, None)
    }
}

fn shows_all_bytes(tensor: &TensorArg) -> bool {
    tensor.offset == 0 && tensor.strides() == [1] && tensor.sizes() == [tensor.storage().nbytes() as i64]
}

impl Engine {
    /// Whether a storage has a value whose elements are bytes in one dimension, as a copy of an untyped storage has.
    fn has_bytes(&self, storage: &Storage) -> bool {
        let Ok(base) = storage.base() else { return false };
        let Type { dtype, dims, .. } = self.registry.types.get(base);
        *dtype == DType::U8 && dims[..] == [storage.nbytes() as i64]
    }
}
