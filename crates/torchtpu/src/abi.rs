//! The functions of `csrc/abi.h`. No panic leaves them: it becomes an error of the call.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::Arc;

use ::abi::Status as AbiStatus;
use aten::layouts::{self, Layout, Owner};
use engine::call::{Arg, Generator, Meta, Out, Tag, TensorArg};
use engine::{
    Defined, Error, ErrorKind, Event, Placement, Reason, Result, SchemaArg, Status, Storage, memory, platform,
};
use stablehlo::{Number, Precision};

use crate::jobs::{
    tt_close_lane, tt_finish_lanes, tt_is_synchronous, tt_open_lane, tt_post_job, tt_ticket_release, tt_ticket_state,
    tt_ticket_wait,
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
    Ok(Placement::on(device))
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

// ---- operators -----------------------------------------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_register_operator(
    name: *const c_char,
    functional: *const c_char,
    args: *mut ::abi::SchemaArg,
    n_args: usize,
    has_row: *mut u8,
) -> i32 {
    let registered = guarded(|| {
        // SAFETY: the ABI promises live C strings and `n_args` arguments.
        let (name, functional, given) = unsafe { (text(name), text(functional), list(args, n_args)) };
        let described: Vec<SchemaArg> = given.iter().map(schema_arg).collect();
        let mut engine = engine::lock()?;
        let registered = engine.register(&name, &functional, &described);
        for &position in registered.mutated {
            // SAFETY: the position is that of one of the arguments, which the ABI lets us change.
            unsafe { (*args.add(position)).is_mutated = 1 };
        }
        Ok((registered.id, registered.has_row))
    });
    let Ok((id, row)) = registered else { return -1 };
    // SAFETY: the ABI provides a valid pointer for the result.
    unsafe { *has_row = u8::from(row) };
    id as i32
}

fn schema_arg(arg: &::abi::SchemaArg) -> SchemaArg {
    let default = (arg.has_default != 0).then_some(arg.default_tag).and_then(|tag| match tag {
        Tag::Int => Some(Number::Int(arg.default_value as i64)),
        Tag::Float => Some(Number::Float(arg.default_value)),
        Tag::Bool => Some(Number::Bool(arg.default_value != 0.0)),
        _ => None,
    });
    // SAFETY: the ABI promises live C strings.
    let (name, ty) = unsafe { (text(arg.name).into_owned(), text(arg.type_).into_owned()) };
    SchemaArg { name, ty, is_mutated: arg.is_mutated != 0, is_out: arg.is_out != 0, default }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_call(
    op: i32,
    args: *const ::abi::Arg,
    n_args: usize,
    device: i32,
    default_generator: *mut Generator,
    outs: *mut ::abi::Out,
    n_outs: *mut usize,
) -> AbiStatus {
    let called = guarded(|| {
        // SAFETY: the ABI promises these; the generator is locked by the caller or null.
        let (args, outs, generator) = unsafe {
            (list(args.cast::<Arg>(), n_args), list_mut(outs.cast::<Out>(), *n_outs), default_generator.as_mut())
        };
        engine::lock()?.call(op as u32, args, placement(device)?, generator, outs)
    });
    let Ok(called) = called else { return AbiStatus::Error };
    let (status, count) = match called {
        Status::Done(count) => (AbiStatus::Ok, count),
        Status::NeedsRoom(count) => (AbiStatus::NeedsRoom, count),
        Status::NewKey => (AbiStatus::NewKey, 0),
        Status::OtherSizes => (AbiStatus::OtherSizes, 0),
        Status::Refused(error) => {
            remember(&error);
            (AbiStatus::Refused, 0)
        }
    };
    // SAFETY: the ABI promises a place for the count.
    unsafe { *n_outs = count };
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_wants_scope() -> u8 {
    u8::from(engine::scopes::is_open())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_note_scope(scope: u64) {
    engine::scopes::set_caller(scope);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_wants_line() -> u8 {
    u8::from(engine::lines::wanted())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_note_line() {
    let _ = guarded(|| {
        location::note();
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_locate_last_call(device: i32) {
    let _ = guarded(|| {
        location::note();
        engine::lock()?.locate_last_call(placement(device)?);
        Ok(())
    });
}

/// Sets the line of the caller, if the engine has requested lines.
pub(crate) fn note_line() {
    if engine::lines::wanted() {
        location::note();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_result_metas(
    op: i32,
    args: *const ::abi::Arg,
    n_args: usize,
    metas: *mut Meta,
    n_metas: *mut usize,
) -> AbiStatus {
    let found = guarded(|| {
        // SAFETY: the ABI promises `n_args` arguments.
        Ok(engine::lock()?.result_sizes(op as u32, unsafe { list(args.cast::<Arg>(), n_args) }))
    });
    let Ok(found) = found else { return AbiStatus::Error };
    // SAFETY: the ABI promises room for `*n_metas` and a place for the count.
    unsafe {
        for (place, meta) in list_mut(metas, *n_metas).iter_mut().zip(&found) {
            *place = *meta;
        }
        *n_metas = found.len();
    }
    AbiStatus::Ok
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_define(
    op: i32,
    args: *const ::abi::Arg,
    n_args: usize,
    metas: *const Meta,
    n_metas: usize,
    graph: u64,
    follows_precision: *mut u8,
) -> AbiStatus {
    let defined = guarded(|| {
        // SAFETY: the ABI promises `n_args` arguments, and `n_metas` results unless `metas` is null.
        let (args, metas) =
            unsafe { (list(args.cast::<Arg>(), n_args), (!metas.is_null()).then(|| list(metas, n_metas))) };
        let mut engine = engine::lock()?;
        let status = engine.define(op as u32, args, metas, graph)?;
        // SAFETY: the ABI provides a valid pointer for the result.
        unsafe { *follows_precision = u8::from(engine.follows_precision(op as u32)) };
        Ok(status)
    });
    match defined {
        Ok(Defined::NoRow) => AbiStatus::NoRow,
        Ok(Defined::Lowered) => AbiStatus::Ok,
        Err(()) => AbiStatus::Error,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_set_matmul_precision(precision: ::abi::Precision) {
    let _ = guarded(|| {
        engine::lock()?.set_precision(match precision {
            ::abi::Precision::Default => Precision::Default,
            ::abi::Precision::High => Precision::High,
            ::abi::Precision::Highest => Precision::Highest,
        });
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_set_default_dtype(scalar_type: i8) {
    let _ = guarded(|| {
        engine::lock()?.set_default_dtype(engine::call::tensor_dtype(scalar_type)?);
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_check_dtype(scalar_type: i8) -> AbiStatus {
    status(|| engine::call::tensor_dtype(scalar_type).map(|_| ()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_shapes_like(name: *const c_char, length: *mut usize) -> *const c_char {
    // SAFETY: the ABI promises a live C string.
    let found = guarded(|| Ok(aten::table::shapes_like(&unsafe { text(name) })));
    let Ok(Some(like)) = found else { return std::ptr::null() };
    // SAFETY: the ABI promises a place for the length.
    unsafe { *length = like.len() };
    like.as_ptr().cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_owner_of_kernel(layout: Layout, name: *const c_char) -> Owner {
    // SAFETY: the ABI promises a live C string.
    guarded(|| Ok(layouts::owner(layout, &unsafe { text(name) }))).unwrap_or(Owner::Other)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_count_fallback(op: i32) {
    let _ = guarded(|| {
        engine::lock()?.count_fallback(op as u32);
        Ok(())
    });
}

// ---- storages ------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_storage_new(
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
unsafe extern "C" fn tt_storage_release(storage: *mut c_void) {
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
unsafe extern "C" fn tt_storage_at(data: *const c_void, byte_offset: *mut usize) -> *mut c_void {
    let found = guarded(|| Ok(Storage::at_address(data as usize))).ok().flatten();
    let Some((storage, offset)) = found else { return std::ptr::null_mut() };
    // SAFETY: the ABI provides a valid pointer for the result.
    unsafe { *byte_offset = offset };
    Arc::as_ptr(&storage).cast_mut().cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_storage_resize(storage: *mut c_void, nbytes: usize, data: *mut *mut c_void) -> AbiStatus {
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
unsafe extern "C" fn tt_copy_from_host(
    destination: *const ::abi::Tensor,
    data: *const c_void,
    _nbytes: usize,
    may_borrow: u8,
    owner: *mut c_void,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
) -> AbiStatus {
    status(|| {
        let owner = match release {
            Some(release) if may_borrow != 0 => Some(Box::new(HostData { owner, release }) as Box<dyn Any + Send>),
            _ => None,
        };
        note_line();
        // SAFETY: the ABI promises the tensor, and the data for as long as the contract asks.
        unsafe { engine::lock()?.copy_from_host(tensor(destination), data.cast(), owner) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_copy_to_host(source: *const ::abi::Tensor, data: *mut c_void, nbytes: usize) -> AbiStatus {
    status(|| {
        note_line();
        // SAFETY: the ABI promises the tensor and room for `nbytes`.
        unsafe { engine::copy_to_host(tensor(source), list_mut(data.cast(), nbytes)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_copy_across(source: *const ::abi::Tensor, destination: *const ::abi::Tensor) -> AbiStatus {
    status(|| {
        note_line();
        // SAFETY: the ABI promises both tensors.
        unsafe { engine::lock()?.copy_across(tensor(source), tensor(destination)) }
    })
}

// ---- devices -------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_device_count() -> i32 {
    guarded(|| Ok(engine::lock()?.platform()?.devices.len() as i32)).unwrap_or(-1)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_is_available() -> u8 {
    u8::from(catch_unwind(platform::is_available).unwrap_or(false))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_is_initialized() -> u8 {
    u8::from(guarded(|| Ok(engine::lock()?.is_open())).unwrap_or(false))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_synchronize(device: i32) -> AbiStatus {
    status(|| {
        note_line();
        engine::synchronize(usize::try_from(device).ok().map(Placement::on))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_flush() -> AbiStatus {
    status(|| {
        note_line();
        engine::lock()?.flush_all(Reason::Synchronize)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_event_new(device: i32, event: *mut u64) -> AbiStatus {
    status(|| {
        note_line();
        let new = Box::new(Event::record(placement(device)?)?);
        // SAFETY: the ABI provides a valid pointer for the result.
        unsafe { *event = Box::into_raw(new) as u64 };
        Ok(())
    })
}

/// # Safety
/// `event` came from `tt_event_new` and has not been released.
unsafe fn event<'a>(event: u64) -> &'a Event {
    // SAFETY: guaranteed by the caller.
    unsafe { &*(event as *const Event) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_event_query(handle: u64, done: *mut u8) -> AbiStatus {
    // SAFETY: the ABI promises a live event and a valid pointer for the result.
    status(|| unsafe {
        *done = u8::from(event(handle).is_done()?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_event_wait(handle: u64) -> AbiStatus {
    status(|| {
        // SAFETY: the ABI promises a live event.
        unsafe { event(handle) }.wait().map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_event_elapsed(start: u64, end: u64, milliseconds: *mut f64) -> AbiStatus {
    // SAFETY: the ABI promises live events and a valid pointer for the result.
    status(|| unsafe {
        *milliseconds = event(start).milliseconds_until(event(end))?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_event_release(handle: u64) {
    if handle != 0 {
        // SAFETY: the caller releases the event, once.
        drop(unsafe { Box::from_raw(handle as *mut Event) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_memory(device: i32, out: *mut ::abi::Memory) -> AbiStatus {
    status(|| {
        let placement = placement(device)?;
        let used = memory::memory_use(placement);
        let (free, total) = engine::lock()?.platform()?.memory(placement.device())?;
        let filled = ::abi::Memory {
            allocated: used.allocated,
            peak_allocated: used.peak_allocated,
            total_allocated: used.total_allocated,
            total_freed: used.total_freed,
            live: used.live,
            peak_live: used.peak_live,
            out_of_memory: used.out_of_memory,
            free: free as i64,
            total: total as i64,
        };
        // SAFETY: the ABI provides a valid pointer for the result.
        unsafe { *out = filled };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_reset_peak_memory(device: i32) -> AbiStatus {
    status(|| {
        memory::reset_peak(placement(device)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tt_empty_cache() -> AbiStatus {
    status(|| {
        engine::lock()?.empty_cache();
        Ok(())
    })
}
