//! Collectives that have joined a chunk: when the chunk must end, so that no rank waits for them.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use crate::engine::{Engine, lock, try_lock};
use crate::error::{Error, Result};
use crate::placement::Placement;
use crate::record::reason::Reason;

/// A chunk with a collective ends when nothing was recorded for this time, or up to twice this time. The host may wait for
/// another rank, which waits for the collective.
const PAUSE: Duration = Duration::from_millis(200);

/// Whether a collective has joined a chunk in this process. If not, none waits, and the engine is not locked to look.
static HAVE_JOINED: AtomicBool = AtomicBool::new(false);

/// The numbers of chunks with collectives, and their lengths.
type Looked = Vec<(u64, usize)>;

impl Engine {
    /// Submits the chunks that collectives have joined.
    fn submit_joined(&mut self) -> Result<()> {
        self.placements().try_for_each(|placement| match self.recorder.group(placement) {
            Some(_) => self.flush(placement, Reason::Job).map_err(Error::from),
            None => Ok(()),
        })
    }

    /// Submits the chunks with collectives that are as they were at the last look.
    fn submit_paused(&mut self, before: &Looked) -> Looked {
        let mut looked = Vec::new();
        for placement in self.placements() {
            let Some(chunk) = self.recorder.chunk(placement).filter(|chunk| chunk.group.is_some()) else { continue };
            let now = (chunk.number, chunk.nodes.len());
            if !before.contains(&now) {
                looked.push(now);
                continue;
            }
            self.note_pause(placement);
            // A read of a result raises the error.
            let _ = self.flush(placement, Reason::Pause);
        }
        looked
    }

    fn note_pause(&mut self, placement: Placement) {
        let Some(chunk) = self.recorder.chunk(placement) else { return };
        let (Some(group), places) = (chunk.group, chunk.places.clone()) else { return };
        if let Some(ballot) = self.registry.ballot(chunk.replicas(), group) {
            ballot.note_pause(&places);
        }
    }
}

/// Submits the chunks that collectives have joined: the host is about to wait.
///
/// # Errors
/// If they cannot be submitted.
pub fn submit_joined() -> Result<()> {
    if HAVE_JOINED.load(Relaxed) { lock()?.submit_joined() } else { Ok(()) }
}

/// Waits until the ranks have voted on all collectives of a process group that were called. Returns whether they have.
///
/// # Errors
/// If what is recorded cannot be submitted.
pub fn finish_votes(processes: &[i64], lane: u64, timeout: Duration) -> Result<bool> {
    let ballot = {
        let mut engine = lock()?;
        engine.submit_joined()?;
        engine.ballot_of(processes, lane)?
    };
    // The lock is not held during the wait.
    Ok(ballot.is_none_or(|ballot| ballot.finish(timeout)))
}

/// A collective joins a chunk. Looks for pauses from now on, until no chunk has a collective.
pub(crate) fn watch() {
    HAVE_JOINED.store(true, Relaxed);
    static WATCH: LazyLock<SyncSender<()>> = LazyLock::new(|| {
        let (sender, receiver) = mpsc::sync_channel(1);
        let look = move || {
            while receiver.recv().is_ok() {
                let mut looked = Looked::new();
                loop {
                    thread::sleep(PAUSE);
                    // A host that uses the engine does not wait for other ranks with a collective in the chunk at hand.
                    let Some(mut engine) = try_lock() else {
                        looked.clear();
                        continue;
                    };
                    looked = engine.submit_paused(&looked);
                    if looked.is_empty() {
                        break;
                    }
                }
            }
        };
        // Without a thread, chunks end at the next read or wait.
        let _ = thread::Builder::new().name("torchtpu-watch".into()).spawn(look);
        sender
    });
    // It fails if the thread is to look already.
    let _ = WATCH.try_send(());
}
