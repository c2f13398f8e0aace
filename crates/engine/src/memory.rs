//! Byte counts for each device, and the addresses of storages.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::error::{Error, ErrorKind, Result};
use crate::placement::Placement;

/// The largest number of devices of a process. PyTorch stores device numbers in a signed byte.
pub const MAX_DEVICES: usize = 127;

/// The live storages of one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUse {
    pub bytes: Figures,
    pub storages: Figures,
    pub out_of_memory: i64,
}

/// The amount now, its peak, and the amounts that were added and removed since the totals were reset.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub current: i64,
    pub peak: i64,
    pub total: i64,
    pub total_freed: i64,
}

#[derive(Default)]
struct Counters {
    bytes: Count,
    storages: Count,
    out_of_memory: AtomicI64,
    /// The bytes that the last failure asked for, until they are taken.
    refused: AtomicU64,
    /// The size of the device's memory; 0 if unknown.
    capacity: AtomicU64,
}

/// The amounts that were added and removed since the start.
#[derive(Default)]
struct Count {
    added: AtomicI64,
    removed: AtomicI64,
    peak: AtomicI64,
    added_at_reset: AtomicI64,
    removed_at_reset: AtomicI64,
}

impl Count {
    fn add(&self, amount: i64) {
        let now = self.added.fetch_add(amount, Relaxed) + amount - self.removed.load(Relaxed);
        // The peak rarely rises, and a write costs much more than this read.
        if self.peak.load(Relaxed) < now {
            self.peak.fetch_max(now, Relaxed);
        }
    }

    fn remove(&self, amount: i64) {
        self.removed.fetch_add(amount, Relaxed);
    }

    fn figures(&self) -> Figures {
        let removed = self.removed.load(Relaxed);
        let added = self.added.load(Relaxed);
        Figures {
            current: added - removed,
            peak: self.peak.load(Relaxed),
            total: added - self.added_at_reset.load(Relaxed),
            total_freed: removed - self.removed_at_reset.load(Relaxed),
        }
    }

    fn reset_peak(&self) {
        self.peak.store(self.figures().current, Relaxed);
    }

    fn reset_totals(&self) {
        self.added_at_reset.store(self.added.load(Relaxed), Relaxed);
        self.removed_at_reset.store(self.removed.load(Relaxed), Relaxed);
    }
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
    check_within(placement, nbytes, 1)
}

/// A result of more than so many times a device's memory is refused when its call is new. A smaller one may be a value
/// between operators of one program, which is never stored.
const NEVER_STORED: u64 = 16;

/// Checks that a result is no larger than what a program can compute with.
///
/// # Errors
/// Out of memory if it is.
pub(crate) fn check_result(placement: Placement, nbytes: usize) -> Result<()> {
    check_within(placement, nbytes, NEVER_STORED)
}

/// Checks that so many times a device's memory, if that is known, holds `nbytes`.
fn check_within(placement: Placement, nbytes: usize, times: u64) -> Result<()> {
    let (nbytes, capacity) = (nbytes as u64, counters(placement).capacity.load(Relaxed));
    if capacity == 0 || nbytes <= capacity.saturating_mul(times) {
        return Ok(());
    }
    count_out_of_memory(placement);
    Err(out_of_memory(placement, nbytes, None))
}

/// The error for an allocation of `bytes`, when `free` bytes are left. In the words of CUDA, by which libraries know it.
pub(crate) fn out_of_memory(placement: Placement, bytes: u64, free: Option<u64>) -> Error {
    let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
    let capacity = counters(placement).capacity.load(Relaxed);
    counters(placement).refused.store(bytes, Relaxed);
    let free = free.map(|free| format!(" of which {} is free", gib(free))).unwrap_or_default();
    let message = format!(
        "tpu out of memory. Tried to allocate {}. {placement} has a total capacity of {}{free}",
        gib(bytes),
        gib(capacity)
    );
    Error::new(ErrorKind::OutOfMemory, message)
}

pub(crate) fn count_allocation(placement: Placement, nbytes: usize) {
    let c = counters(placement);
    c.bytes.add(nbytes as i64);
    c.storages.add(1);
}

pub(crate) fn count_free(placement: Placement, nbytes: usize) {
    let c = counters(placement);
    c.bytes.remove(nbytes as i64);
    c.storages.remove(1);
}

pub(crate) fn count_out_of_memory(placement: Placement) {
    counters(placement).out_of_memory.fetch_add(1, Relaxed);
}

/// The bytes that the last failure on a device asked for, once. 0 if the plugin did not say.
pub fn take_refused(placement: Placement) -> u64 {
    counters(placement).refused.swap(0, Relaxed)
}

/// The memory use of a device now.
pub fn memory_use(placement: Placement) -> MemoryUse {
    let c = counters(placement);
    MemoryUse { bytes: c.bytes.figures(), storages: c.storages.figures(), out_of_memory: c.out_of_memory.load(Relaxed) }
}

/// Resets the peaks to the current use.
pub fn reset_peak(placement: Placement) {
    let c = counters(placement);
    c.bytes.reset_peak();
    c.storages.reset_peak();
}

/// Resets the totals, and the count of failures, to zero.
pub fn reset_totals(placement: Placement) {
    let c = counters(placement);
    c.bytes.reset_totals();
    c.storages.reset_totals();
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
