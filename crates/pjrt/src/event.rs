//! Events: the completion of asynchronous work.

use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use crate::api::{Api, Struct};
use crate::error::{Error, Result};
use crate::sys;

/// How long to sleep between questions whether work is done, after the plugin failed to wait for it.
const PAUSE: Duration = Duration::from_millis(1);

/// The completion of asynchronous work.
pub struct Event {
    api: Api,
    raw: NonNull<sys::PJRT_Event>,
}

/// A callback for an event. It owns the event, because some plugins need the event until the callback has run.
struct Waiter<F> {
    event: Arc<Event>,
    then: F,
}

impl Event {
    /// Wraps an event from a plugin; `None` for a null pointer.
    ///
    /// # Safety
    /// `raw` is null, or a live event of this plugin without another owner.
    #[inline]
    pub(crate) unsafe fn from_raw(api: Api, raw: *mut sys::PJRT_Event) -> Option<Self> {
        NonNull::new(raw).map(|raw| Self { api, raw })
    }

    /// Waits until the work is done.
    ///
    /// # Errors
    /// The error of the work, or of the wait.
    pub fn wait(&self) -> Result<()> {
        let mut arguments = sys::PJRT_Event_Await_Args { event: self.raw.as_ptr(), ..Struct::new() };
        // SAFETY: the event is live.
        let result = unsafe { self.api.call(&mut arguments) };
        // If the wait itself fails, the work may still write to memory that the caller then frees.
        while result.is_err() && self.is_ready().is_ok_and(|is_ready| !is_ready) {
            sleep(PAUSE);
        }
        result
    }

    /// Whether the work is done, or has failed.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn is_ready(&self) -> Result<bool> {
        let mut arguments = sys::PJRT_Event_IsReady_Args { event: self.raw.as_ptr(), ..Struct::new() };
        // SAFETY: the event is live.
        unsafe { self.api.call(&mut arguments) }?;
        Ok(arguments.is_ready)
    }

    /// Calls `then` once, when the work is done or has failed: on one of the plugin's threads, or before this
    /// returns. `then` should be fast, and must not own the client.
    pub fn on_ready<F>(self: Arc<Self>, then: F)
    where
        F: FnOnce(Result<()>) + Send + 'static,
    {
        let (api, raw) = (self.api, self.raw);
        let waiter = Box::into_raw(Box::new(Waiter { event: self, then }));
        let mut arguments = sys::PJRT_Event_OnReady_Args {
            event: raw.as_ptr(),
            callback: Some(happened::<F>),
            user_arg: waiter.cast(),
            ..Struct::new()
        };
        // SAFETY: the waiter keeps the event alive, and the callback takes back the box.
        if unsafe { api.call(&mut arguments) }.is_err() {
            // SAFETY: a callback that was not registered is never called, so the box is still ours.
            let Waiter { event, then } = *unsafe { Box::from_raw(waiter) };
            then(event.wait());
        }
    }
}

/// The callback for plugins. It takes ownership of the error.
unsafe extern "C" fn happened<F>(error: *mut sys::PJRT_Error, waiter: *mut c_void)
where
    F: FnOnce(Result<()>) + Send + 'static,
{
    // A panic must not cross the plugin's frames; the panic hook has printed it.
    let caught = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: this is the box that `on_ready` registered, and the callback is called once.
        let Waiter { event, then } = *unsafe { Box::from_raw(waiter.cast::<Waiter<F>>()) };
        let result = match NonNull::new(error) {
            None => Ok(()),
            // SAFETY: the plugin transfers ownership of the error.
            Some(error) => Err(unsafe { Error::take(event.api, "PJRT_Event_OnReady", error) }),
        };
        then(result);
    }));
    // The payload of a panic may itself panic when dropped.
    std::mem::forget(caught);
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Event").field(&self.raw).finish()
    }
}

impl Drop for Event {
    #[inline]
    fn drop(&mut self) {
        let mut arguments = sys::PJRT_Event_Destroy_Args { event: self.raw.as_ptr(), ..Struct::new() };
        // SAFETY: the event is ours and not used again. An error cannot be reported here.
        let _ = unsafe { self.api.call(&mut arguments) };
    }
}

// SAFETY: PJRT functions may be called on an event from any thread.
unsafe impl Send for Event {}
// SAFETY: see above.
unsafe impl Sync for Event {}
