//! The thread that launches programs when their executables are ready.

use std::sync::LazyLock;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use crate::platform;

/// After this time without a new executable, memory that compilers have freed is returned to the kernel.
const COMPILERS_REST: Duration = Duration::from_millis(200);

/// Calls `launch` on another thread, so the caller may hold locks.
pub(crate) fn wake(launch: fn()) {
    static LAUNCHER: LazyLock<Sender<fn()>> = LazyLock::new(|| {
        let (sender, receiver) = mpsc::channel::<fn()>();
        let work = move || {
            while let Ok(launch) = receiver.recv() {
                launch();
                while let Ok(launch) = receiver.recv_timeout(COMPILERS_REST) {
                    launch();
                }
                platform::return_freed_memory();
            }
        };
        // Without a thread, launches wait for the next flush or read.
        let _ = thread::Builder::new().name("torchtpu-launch".into()).spawn(work);
        sender
    });
    let _ = LAUNCHER.send(launch);
}
