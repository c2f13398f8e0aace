//! Devices, their events, and their memory.

use std::panic::catch_unwind;

use ::abi::Status as AbiStatus;
use engine::{Event, Numbers, Placement, memory, platform};

use super::{guarded, note_line, placement, status};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_device_count() -> i32 {
    guarded(|| shown_devices().map(|count| count as i32)).unwrap_or(-1)
}

/// How many devices PyTorch shows. Opens the plugin, unless it is libtpu on a host with several chips: a process that
/// counts them may be one of several, or start others.
pub(crate) fn shown_devices() -> engine::Result<usize> {
    if let Some(shown) = Numbers::current().shown {
        return Ok(shown);
    }
    let mut engine = engine::lock()?;
    match (!engine.is_open()).then(platform::devices_of_host).flatten() {
        Some(count) => Ok(count),
        None => Ok(engine.platform()?.devices.len()),
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_first_device() -> i32 {
    catch_unwind(|| Numbers::current().first as i32).unwrap_or(0)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_is_available() -> u8 {
    u8::from(catch_unwind(platform::is_available).unwrap_or(false))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_is_initialized() -> u8 {
    u8::from(guarded(|| Ok(engine::lock()?.is_open())).unwrap_or(false))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_synchronize(device: i32) -> AbiStatus {
    status(|| {
        note_line();
        engine::synchronize(usize::try_from(device).ok().map(Placement::numbered).transpose()?)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_part_ranks(device: i32) -> AbiStatus {
    status(|| {
        note_line();
        engine::lock()?.part_ranks(placement(device)?)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_event_new(device: i32, is_timed: u8, event: *mut u64) -> AbiStatus {
    status(|| {
        note_line();
        let new = Box::new(Event::record(placement(device)?, is_timed != 0)?);
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
pub(super) unsafe extern "C" fn tt_event_query(handle: u64, done: *mut u8) -> AbiStatus {
    // SAFETY: the ABI promises a live event and a valid pointer for the result.
    status(|| unsafe {
        *done = u8::from(event(handle).is_done()?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_event_wait(handle: u64) -> AbiStatus {
    status(|| {
        // SAFETY: the ABI promises a live event.
        unsafe { event(handle) }.wait().map(drop)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_event_elapsed(start: u64, end: u64, milliseconds: *mut f64) -> AbiStatus {
    // SAFETY: the ABI promises live events and a valid pointer for the result.
    status(|| unsafe {
        *milliseconds = event(start).milliseconds_until(event(end))?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_event_release(handle: u64) {
    if handle != 0 {
        // SAFETY: the caller releases the event, once.
        drop(unsafe { Box::from_raw(handle as *mut Event) });
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_memory(device: i32, out: *mut ::abi::Memory) -> AbiStatus {
    status(|| {
        let placement = placement(device)?;
        let used = memory::memory_use(placement);
        let (free, total) = engine::lock()?.platform()?.memory(placement.device())?;
        let filled = ::abi::Memory {
            allocated: used.bytes.current,
            peak_allocated: used.bytes.peak,
            total_allocated: used.bytes.total,
            total_freed: used.bytes.total_freed,
            live: used.storages.current,
            peak_live: used.storages.peak,
            total_live: used.storages.total,
            total_released: used.storages.total_freed,
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
pub(super) unsafe extern "C" fn tt_take_refused(device: i32) -> i64 {
    guarded(|| Ok(memory::take_refused(placement(device)?))).unwrap_or_default() as i64
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_reset_peak_memory(device: i32) -> AbiStatus {
    status(|| {
        memory::reset_peak(placement(device)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_reset_memory_totals(device: i32) -> AbiStatus {
    status(|| {
        memory::reset_totals(placement(device)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_empty_cache() -> AbiStatus {
    status(|| {
        engine::lock()?.empty_cache();
        Ok(())
    })
}
