//! Scopes whose calls become one program, compiled graphs included, in Strict as in Fused. In Debug each call runs by
//! itself.
//!
//! A scope belongs to the thread that began it and to the threads on which autograd works for that thread. So callers say
//! in which scope they are, while any is open. What other threads call meanwhile runs apart from it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::mode::Mode;

static IS_OPEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CALLER: Cell<u64> = const { Cell::new(0) };
}

/// Whether callers must say before a call in which scope they are.
pub fn is_open() -> bool {
    IS_OPEN.load(Relaxed)
}

/// Says in which scope the caller of the thread's next call is; 0 is none.
pub fn set_caller(scope: u64) {
    CALLER.set(scope);
}

/// The open scopes; one that was begun twice is there twice.
#[derive(Default)]
pub(crate) struct Scopes(Vec<u64>);

impl Scopes {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, scope: u64) -> bool {
        self.0.contains(&scope)
    }

    pub fn begin(&mut self, scope: u64) {
        self.0.push(scope);
        IS_OPEN.store(true, Relaxed);
    }

    pub fn end(&mut self, scope: u64) {
        if let Some(last) = self.0.iter().rposition(|&open| open == scope) {
            self.0.remove(last);
        }
        IS_OPEN.store(!self.0.is_empty(), Relaxed);
    }

    /// The scope that the caller is in; 0 is none.
    pub fn of_caller(&self, mode: Mode) -> u64 {
        if self.0.is_empty() || mode == Mode::Debug {
            return 0;
        }
        Some(CALLER.get()).filter(|scope| self.0.contains(scope)).unwrap_or(0)
    }
}
