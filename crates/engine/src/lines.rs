//! Lines of the user's program, for messages and explanations.
//!
//! Looking up the line of a caller costs more than recording an operator. So it is looked up only while [`wanted`] is
//! true: while something new is recorded, in Debug, and for an explanation. A chunk that was recorded before keeps
//! the lines of the first time.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// A line of a file; zero means no line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line(u32);

/// Where a call stands: a file, a line in it, and the module of the model that makes it, where that is known.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Place {
    pub file: Arc<str>,
    pub line: u32,
    pub module: Option<Arc<str>>,
    /// Whether a thread of autograd makes the call while the line waits for it.
    pub is_of_autograd: bool,
}

#[derive(Default)]
struct Lines {
    list: Vec<Place>,
    numbers: FxHashMap<Place, Line>,
}

static LINES: Mutex<Option<Lines>> = Mutex::new(None);
static WANTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CALLER: Cell<Line> = const { Cell::new(Line(0)) };
}

/// Whether callers must set their line before a call.
pub fn wanted() -> bool {
    WANTED.load(Relaxed)
}

pub(crate) fn want(wanted: bool) {
    WANTED.store(wanted, Relaxed);
}

/// Sets the line of the user's program for the thread's next call.
pub fn set_caller(line: Option<Place>) {
    CALLER.set(line.map_or(Line(0), intern));
}

/// The line of the current call, if it was requested.
pub(crate) fn caller() -> Line {
    if wanted() { CALLER.get() } else { Line(0) }
}

/// The line of the current call, which was set.
pub fn noted() -> Line {
    CALLER.get()
}

fn intern(line: Place) -> Line {
    let mut lines = LINES.lock();
    let lines = lines.get_or_insert_default();
    if let Some(&known) = lines.numbers.get(&line) {
        return known;
    }
    lines.list.push(line.clone());
    let number = Line(lines.list.len() as u32);
    lines.numbers.insert(line, number);
    number
}

impl Line {
    pub fn is_known(self) -> bool {
        self.0 != 0
    }

    /// "relu at train.py:31", or "relu" if the line is unknown.
    pub(crate) fn label(self, what: &str) -> String {
        if self.is_known() { format!("{what} at {}", self.name()) } else { what.to_owned() }
    }

    /// "train.py:31", or an empty text if the line is unknown.
    pub fn name(self) -> String {
        self.place().map_or_else(String::new, |place| format!("{}:{}", place.file, place.line))
    }

    /// The module of the model that the call is made in; empty if it is not known.
    pub fn module(self) -> String {
        self.place().and_then(|place| place.module).map_or_else(String::new, |module| module.to_string())
    }

    pub(crate) fn is_of_autograd(self) -> bool {
        self.place().is_some_and(|place| place.is_of_autograd)
    }

    fn place(self) -> Option<Place> {
        let index = (self.0 as usize).checked_sub(1)?;
        LINES.lock().as_ref()?.list.get(index).cloned()
    }
}
