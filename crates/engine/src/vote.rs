//! Votes: whether collectives run inside larger programs, on ranks that may run different programs.
//!
//! A program with collectives runs on the devices of all ranks of a group, or on none. So a rank may launch it only if all
//! ranks do. Each rank numbers the collectives of a process group in the order of the calls, which is the same on all
//! ranks. A *unit* is a chunk with one or more consecutive collectives. The ranks vote in rounds. The first round is about
//! the first collective. In each round a rank tells what it has made of this collective:
//!
//! - a unit begins with it: the unit's program, and the unit's last collective; or
//! - it is cut, or is in the middle of a unit: no program, and the last collective up to which this rank cuts.
//!
//! If all have told the same program, all run it. Else each rank cuts all units that begin before or at the largest number
//! that any rank has told. The next round is about the collective after that. All ranks know the outcome of each round, so
//! all vote in the same rounds. A rank votes as soon as it has called the collective of the round; it never waits for a
//! launch before it votes. Why no rank waits for ever: docs/design.md.
//!
//! When a collective joins a chunk is a guess that only costs time if it is wrong. After a program was refused, all ranks
//! cut up to the same number, so that they propose the same programs again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::ticket::Ticket;

/// The vote of a rank on a collective, or the result for all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opinion {
    /// The number of the collective.
    pub first: u64,
    /// The last collective of the program; without one, the last that is cut.
    pub last: u64,
    /// The hash of the program; 0 for none.
    pub program: u64,
    /// How many ranks have a program.
    pub proposals: u64,
}

impl Opinion {
    /// The opinion of two parts of the ranks: where they differ, no program, and the largest `last`.
    pub(crate) fn and(self, other: Opinion) -> Opinion {
        let is_same = self.program == other.program && self.last == other.last;
        Opinion {
            program: if is_same { self.program } else { 0 },
            last: self.last.max(other.last),
            proposals: self.proposals + other.proposals,
            ..self
        }
    }
}

/// Tells the other ranks an opinion. Returns that of all ([`Opinion::and`]).
pub type Exchange = dyn Fn(Opinion) -> Result<Opinion> + Send + Sync;

/// For how many collectives at a time a rank votes that has proposed no program for a while.
const MOST_AHEAD: u64 = 8;

/// The same for a rank that records no chunks.
const FAR_AHEAD: u64 = 64;

/// A collective joins a chunk from this occurrence on.
const FAMILIAR: u32 = 2;

/// After so many failures, the time until the next attempt no longer doubles.
const MOST_STRIKES: u32 = 10;

/// After so many refused programs in a row, collectives in a place are cut for a while.
const HOPELESS: u32 = 8;

/// The number of places that are remembered. Then all are dropped.
const MOST_PLACES: usize = 1 << 16;

/// The outcome of a unit's vote.
pub(crate) struct Vote {
    /// Ends with the vote.
    pub ticket: Arc<Ticket>,
    is_whole: AtomicBool,
}

impl Vote {
    /// Whether the vote has ended, and the ranks do not all have this program.
    pub fn is_refused(&self) -> bool {
        matches!(self.ticket.result(), Some(Ok(()))) && !self.is_whole.load(Relaxed)
    }
}

struct Unit {
    first: u64,
    last: u64,
    program: u64,
    places: Vec<u64>,
    vote: Arc<Vote>,
}

/// How often a collective was called in one place of a loop.
#[derive(Default)]
struct Habit {
    seen: u32,
    /// It joins a chunk when it was seen more often.
    needed: u32,
    /// The refused programs since the last that was not.
    refused: u32,
    /// How often it was cut for a while.
    strikes: u32,
}

impl Habit {
    /// Cuts the collective the next 2 times, after the next failure 4 times, and so on.
    fn cut(&mut self, factor: u32) {
        self.strikes = MOST_STRIKES.min(self.strikes + 1);
        self.needed = self.seen.saturating_add(factor << self.strikes);
    }

    fn note(&mut self, is_whole: bool) {
        if is_whole {
            (self.refused, self.strikes) = (0, self.strikes.saturating_sub(1));
            return;
        }
        self.refused += 1;
        if self.refused >= HOPELESS {
            self.cut(HOPELESS);
        }
    }
}

/// The votes of a process group on this rank.
#[derive(Clone)]
pub(crate) struct Ballot(Arc<Shared>);

struct Shared {
    /// The name in errors.
    name: String,
    exchange: Arc<Exchange>,
    state: Mutex<State>,
    changed: Condvar,
    /// Called after a round, without locks.
    decided: fn(),
}

#[derive(Default)]
struct State {
    /// The collectives that were called. The first has the number 1.
    called: u64,
    /// The collectives before this number are decided.
    next: u64,
    /// The units that are not decided, in order. Collectives in none of them are cut.
    units: VecDeque<Unit>,
    habits: FxHashMap<u64, Habit>,
    /// All ranks cut the collectives before this number.
    resume: u64,
    /// The refused programs that no other has made up for. The same on all ranks, as `resume`.
    strikes: u32,
    /// For how many collectives the next vote without a program is, while chunks are recorded.
    ahead: u64,
    /// Whether no chunks are recorded.
    is_one_by_one: bool,
    failure: Option<Error>,
    is_closed: bool,
    has_thread: bool,
}

impl Ballot {
    /// `decided` is called after each round.
    pub fn new(name: String, exchange: Arc<Exchange>, decided: fn()) -> Ballot {
        let state = Mutex::new(State { next: 1, ahead: 1, ..State::default() });
        Ballot(Arc::new(Shared { name, exchange, state, changed: Condvar::new(), decided }))
    }

    /// Counts a call of a collective in a place of a loop. Returns whether it should join the chunk, which so many have
    /// joined: it came there before, and the last programs were not refused.
    pub fn joins(&self, place: u64, joined: usize) -> bool {
        let mut state = self.0.state.lock();
        if state.failure.is_some() {
            return false;
        }
        if state.habits.len() >= MOST_PLACES {
            state.habits.clear();
        }
        let habit = state.habits.entry(place).or_insert_with(|| Habit { needed: FAMILIAR, ..Habit::default() });
        habit.seen = habit.seen.saturating_add(1);
        habit.seen > habit.needed && state.called + joined as u64 + 1 >= state.resume
    }

    /// Collectives in these places are cut for a while: the host has paused while they waited in a chunk.
    pub fn note_pause(&self, places: &[u64]) {
        let mut state = self.0.state.lock();
        for place in places {
            state.habits.entry(*place).or_default().cut(1);
        }
    }

    /// Collectives were called that are cut. `is_one_by_one`: all operators run by themselves.
    pub fn cut(&self, count: u64, is_one_by_one: bool) {
        let mut state = self.0.state.lock();
        state.called += count;
        state.is_one_by_one = is_one_by_one;
        self.wake(state);
    }

    /// Collectives were called that are parts of a program with this hash.
    pub fn propose(&self, count: u64, program: u64, places: Vec<u64>) -> Arc<Vote> {
        let ticket = Arc::new(Ticket::new(self.0.name.clone()));
        let vote = Arc::new(Vote { ticket, is_whole: AtomicBool::new(false) });
        let mut state = self.0.state.lock();
        let first = state.called + 1;
        state.called += count;
        let unit = Unit { first, last: state.called, program: program.max(1), places, vote: Arc::clone(&vote) };
        if let Some(error) = state.failure.clone() {
            unit.vote.ticket.finish(Err(error));
        } else if first < state.next {
            // The next vote ends with a call of this rank, so that the unit after it is in time. With votes far ahead, all
            // later units could be in the middle of a round.
            state.ahead = 1;
            unit.vote.ticket.finish(Ok(()));
        } else {
            state.units.push_back(unit);
        }
        self.wake(state);
        vote
    }

    /// Waits until all collectives that were called are decided, or the votes have failed. Returns whether they are.
    pub fn finish(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.0.state.lock();
        while state.is_asked() && state.failure.is_none() {
            if self.0.changed.wait_until(&mut state, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    /// No more collectives will be called.
    pub fn close(&self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_all();
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        if !state.has_thread && state.failure.is_none() {
            let shared = Arc::clone(&self.0);
            let spawned = thread::Builder::new().name("torchtpu-vote".into()).spawn(move || vote(&shared));
            state.has_thread = spawned.is_ok();
            if spawned.is_err() {
                state.fail(&Error::runtime("no thread could be started").within(&self.0.name));
            }
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

/// Votes until the group ends.
fn vote(shared: &Shared) {
    loop {
        let mine = {
            let mut state = shared.state.lock();
            while !state.is_asked() && !state.is_closed {
                shared.changed.wait(&mut state);
            }
            if !state.is_asked() {
                return;
            }
            state.opinion()
        };
        let common = (shared.exchange)(mine).map_err(|error| error.within(&shared.name));
        let has_failed = common.is_err();
        {
            let mut state = shared.state.lock();
            match common {
                Ok(common) => state.decide(mine, common),
                Err(error) => state.fail(&error),
            }
        }
        shared.changed.notify_all();
        (shared.decided)();
        if has_failed {
            return;
        }
    }
}

impl State {
    /// Whether the collective of the round was called.
    fn is_asked(&self) -> bool {
        self.called >= self.next
    }

    fn opinion(&self) -> Opinion {
        let first = self.next;
        let cut = |last| Opinion { first, last, program: 0, proposals: 0 };
        match self.units.front() {
            Some(unit) if unit.first == first => Opinion { program: unit.program, proposals: 1, ..cut(unit.last) },
            Some(unit) => cut(unit.first - 1),
            None if self.resume > first => cut(self.called.max(self.resume - 1)),
            None => cut(self.called.max(first + if self.is_one_by_one { FAR_AHEAD } else { self.ahead } - 1)),
        }
    }

    /// Notes the outcome of a round.
    fn decide(&mut self, mine: Opinion, common: Opinion) {
        self.next = common.last + 1;
        if common.program != 0 {
            self.strikes = self.strikes.saturating_sub(1);
        } else if common.proposals > 0 {
            self.strikes = MOST_STRIKES.min(self.strikes + 1);
            self.resume = self.next + (1 << self.strikes);
        }
        let is_quiet = self.units.is_empty();
        self.ahead = if is_quiet { MOST_AHEAD.min(2 * self.ahead) } else { 1 };
        while self.units.front().is_some_and(|unit| unit.first < self.next) {
            let Some(unit) = self.units.pop_front() else { break };
            if unit.first == mine.first {
                self.note(&unit.places, common.program != 0);
                unit.vote.is_whole.store(common.program != 0, Relaxed);
            }
            unit.vote.ticket.finish(Ok(()));
        }
    }

    fn note(&mut self, places: &[u64], is_whole: bool) {
        for place in places {
            if let Some(habit) = self.habits.get_mut(place) {
                habit.note(is_whole);
            }
        }
    }

    fn fail(&mut self, error: &Error) {
        self.units.drain(..).for_each(|unit| unit.vote.ticket.finish(Err(error.clone())));
        self.failure = Some(error.clone());
    }
}

#[cfg(test)]
#[path = "vote_tests.rs"]
mod tests;
