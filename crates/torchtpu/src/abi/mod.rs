//! The functions of `csrc/abi.h`. No panic leaves them: it becomes an error of the call.

mod devices;
mod operators;
mod storages;

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use ::abi::Status as AbiStatus;
use engine::call::TensorArg;
use engine::{Error, ErrorKind, Placement, Result};

pub(crate) use self::devices::shown_devices;
use self::devices::{
    tt_device_count, tt_empty_cache, tt_event_elapsed, tt_event_new, tt_event_query, tt_event_release, tt_event_wait,
    tt_first_device, tt_is_available, tt_is_initialized, tt_memory, tt_part_ranks, tt_reset_memory_totals,
    tt_reset_peak_memory, tt_synchronize, tt_take_refused,
};
use self::operators::{
    tt_call, tt_check_dtype, tt_define, tt_fall_back, tt_locate_last_call, tt_note_line, tt_note_scope,
    tt_owner_of_kernel, tt_prepare, tt_register_operator, tt_result_metas, tt_set_default_dtype,
    tt_set_matmul_precision, tt_shapes_like, tt_wants_line, tt_wants_scope,
};
use self::storages::{
    tt_copy_across, tt_copy_bytes, tt_copy_from_host, tt_copy_to_host, tt_is_pinned, tt_pinned_new, tt_pinned_release,
    tt_storage_at, tt_storage_described, tt_storage_new, tt_storage_release, tt_storage_resize, tt_take_type,
};
use crate::jobs::{
    tt_close_group, tt_close_lane, tt_finish_lanes, tt_is_synchronous, tt_open_group, tt_open_lane, tt_post_job,
    tt_run_collective, tt_ticket_release, tt_ticket_state, tt_ticket_wait,
};
use crate::location;
use crate::profiler::{tt_profile_begin, tt_profile_end, tt_profile_enter, tt_profile_leave};

/// Checks at compile time that each function of the core has the type declared in `csrc/abi.h`.
macro_rules! check_signatures {
    ($($name:ident),*) => { $(const _: () = { let _ = [::abi::$name, $name]; };)* };
}
::abi::for_each_export!(check_signatures);

thread_local! {
    static LAST_ERROR: RefCell<(::abi::Error, String)> = const {
        let none = ::abi::Error { kind: ErrorKind::Runtime, message: std::ptr::null(), length: 0 };
        RefCell::new((none, String::new()))
    };
}

fn remember(error: &Error) {
    LAST_ERROR.with_borrow_mut(|(abi, message)| {
        message.clone_from(&error.message);
        *abi = ::abi::Error { kind: error.kind, message: message.as_ptr().cast(), length: message.len() };
    });
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("internal error: {}", text.unwrap_or("a panic without a message"))
}

/// Runs `f`. Keeps its error or panic for `tt_last_error`.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T>) -> std::result::Result<T, ()> {
    let result =
        catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(Error::runtime(panic_message(panic.as_ref()))));
    result.map_err(|error| remember(&error))
}

pub(crate) fn status(f: impl FnOnce() -> Result<()>) -> AbiStatus {
    if guarded(f).is_ok() { AbiStatus::Ok } else { AbiStatus::Error }
}

pub(crate) fn placement(device: i32) -> Result<Placement> {
    let device = usize::try_from(device).map_err(|_| Error::runtime(format!("invalid device index {device}")))?;
    Placement::numbered(device)
}

/// # Safety
/// `pointer` points to `length` values that live as long as the call, or `length` is zero.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, length: usize) -> &'a [T] {
    // SAFETY: guaranteed by the caller.
    if length == 0 { &[] } else { unsafe { slice::from_raw_parts(pointer, length) } }
}

/// # Safety
/// As for [`list`], and there is no other reference to the values during the call.
unsafe fn list_mut<'a, T>(pointer: *mut T, length: usize) -> &'a mut [T] {
    // SAFETY: guaranteed by the caller.
    if length == 0 { &mut [] } else { unsafe { slice::from_raw_parts_mut(pointer, length) } }
}

/// # Safety
/// `text` is a C string that lives as long as the call.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> std::borrow::Cow<'a, str> {
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(text) }.to_string_lossy()
}

/// # Safety
/// `tensor` is a live tensor of this backend.
unsafe fn tensor<'a>(tensor: *const ::abi::Tensor) -> &'a TensorArg {
    // SAFETY: guaranteed by the caller; `TensorArg` has the layout of the type that it wraps.
    unsafe { &*tensor.cast() }
}

/// # Safety
/// `tensors` points to `length` live tensors of this backend, or `length` is zero.
pub(crate) unsafe fn tensor_list<'a>(tensors: *const ::abi::Tensor, length: usize) -> &'a [TensorArg] {
    // SAFETY: guaranteed by the caller; `TensorArg` has the layout of the type that it wraps.
    unsafe { list(tensors.cast(), length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_last_error() -> *const ::abi::Error {
    LAST_ERROR.with_borrow(|(abi, _)| std::ptr::from_ref(abi))
}

/// Sets the line of the caller, if the engine has requested lines.
pub(crate) fn note_line() {
    if engine::lines::wanted() {
        location::note();
    }
}
