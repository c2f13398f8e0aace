//! Storages and their values.

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{Error, Result};
use crate::memory;
use crate::padded::{LiveSizes, Padded};
use crate::placement::Placement;
use crate::ticket::Ticket;

/// The size in bytes up to which values may share a buffer. Values of this size are never donated; otherwise, whether
/// a buffer is shared would change the program.
pub(crate) const SMALL: usize = 4096;

/// An interned base type (`Types`): element type and sizes of an N-d value.
pub type TypeId = u32;

/// The value of a storage: an N-d value on a device, which may not be computed yet.
pub(crate) struct Value {
    pub ty: TypeId,
    /// Whether a job of the host makes it.
    pub is_of_job: bool,
    state: Mutex<ValueState>,
    /// The index among all outputs while the value is in the chunk being recorded, else [`COMPUTED`].
    pending: AtomicU32,
    /// The chunk number and the index of the value among the inputs of the chunk being recorded.
    pub mark: AtomicU64,
    /// The number of queued chunks and jobs of the host that read it.
    holds: AtomicUsize,
    /// The number of jobs of the host that use its buffer. Changes only while the state is locked.
    lent: AtomicUsize,
}

/// `pending` of a value that is not in the chunk being recorded.
const COMPUTED: u32 = u32::MAX;

#[derive(Clone)]
pub(crate) enum ValueState {
    /// An output of the chunk being recorded, by its index among all outputs.
    Pending {
        output: u32,
    },
    /// An output of a chunk that waits for its executable.
    Queued,
    /// An output of a job of the host that has not finished.
    Promised(Arc<Ticket>),
    Ready(Arc<pjrt::Buffer>),
    /// The program that computes it failed.
    Failed(Arc<Error>),
}

impl Value {
    pub fn new(ty: TypeId, state: ValueState) -> Arc<Value> {
        let is_of_job = matches!(state, ValueState::Promised(_));
        let pending = match state {
            ValueState::Pending { output } => output,
            _ => COMPUTED,
        };
        let (mark, holds, lent) = (AtomicU64::new(u64::MAX), AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Value { ty, is_of_job, state: Mutex::new(state), pending: pending.into(), mark, holds, lent })
    }

    /// Adds a reader: a chunk that waits for its executable, or a job of the host. It runs before anything recorded
    /// now, so it does not prevent donation.
    pub fn hold(&self) {
        self.holds.fetch_add(1, Release);
    }

    pub fn release(&self) {
        self.holds.fetch_sub(1, Release);
    }

    pub fn holds(&self) -> usize {
        self.holds.load(Acquire)
    }

    /// Removes the value from the chunk being recorded. `state` is queued, ready or failed.
    pub fn settle(&self, state: ValueState) {
        *self.state.lock() = state;
        self.pending.store(COMPUTED, Release);
    }

    /// The output index while the value is in the chunk being recorded.
    pub fn pending(&self) -> Option<u32> {
        let output = self.pending.load(Acquire);
        (output != COMPUTED).then_some(output)
    }

    /// Whether it is on the device, being computed there, or failed.
    pub fn is_there(&self) -> bool {
        matches!(*self.state.lock(), ValueState::Ready(_) | ValueState::Failed(_))
    }

    pub fn is_failed(&self) -> bool {
        matches!(*self.state.lock(), ValueState::Failed(_))
    }

    /// The value's buffer. Waits for the job of the host that makes it. That job must have started.
    pub fn buffer(&self) -> Result<Arc<pjrt::Buffer>> {
        loop {
            let ticket = match &*self.state.lock() {
                ValueState::Ready(buffer) => return Ok(Arc::clone(buffer)),
                ValueState::Failed(error) => return Err((**error).clone()),
                ValueState::Promised(ticket) => Arc::clone(ticket),
                ValueState::Pending { .. } | ValueState::Queued => {
                    return Err(Error::runtime("internal error: a value was used before its launch"));
                }
            };
            ticket.wait(None);
        }
    }

    /// The job of the host that makes the value, while it has not finished.
    pub fn maker(&self) -> Option<Arc<Ticket>> {
        match &*self.state.lock() {
            ValueState::Promised(ticket) => Some(Arc::clone(ticket)),
            _ => None,
        }
    }

    /// Borrows the buffer of a ready value for a job of the host, until [`Value::take_back`].
    pub fn lend(&self) -> Result<Arc<pjrt::Buffer>> {
        match &*self.state.lock() {
            ValueState::Ready(buffer) => {
                self.lent.fetch_add(1, Relaxed);
                Ok(Arc::clone(buffer))
            }
            ValueState::Failed(error) => Err((**error).clone()),
            _ => Err(Error::runtime("internal error: a job of the host began before its inputs were there")),
        }
    }

    pub fn take_back(&self, buffer: Arc<pjrt::Buffer>) {
        let _state = self.state.lock();
        drop(buffer);
        self.lent.fetch_sub(1, Relaxed);
    }

    /// The number in a 0-d int64 value on a device. Waits for it.
    pub fn read_i64(&self) -> Result<i64> {
        let mut bytes = [0; 8];
        self.buffer()?.to_host(&mut bytes)?;
        Ok(i64::from_ne_bytes(bytes))
    }

    /// Whether only this value and jobs of the host hold its buffer, or will hold it once it exists.
    pub fn owns_buffer(&self) -> bool {
        match &*self.state.lock() {
            ValueState::Ready(buffer) => Arc::strong_count(buffer) == 1 + self.lent.load(Relaxed),
            state => matches!(state, ValueState::Queued | ValueState::Promised(_)),
        }
    }
}

/// A tensor storage. PyTorch's `DataPtr` points to one. A write replaces its value.
pub struct Storage {
    pub placement: Placement,
    place: u32,
    state: Mutex<State>,
    /// Whether the storage has a padded value but no exact value.
    only_padded: AtomicBool,
    /// Whether its value was made with padding. It may have an exact value too, made from the padded one.
    has_padding: AtomicBool,
    /// The size that the data decided, if they did. See [`Storage::is_counted`].
    counted: OnceLock<Box<LiveSizes>>,
}

/// Every live storage, by slot. Slots of dropped storages are reused. Only searched to find the storage of an
/// address, which PyTorch needs for pickling and importing memory.
static LIVE: Mutex<Live> = Mutex::new(Live { places: Vec::new(), free: Vec::new() });

struct Live {
    places: Vec<Option<Weak<Storage>>>,
    free: Vec<u32>,
}

struct State {
    nbytes: usize,
    address: usize,
    value: Option<Arc<Value>>,
    /// The value in the form that compiled graphs with bounded dimensions take and return.
    padded: Option<Arc<Padded>>,
}

impl Storage {
    /// A storage without a value.
    pub fn new(placement: Placement, nbytes: usize) -> Arc<Storage> {
        Storage::with_value(placement, nbytes, None)
    }

    pub(crate) fn with_value(placement: Placement, nbytes: usize, value: Option<Arc<Value>>) -> Arc<Storage> {
        memory::count_allocation(placement, nbytes);
        let address = memory::next_address(nbytes);
        let mut live = LIVE.lock();
        let place = live.free.pop().unwrap_or(live.places.len() as u32);
        let state = Mutex::new(State { nbytes, address, value, padded: None });
        let storage = Arc::new(Storage {
            placement,
            place,
            state,
            only_padded: AtomicBool::new(false),
            has_padding: AtomicBool::new(false),
            counted: OnceLock::new(),
        });
        let entry = Some(Arc::downgrade(&storage));
        match live.places.get_mut(place as usize) {
            Some(free) => *free = entry,
            None => live.places.push(entry),
        }
        storage
    }

    /// The live storage that contains an address, and the byte offset of the address in it.
    pub fn at_address(address: usize) -> Option<(Arc<Storage>, usize)> {
        Storage::all_live().into_iter().find_map(|storage| {
            let (start, nbytes) = (storage.address(), storage.nbytes());
            (start <= address && address < start + nbytes).then(|| (storage, address - start))
        })
    }

    fn all_live() -> Vec<Arc<Storage>> {
        LIVE.lock().places.iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// The address and size in bytes of the live storages of a placement that have memory.
    pub fn live_at(placement: Placement) -> Vec<(usize, usize)> {
        let there = Storage::all_live().into_iter().filter(|storage| storage.placement == placement);
        there.map(|storage| (storage.address(), storage.nbytes())).filter(|&(_, nbytes)| nbytes > 0).collect()
    }

    /// The addresses of live storages, by the addresses of their values.
    pub(crate) fn addresses() -> FxHashMap<usize, usize> {
        let address = |storage: Arc<Storage>| Some((Arc::as_ptr(&storage.held()?) as usize, storage.address()));
        Storage::all_live().into_iter().filter_map(address).collect()
    }

    /// The live storages of a placement with values that are launched, and are none of these: address and bytes.
    pub(crate) fn without(placement: Placement, values: &FxHashSet<usize>) -> Vec<(usize, usize)> {
        let is_other =
            |value: Arc<Value>| value.pending().is_none() && !values.contains(&(Arc::as_ptr(&value) as usize));
        let live = Storage::all_live().into_iter();
        let others = live.filter(|storage| storage.placement == placement && storage.held().is_some_and(is_other));
        others.map(|storage| (storage.address(), storage.nbytes())).collect()
    }

    /// The address that `data_ptr()` returns.
    pub fn address(&self) -> usize {
        self.state.lock().address
    }

    pub fn nbytes(&self) -> usize {
        self.state.lock().nbytes
    }

    pub(crate) fn value(&self) -> Option<Arc<Value>> {
        self.state.lock().value.clone()
    }

    /// The exact value, else the padded one.
    pub(crate) fn held(&self) -> Option<Arc<Value>> {
        let state = self.state.lock();
        state.value.clone().or_else(|| state.padded.as_ref().and_then(|padded| padded.storage.value()))
    }

    /// The padded value.
    pub(crate) fn padded_value(&self) -> Option<Arc<Value>> {
        self.state.lock().padded.as_ref().and_then(|padded| padded.storage.value())
    }

    /// Whether a value was written.
    pub(crate) fn has_value(&self) -> bool {
        let state = self.state.lock();
        state.value.is_some() || state.padded.is_some()
    }

    /// Whether its value is in a chunk that has not been flushed.
    pub(crate) fn is_pending(&self) -> bool {
        let is_pending = |value: &Arc<Value>| value.pending().is_some();
        let state = self.state.lock();
        match (&state.value, &state.padded) {
            (Some(value), _) => is_pending(value),
            (None, Some(padded)) => padded.storage.is_pending(),
            (None, None) => false,
        }
    }

    /// Whether a job of the host makes its value.
    pub(crate) fn is_of_job(&self) -> bool {
        self.held().is_some_and(|value| value.is_of_job)
    }

    /// The value's type, or the size in bytes of a storage without a value.
    pub(crate) fn base(&self) -> std::result::Result<TypeId, usize> {
        let state = self.state.lock();
        state.value.as_ref().map(|value| value.ty).ok_or(state.nbytes)
    }

    /// Replaces the value. Returns the old values.
    pub(crate) fn set_value(&self, value: Option<Arc<Value>>) -> (Option<Arc<Value>>, Option<Arc<Padded>>) {
        let mut state = self.state.lock();
        self.only_padded.store(false, Release);
        self.has_padding.store(false, Release);
        (std::mem::replace(&mut state.value, value), state.padded.take())
    }

    /// Replaces the value by a padded one. Returns the old values.
    pub(crate) fn set_padded(&self, padded: Padded) -> (Option<Arc<Value>>, Option<Arc<Padded>>) {
        let mut state = self.state.lock();
        self.has_padding.store(padded.is_origin, Release);
        let old = (state.value.take(), state.padded.replace(Arc::new(padded)));
        self.only_padded.store(true, Release);
        old
    }

    /// Restores old values.
    pub(crate) fn restore(&self, value: Option<Arc<Value>>, padded: Option<Arc<Padded>>) {
        let mut state = self.state.lock();
        self.only_padded.store(value.is_none() && padded.is_some(), Release);
        self.has_padding.store(padded.as_ref().is_some_and(|padded| padded.is_origin), Release);
        (state.value, state.padded) = (value, padded);
    }

    /// A storage that has only a padded value.
    pub(crate) fn with_padded(placement: Placement, nbytes: usize, padded: Padded) -> Arc<Storage> {
        let storage = Storage::with_value(placement, nbytes, None);
        storage.add_padded(padded);
        storage.only_padded.store(true, Release);
        storage
    }

    /// Gives the memory away: the value becomes an error, so that only its readers recorded so far keep the buffer. A
    /// write makes the storage usable again. `receiver` is named in the error.
    pub fn donate(&self, receiver: &str) {
        if let Ok(ty) = self.base() {
            let message = format!("Buffer has been deleted or donated: the tensor was donated to {receiver}");
            let failed = ValueState::Failed(Arc::new(Error::runtime(message)));
            drop(self.set_value(Some(Value::new(ty, failed))));
        }
    }

    pub(crate) fn padded(&self) -> Option<Arc<Padded>> {
        self.state.lock().padded.clone()
    }

    pub(crate) fn is_only_padded(&self) -> bool {
        self.only_padded.load(Acquire)
    }

    /// Whether its value was made with padding.
    pub(crate) fn has_padding(&self) -> bool {
        self.has_padding.load(Acquire)
    }

    pub(crate) fn set_counted(&self, size: LiveSizes) {
        let _ = self.counted.set(Box::new(size));
    }

    /// Whether the data decided how many of its elements a tensor shows.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.get().is_some()
    }

    /// The capacity of the size that the data decided, if it is this one.
    pub(crate) fn counted_capacity(&self, size: i64) -> Option<i64> {
        self.counted.get()?.capacity(size)
    }

    /// A reference that does not keep the storage alive.
    pub(crate) fn downgrade(&self) -> Weak<Storage> {
        LIVE.lock().places[self.place as usize].clone().unwrap_or_default()
    }

    /// Sets the padded value.
    pub(crate) fn add_padded(&self, padded: Padded) {
        let mut state = self.state.lock();
        self.has_padding.store(padded.is_origin, Release);
        state.padded = Some(Arc::new(padded));
    }

    /// Sets the exact value that was made from the padded one.
    pub(crate) fn add_exact(&self, value: Arc<Value>) {
        self.state.lock().value = Some(value);
        self.only_padded.store(false, Release);
    }

    /// Changes size and value. The address changes with the size.
    pub(crate) fn replace(&self, nbytes: usize, value: Option<Arc<Value>>) {
        let mut state = self.state.lock();
        memory::count_free(self.placement, state.nbytes);
        memory::count_allocation(self.placement, nbytes);
        *state = State { nbytes, address: memory::next_address(nbytes), value, padded: None };
        self.only_padded.store(false, Release);
        self.has_padding.store(false, Release);
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        memory::count_free(self.placement, self.state.get_mut().nbytes);
        let mut live = LIVE.lock();
        live.places[self.place as usize] = None;
        live.free.push(self.place);
    }
}
