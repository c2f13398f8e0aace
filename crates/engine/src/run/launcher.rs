//! The thread that launches what has waited for its executable.

use std::sync::LazyLock;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use crate::platform;

/// When no executable was made for so long, the memory that compilers have freed goes back to the kernel.
const COMPILERS_REST: Duration = Duration::from_millis(200);

/// Has `launch` called on another thread. So whoever holds locks may call this.
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
