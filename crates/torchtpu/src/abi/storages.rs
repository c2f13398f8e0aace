//! Storages, and copies between them and the host.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use ::abi::Status as AbiStatus;
use engine::{Storage, memory, pinned};

use super::{guarded, list_mut, note_line, placement, status, tensor};
use crate::location;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_storage_new(
    device: i32,
    nbytes: usize,
    storage: *mut *mut c_void,
    data: *mut *mut c_void,
) -> AbiStatus {
    status(|| {
        engine::fork_guard()?;
        let placement = placement(device)?;
        memory::check_capacity(placement, nbytes)?;
        let new = Storage::new(placement, nbytes);
        // SAFETY: the ABI provides valid pointers for both results.
        unsafe {
            *data = new.address() as *mut c_void;
            *storage = Arc::into_raw(new).cast_mut().cast();
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_storage_release(storage: *mut c_void) {
    // In a forked child the plugin's threads are gone: its buffers must not be touched.
    if !storage.is_null() && !engine::in_bad_fork() {
        let _ = guarded(|| {
            // SAFETY: the caller releases its reference, once.
            drop(unsafe { Arc::from_raw(storage.cast_const().cast::<Storage>()) });
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_storage_described(
    storage: *const c_void,
    nbytes: *mut usize,
    device: *mut i32,
    data: *mut *mut c_void,
) {
    if engine::in_bad_fork() {
        return;
    }
    let _ = guarded(|| {
        // SAFETY: the ABI promises a live storage and valid pointers for the results.
        unsafe {
            let storage = &*storage.cast::<Storage>();
            *nbytes = storage.nbytes();
            *device = storage.placement.number() as i32;
            *data = storage.address() as *mut c_void;
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_storage_at(data: *const c_void, byte_offset: *mut usize) -> *mut c_void {
    let found = guarded(|| Ok(Storage::at_address(data as usize))).ok().flatten();
    let Some((storage, offset)) = found else { return std::ptr::null_mut() };
    // SAFETY: the ABI provides a valid pointer for the result.
    unsafe { *byte_offset = offset };
    Arc::as_ptr(&storage).cast_mut().cast()
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_storage_resize(
    storage: *mut c_void,
    nbytes: usize,
    data: *mut *mut c_void,
) -> AbiStatus {
    status(|| {
        // SAFETY: the ABI promises a live storage and a valid pointer for the result.
        let storage = unsafe { &*storage.cast_const().cast::<Storage>() };
        memory::check_capacity(storage.placement, nbytes)?;
        engine::lock()?.resize(storage, nbytes)?;
        // SAFETY: see above.
        unsafe { *data = storage.address() as *mut c_void };
        Ok(())
    })
}

/// Calls `release` when dropped, because the host data is no longer used.
struct HostData {
    owner: *mut c_void,
    release: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the ABI allows `release` from any thread.
unsafe impl Send for HostData {}

impl Drop for HostData {
    fn drop(&mut self) {
        // SAFETY: the ABI requires this call exactly once.
        unsafe { (self.release)(self.owner) };
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_copy_from_host(
    destination: *const ::abi::Tensor,
    data: *const c_void,
    owner: *mut c_void,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
) -> AbiStatus {
    status(|| {
        let owner = match release {
            Some(release) if !owner.is_null() => Some(Box::new(HostData { owner, release }) as Box<dyn Any + Send>),
            _ => None,
        };
        let line = if engine::growth::is_on() { location::of_upload() } else { None };
        if line.is_none() {
            note_line();
        }
        // SAFETY: the ABI promises the tensor, and the data for as long as the contract asks.
        unsafe { engine::lock()?.copy_from_host(tensor(destination), data.cast(), owner, line) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_copy_to_host(
    source: *const ::abi::Tensor,
    data: *mut c_void,
    nbytes: usize,
) -> AbiStatus {
    status(|| {
        note_line();
        // SAFETY: the ABI promises the tensor and room for `nbytes`.
        unsafe { engine::copy_to_host(tensor(source), list_mut(data.cast(), nbytes)) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_copy_across(
    source: *const ::abi::Tensor,
    destination: *const ::abi::Tensor,
) -> AbiStatus {
    status(|| {
        note_line();
        // SAFETY: the ABI promises both tensors.
        unsafe { engine::lock()?.copy_across(tensor(source), tensor(destination)) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_copy_bytes(
    source: *const ::abi::Tensor,
    destination: *const ::abi::Tensor,
    is_done: *mut u8,
) -> AbiStatus {
    status(|| {
        note_line();
        // SAFETY: the ABI promises both tensors, and a valid pointer for the result.
        unsafe { *is_done = u8::from(engine::copy_bytes(tensor(source), tensor(destination))?) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_take_type(of: *const ::abi::Tensor) -> AbiStatus {
    status(|| {
        note_line();
        // SAFETY: the ABI promises the tensor.
        unsafe { engine::take_type(tensor(of)) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_pinned_new(nbytes: usize, data: *mut *mut c_void) -> AbiStatus {
    status(|| {
        let block = pinned::allocate(nbytes)?;
        // SAFETY: the ABI provides a valid pointer for the result.
        unsafe { *data = block.cast() };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_pinned_release(data: *mut c_void) {
    // SAFETY: the ABI promises that nothing uses the memory any more.
    unsafe { pinned::release(data.cast()) };
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_is_pinned(data: *const c_void) -> u8 {
    u8::from(pinned::contains(data.cast()))
}
