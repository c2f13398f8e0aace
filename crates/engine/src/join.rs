//! Scopes whose calls become one program: compiled graphs too, in Strict as in Fused. Debug has each run by itself, as
//! ever.
//!
//! A scope belongs to the thread that began it and to the threads on which autograd works for that thread. So callers say
//! in which scope they are, while any is open. What others call meanwhile runs apart from it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::chunk::Chunk;
use crate::engine::{Engine, Mode};
use crate::error::Result;
use crate::explain::Reason;

static IS_OPEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CALLER: Cell<u64> = const { Cell::new(0) };
}

/// Whether whoever calls the engine should say first in which scope the caller is.
pub fn is_open() -> bool {
    IS_OPEN.load(Relaxed)
}

/// Says in which scope the caller of the thread's next call is; 0 is none.
pub fn set_caller(scope: u64) {
    CALLER.set(scope);
}

impl Engine {
    /// Until [`Engine::end_join`], what is called in the scope becomes one program.
    pub fn begin_join(&mut self, scope: u64) -> Result<()> {
        if self.joining.is_empty() {
            self.flush_all(Reason::CompiledGraph)?;
        }
        self.joining.push(scope);
        IS_OPEN.store(true, Relaxed);
        Ok(())
    }

    /// Ends what [`Engine::begin_join`] began; the last end of a scope runs its program.
    pub fn end_join(&mut self, scope: u64) -> Result<()> {
        if let Some(last) = self.joining.iter().rposition(|&open| open == scope) {
            self.joining.remove(last);
        }
        IS_OPEN.store(!self.joining.is_empty(), Relaxed);
        let (is_last, is_over) = (self.joining.is_empty(), !self.joining.contains(&scope));
        self.flush_where(Reason::Joined, |chunk| is_last || is_over && chunk.scope == scope)
    }

    /// The scope that the caller is in; 0 is none.
    pub(crate) fn scope(&self) -> u64 {
        if self.joining.is_empty() || self.mode == Mode::Debug {
            return 0;
        }
        Some(CALLER.get()).filter(|scope| self.joining.contains(scope)).unwrap_or(0)
    }

    /// Whether what is being recorded on a device is the program of another scope.
    pub(crate) fn is_recorded_by_another(&self, device: usize, scope: u64) -> bool {
        let chunk = self.chunks.get(device);
        chunk.is_some_and(|chunk| chunk.scope != 0 && chunk.scope != scope && !chunk.is_empty())
    }

    /// Runs `record` with an empty chunk in place of the one that is being recorded.
    pub(crate) fn record_apart(&mut self, device: usize, record: impl FnOnce(&mut Engine) -> Result<()>) -> Result<()> {
        let number = self.next_chunk;
        self.next_chunk += 1;
        let held = self.chunks.get_mut(device).map(|chunk| std::mem::replace(chunk, Chunk::new(number)));
        let result = record(self);
        if let Some(held) = held {
            self.chunks[device] = held;
        }
        result
    }
}
