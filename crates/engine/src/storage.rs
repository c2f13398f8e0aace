//! Storages and the values that they hold.

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::memory;
use crate::padded::Padded;
use crate::placement::Placement;
use crate::ticket::Ticket;

/// What a value takes at most, in bytes, whose buffer others may share. No program is given the memory of such a value:
/// otherwise a program that takes a shared buffer would have to be a different one.
pub(crate) const SMALL: usize = 4096;

/// An interned base type (`Types`): element type and sizes of an N-d value.
pub type TypeId = u32;

/// What a storage holds at one moment: an N-d value on a device, perhaps not computed yet.
pub(crate) struct Value {
    pub ty: TypeId,
    state: Mutex<ValueState>,
    /// The index among all outputs while the value waits in the chunk being recorded, else [`COMPUTED`].
    pending: AtomicU32,
    /// Where the value stands among the inputs of the chunk being recorded: chunk number and index.
    pub mark: AtomicU64,
    /// How many chunks that wait for their executables, and jobs of the host, read it.
    holds: AtomicUsize,
    /// How many jobs of the host hold its buffer. Changes while the state is locked.
    lent: AtomicUsize,
}

/// The `pending` of a value that does not wait in a chunk.
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
    /// Its program failed.
    Failed(Arc<Error>),
}

impl Value {
    pub fn new(ty: TypeId, state: ValueState) -> Arc<Value> {
        let pending = match state {
            ValueState::Pending { output } => output,
            _ => COMPUTED,
        };
        let (mark, holds, lent) = (AtomicU64::new(u64::MAX), AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Value { ty, state: Mutex::new(state), pending: pending.into(), mark, holds, lent })
    }

    /// A chunk that waits for its executable, or a job of the host, begins to hold the value. It runs before anything that is recorded now, so it
    /// does not keep the buffer from being donated.
    pub fn hold(&self) {
        self.holds.fetch_add(1, Release);
    }

    pub fn release(&self) {
        self.holds.fetch_sub(1, Release);
    }

    pub fn holds(&self) -> usize {
        self.holds.load(Acquire)
    }

    /// The value leaves the chunk being recorded: it is queued, there, or lost.
    pub fn settle(&self, state: ValueState) {
        *self.state.lock() = state;
        self.pending.store(COMPUTED, Release);
    }

    /// The output index while the value waits in the chunk being recorded.
    pub fn pending(&self) -> Option<u32> {
        let output = self.pending.load(Acquire);
        (output != COMPUTED).then_some(output)
    }

    /// Whether it is on the device, or on its way, or lost.
    pub fn is_there(&self) -> bool {
        matches!(*self.state.lock(), ValueState::Ready(_) | ValueState::Failed(_))
    }

    pub fn is_failed(&self) -> bool {
        matches!(*self.state.lock(), ValueState::Failed(_))
    }

    /// The value's buffer. Waits for the job of the host that makes it, if there is one; that job must have begun.
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

    /// The buffer of a value that is there, for a job of the host; [`Value::take_back`] ends it.
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

    /// The number that it is: a 0-d int64 on a device. Waits for it.
    pub fn read_i64(&self) -> Result<i64> {
        let mut bytes = [0; 8];
        self.buffer()?.to_host(&mut bytes)?;
        Ok(i64::from_ne_bytes(bytes))
    }

    /// Whether nobody but this value, and jobs of the host, holds its buffer, or will when there is one.
    pub fn owns_buffer(&self) -> bool {
        match &*self.state.lock() {
            ValueState::Ready(buffer) => Arc::strong_count(buffer) == 1 + self.lent.load(Relaxed),
            state => matches!(state, ValueState::Queued | ValueState::Promised(_)),
        }
    }
}

/// A tensor storage: PyTorch's `DataPtr` points to one. Its value is replaced when it is written.
pub struct Storage {
    pub placement: Placement,
    place: u32,
    state: Mutex<State>,
    /// Whether the exact value has yet to be made of the padded one.
    only_padded: AtomicBool,
}

/// Every live storage, by place; the places of storages that are gone are used again. Scanned only to find the storage
/// behind a bare address, which PyTorch has when it pickles or imports memory.
static LIVE: Mutex<Live> = Mutex::new(Live { places: Vec::new(), free: Vec::new() });

struct Live {
    places: Vec<Option<Weak<Storage>>>,
    free: Vec<u32>,
}

struct State {
    nbytes: usize,
    address: usize,
    value: Option<Arc<Value>>,
    /// The value as compiled graphs with bounded dimensions take and give it.
    padded: Option<Arc<Padded>>,
}

impl Storage {
    /// A storage that nothing has been written to.
    pub fn new(placement: Placement, nbytes: usize) -> Arc<Storage> {
        Storage::with_value(placement, nbytes, None)
    }

    pub(crate) fn with_value(placement: Placement, nbytes: usize, value: Option<Arc<Value>>) -> Arc<Storage> {
        memory::count_allocation(placement, nbytes);
        let address = memory::next_address(nbytes);
        let mut live = LIVE.lock();
        let place = live.free.pop().unwrap_or(live.places.len() as u32);
        let state = Mutex::new(State { nbytes, address, value, padded: None });
        let storage = Arc::new(Storage { placement, place, state, only_padded: AtomicBool::new(false) });
        let entry = Some(Arc::downgrade(&storage));
        match live.places.get_mut(place as usize) {
            Some(free) => *free = entry,
            None => live.places.push(entry),
        }
        storage
    }

    /// The live storage that shows an address within it, and how many bytes into it the address is.
    pub fn at_address(address: usize) -> Option<(Arc<Storage>, usize)> {
        let storages: Vec<Arc<Storage>> = LIVE.lock().places.iter().flatten().filter_map(Weak::upgrade).collect();
        storages.into_iter().find_map(|storage| {
            let (start, nbytes) = (storage.address(), storage.nbytes());
            (start <= address && address < start + nbytes).then(|| (storage, address - start))
        })
    }

    /// The address that `data_ptr()` shows.
    pub fn address(&self) -> usize {
        self.state.lock().address
    }

    pub fn nbytes(&self) -> usize {
        self.state.lock().nbytes
    }

    pub(crate) fn value(&self) -> Option<Arc<Value>> {
        self.state.lock().value.clone()
    }

    /// Whether anything has been written to it.
    pub(crate) fn has_value(&self) -> bool {
        self.state.lock().value.is_some()
    }

    /// Whether its value waits for the flush of a chunk.
    pub(crate) fn is_pending(&self) -> bool {
        self.state.lock().value.as_ref().is_some_and(|value| value.pending().is_some())
    }

    /// The value's type, or the size in bytes of a storage without a value.
    pub(crate) fn base(&self) -> std::result::Result<TypeId, usize> {
        let state = self.state.lock();
        state.value.as_ref().map(|value| value.ty).ok_or(state.nbytes)
    }

    pub(crate) fn set_value(&self, value: Option<Arc<Value>>) -> Option<Arc<Value>> {
        let mut state = self.state.lock();
        state.padded = None;
        self.only_padded.store(false, Release);
        std::mem::replace(&mut state.value, value)
    }

    /// A storage whose exact value has yet to be made.
    pub(crate) fn with_padded(placement: Placement, nbytes: usize, padded: Padded) -> Arc<Storage> {
        let storage = Storage::with_value(placement, nbytes, None);
        storage.add_padded(padded);
        storage.only_padded.store(true, Release);
        storage
    }

    pub(crate) fn padded(&self) -> Option<Arc<Padded>> {
        self.state.lock().padded.clone()
    }

    pub(crate) fn is_only_padded(&self) -> bool {
        self.only_padded.load(Acquire)
    }

    /// Adds the padded form of the value.
    pub(crate) fn add_padded(&self, padded: Padded) {
        self.state.lock().padded = Some(Arc::new(padded));
    }

    /// Adds the exact form of the padded value.
    pub(crate) fn add_exact(&self, value: Arc<Value>) {
        self.state.lock().value = Some(value);
        self.only_padded.store(false, Release);
    }

    /// Takes another size and value; the address changes with the size.
    pub(crate) fn replace(&self, nbytes: usize, value: Option<Arc<Value>>) {
        let mut state = self.state.lock();
        memory::count_free(self.placement, state.nbytes);
        memory::count_allocation(self.placement, nbytes);
        *state = State { nbytes, address: memory::next_address(nbytes), value, padded: None };
        self.only_padded.store(false, Release);
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
