//! Scopes: what a thread set for its own calls. Calls in a scope may join one program, including compiled graphs, in
//! Strict and in Fused; in Debug each call runs by itself. A scope may also have an eager mode of its own.
//!
//! A scope belongs to the thread that began it and to the autograd threads that work for it. So callers set their
//! scope while any scope is open. Calls of other threads run apart from it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::mode::{EagerMode, Mode};

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

/// The eager mode of a scope.
struct ScopeMode {
    scope: u64,
    /// Identifies the change of mode. Changes of a scope may end in any order.
    change: u64,
    eager: EagerMode,
}

/// The open scopes.
#[derive(Default)]
pub(crate) struct Scopes {
    /// The scopes whose calls join one program, and whether all ranks run the same calls there. A scope that was begun
    /// twice is listed twice.
    joins: Vec<(u64, bool)>,
    /// The last entry of a scope is its mode.
    modes: Vec<ScopeMode>,
}

impl Scopes {
    /// Whether the calls of any scope join one program.
    pub fn has_joins(&self) -> bool {
        !self.joins.is_empty()
    }

    /// Whether the calls of this scope join one program.
    pub fn joins(&self, scope: u64) -> bool {
        self.joins.iter().any(|(open, _)| *open == scope)
    }

    /// Whether the calls of the caller's scope join one program, and all ranks run the same calls there.
    pub fn is_spmd(&self, mode: Mode) -> bool {
        let scope = self.of_caller(mode);
        self.joins.iter().any(|(open, is_spmd)| *open == scope && *is_spmd)
    }

    pub fn begin_join(&mut self, scope: u64, is_spmd: bool) {
        self.joins.push((scope, is_spmd));
        self.publish();
    }

    pub fn end_join(&mut self, scope: u64) {
        if let Some(last) = self.joins.iter().rposition(|(open, _)| *open == scope) {
            self.joins.remove(last);
        }
        self.publish();
    }

    pub fn begin_mode(&mut self, scope: u64, change: u64, eager: EagerMode) {
        self.modes.push(ScopeMode { scope, change, eager });
        self.publish();
    }

    pub fn end_mode(&mut self, change: u64) {
        self.modes.retain(|open| open.change != change);
        self.publish();
    }

    /// The scope of the caller, if its calls join one program; else 0.
    pub fn of_caller(&self, mode: Mode) -> u64 {
        if self.joins.is_empty() || mode == Mode::Debug {
            return 0;
        }
        Some(CALLER.get()).filter(|&scope| self.joins(scope)).unwrap_or(0)
    }

    /// The mode that the caller's scope has.
    #[inline]
    pub fn mode_of_caller(&self) -> Option<EagerMode> {
        if self.modes.is_empty() {
            return None;
        }
        self.mode_of(CALLER.get())
    }

    pub fn mode_of(&self, scope: u64) -> Option<EagerMode> {
        self.modes.iter().rfind(|open| open.scope == scope).map(|open| open.eager)
    }

    /// Whether any scope has this mode.
    pub fn have(&self, mode: Mode) -> bool {
        self.modes.iter().any(|open| open.eager.mode == mode)
    }

    fn publish(&self) {
        IS_OPEN.store(self.has_joins() || !self.modes.is_empty(), Relaxed);
    }
}
