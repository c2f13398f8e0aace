//! Byte counts for each device, and the addresses of storages.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::error::{Error, ErrorKind, Result};
use crate::placement::Placement;

/// The largest number of devices of a process. PyTorch stores device numbers in a signed byte.
pub const MAX_DEVICES: usize = 127;

/// Bytes and counts of the live storages of one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUse {
    pub allocated: i64,
    pub peak_allocated: i64,
    pub total_allocated: i64,
    pub total_freed: i64,
    pub live: i64,
    pub peak_live: i64,
    pub total_live: i64,
    pub total_released: i64,
    pub out_of_memory: i64,
}

#[derive(Default)]
struct Counters {
    allocated: AtomicI64,
    peak_allocated: AtomicI64,
    total_allocated: AtomicI64,
    /// What was live when the totals were reset.
    allocated_at_reset: AtomicI64,
    live: AtomicI64,
    peak_live: AtomicI64,
    total_live: AtomicI64,
    live_at_reset: AtomicI64,
    out_of_memory: AtomicI64,
    /// The size of the device's memory; 0 if unknown.
    capacity: AtomicU64,
}

fn counters(placement: Placement) -> &'static Counters {
    static COUNTERS: OnceLock<Vec<Counters>> = OnceLock::new();
    &COUNTERS.get_or_init(|| (0..MAX_DEVICES).map(|_| Counters::default()).collect())[placement.device() % MAX_DEVICES]
}

/// Sets the size of a device's memory.
pub(crate) fn set_capacity(placement: Placement, bytes: u64) {
    counters(placement).capacity.store(bytes, Relaxed);
}

/// Checks that a device has at least this much memory.
///
/// # Errors
/// Out of memory if it has less.
pub fn check_capacity(placement: Placement, nbytes: usize) -> Result<()> {
    let capacity = counters(placement).capacity.load(Relaxed);
    if capacity == 0 || nbytes as u64 <= capacity {
        return Ok(());
    }
    count_out_of_memory(placement);
    Err(out_of_memory(placement, nbytes as u64, None))
}

/// The error for an allocation of `bytes`, when `free` bytes are left.
pub(crate) fn out_of_memory(placement: Placement, bytes: u64, free: Option<u64>) -> Error {
    let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
    let capacity = counters(placement).capacity.load(Relaxed);
    let free = free.map(|free| format!(" of which {} is free", gib(free))).unwrap_or_default();
    let message = format!(
        "tpu out of memory: tried to allocate {}. {placement} has a total capacity of {}{free}",
        gib(bytes),
        gib(capacity)
    );
    Error::new(ErrorKind::OutOfMemory, message)
}

pub(crate) fn count_allocation(placement: Placement, nbytes: usize) {
    let c = counters(placement);
    let now = c.allocated.fetch_add(nbytes as i64, Relaxed) + nbytes as i64;
    raise(&c.peak_allocated, now);
    c.total_allocated.fetch_add(nbytes as i64, Relaxed);
    let live = c.live.fetch_add(1, Relaxed) + 1;
    raise(&c.peak_live, live);
    c.total_live.fetch_add(1, Relaxed);
}

/// Raises a peak. Reads first, because the peak rarely rises and a write costs much more.
fn raise(peak: &AtomicI64, value: i64) {
    if peak.load(Relaxed) < value {
        peak.fetch_max(value, Relaxed);
    }
}

pub(crate) fn count_free(placement: Placement, nbytes: usize) {
    let c = counters(placement);
    c.allocated.fetch_sub(nbytes as i64, Relaxed);
    c.live.fetch_sub(1, Relaxed);
}

pub(crate) fn count_out_of_memory(placement: Placement) {
    counters(placement).out_of_memory.fetch_add(1, Relaxed);
}

/// The memory use of a device now.
pub fn memory_use(placement: Placement) -> MemoryUse {
    let c = counters(placement);
    let (allocated, total_allocated) = (c.allocated.load(Relaxed), c.total_allocated.load(Relaxed));
    let (live, total_live) = (c.live.load(Relaxed), c.total_live.load(Relaxed));
    MemoryUse {
        allocated,
        peak_allocated: c.peak_allocated.load(Relaxed),
        total_allocated,
        total_freed: c.allocated_at_reset.load(Relaxed) + total_allocated - allocated,
        live,
        peak_live: c.peak_live.load(Relaxed),
        total_live,
        total_released: c.live_at_reset.load(Relaxed) + total_live - live,
        out_of_memory: c.out_of_memory.load(Relaxed),
    }
}

/// Resets the peaks to the current use.
pub fn reset_peak(placement: Placement) {
    let c = counters(placement);
    c.peak_allocated.store(c.allocated.load(Relaxed), Relaxed);
    c.peak_live.store(c.live.load(Relaxed), Relaxed);
}

/// Resets the totals, and the count of failures, to zero.
pub fn reset_totals(placement: Placement) {
    let c = counters(placement);
    c.total_allocated.store(0, Relaxed);
    c.allocated_at_reset.store(c.allocated.load(Relaxed), Relaxed);
    c.total_live.store(0, Relaxed);
    c.live_at_reset.store(c.live.load(Relaxed), Relaxed);
    c.out_of_memory.store(0, Relaxed);
}

/// Addresses for `data_ptr()`. They are distinct, aligned, and never readable, so that a stray access faults instead
/// of corrupting memory. They come from a ring in one `PROT_NONE` reservation.
pub(crate) fn next_address(nbytes: usize) -> usize {
    if nbytes == 0 {
        return 0;
    }
    static RESERVATION: OnceLock<(usize, usize)> = OnceLock::new();
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let (base, size) = *RESERVATION.get_or_init(reserve);
    let length = nbytes.next_multiple_of(256);
    let start = NEXT.fetch_add(length, Relaxed) % size;
    // At the end of the ring, start again. Addresses need not be unique over the whole life of a process.
    base + if start + length > size { 0 } else { start }
}

fn reserve() -> (usize, usize) {
    for bits in [44, 42, 40, 36, 32] {
        let size = 1_usize << bits;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping without access rights touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0) };
        if base != libc::MAP_FAILED {
            return (base as usize, size);
        }
    }
    // The reservation failed. The unmapped first pages fault as well.
    (64, 1 << 12)
}
