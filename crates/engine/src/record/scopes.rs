//! Scopes: all calls in a scope become one program, including compiled graphs, in Strict and in Fused. In Debug each
//! call runs by itself.
//!
//! A scope belongs to the thread that began it and to the autograd threads that work for it. So callers set their
//! scope while any scope is open. Calls of other threads run apart from it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::mode::Mode;

static IS_OPEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CALLER: Cell<u64> = const { Cell::new(0) };
}

/// Whether callers must set their scope before a call.
pub fn is_open() -> bool {
    IS_OPEN.load(Relaxed)
}

/// Sets the scope of the thread's next call; 0 for none.
pub fn set_caller(scope: u64) {
    CALLER.set(scope);
}

/// The open scopes. A scope that was begun twice is listed twice.
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

    /// The scope of the caller; 0 for none.
    pub fn of_caller(&self, mode: Mode) -> u64 {
        if self.0.is_empty() || mode == Mode::Debug {
            return 0;
        }
        Some(CALLER.get()).filter(|scope| self.0.contains(scope)).unwrap_or(0)
    }
}
