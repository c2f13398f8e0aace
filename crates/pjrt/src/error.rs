//! Errors reported by plugins.

use std::fmt;
use std::mem::offset_of;
use std::ptr::NonNull;

use crate::api::{Api, Struct, string};
use crate::sys;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({function}: {code})")]
pub struct Error {
    /// The function of the C API that failed, or whose arguments this crate refused.
    pub function: &'static str,
    /// The kind of failure.
    pub code: Code,
    /// The plugin's message.
    pub message: String,
}

impl Error {
    /// An error of this crate.
    pub(crate) fn new(function: &'static str, code: Code, message: impl Into<String>) -> Self {
        Self { function, code, message: message.into() }
    }

    /// Arguments that are not passed to the plugin.
    #[cold]
    pub(crate) fn invalid(function: &'static str, message: impl Into<String>) -> Self {
        Self::new(function, Code::InvalidArgument, message)
    }

    /// Reads and frees a plugin's error.
    ///
    /// # Safety
    /// `error` came from this plugin, and the caller transfers its ownership.
    #[cold]
    pub(crate) unsafe fn take(api: Api, function: &'static str, error: NonNull<sys::PJRT_Error>) -> Self {
        let mut code = sys::PJRT_Error_GetCode_Args { error: error.as_ptr(), ..Struct::new() };
        // SAFETY: the error is live. This call only fails if the table lacks it, so it does not recurse.
        let code = match unsafe { api.call(&mut code) } {
            Ok(()) => Code::from_raw(code.code),
            Err(_) => Code::Unknown,
        };

        let mut message = sys::PJRT_Error_Message_Args { error: error.as_ptr(), ..Struct::new() };
        type Message = unsafe extern "C" fn(*mut sys::PJRT_Error_Message_Args);
        if let Some(call) = api.function::<Message>(offset_of!(sys::PJRT_Api, PJRT_Error_Message)) {
            // SAFETY: the error is live.
            unsafe { call(&mut message) };
        }
        // SAFETY: the message lives as long as the error does.
        let message = unsafe { string(message.message, message.message_size) };

        let mut destroy = sys::PJRT_Error_Destroy_Args { error: error.as_ptr(), ..Struct::new() };
        type Destroy = unsafe extern "C" fn(*mut sys::PJRT_Error_Destroy_Args);
        if let Some(call) = api.function::<Destroy>(offset_of!(sys::PJRT_Api, PJRT_Error_Destroy)) {
            // SAFETY: the caller transferred the error, and it is not used again.
            unsafe { call(&mut destroy) };
        }
        Self { function, code, message }
    }

    /// Whether memory was short. XLA's CPU client gives a run that cannot allocate its results the code for broken
    /// invariants, and says it in the message.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == Code::ResourceExhausted
            || self.code == Code::Internal && self.message.contains("Out of memory allocating")
    }
}

impl From<Error> for error::Error {
    fn from(error: Error) -> Self {
        if error.is_out_of_memory() {
            return Self::new(error::ErrorKind::OutOfMemory, format!("tpu out of memory. {error}"));
        }
        Self::runtime(error.to_string())
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $constant:ident, $text:literal;)*) => {
        /// The kinds of failure: the codes of `absl::Status`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            pub(crate) fn from_raw(raw: sys::PJRT_Error_Code) -> Self {
                match raw { $(sys::$constant => Self::$name,)* _ => Self::Unknown }
            }

            /// The name in capitals, such as `RESOURCE_EXHAUSTED`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// The operation was cancelled.
    Cancelled = PJRT_Error_Code_CANCELLED, "CANCELLED";
    /// No other code fits, or this crate does not know the plugin's code.
    Unknown = PJRT_Error_Code_UNKNOWN, "UNKNOWN";
    /// The arguments are invalid in any state, such as a program that does not parse.
    InvalidArgument = PJRT_Error_Code_INVALID_ARGUMENT, "INVALID_ARGUMENT";
    /// The deadline has passed.
    DeadlineExceeded = PJRT_Error_Code_DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED";
    /// A requested object does not exist.
    NotFound = PJRT_Error_Code_NOT_FOUND, "NOT_FOUND";
    /// An object to be created exists already.
    AlreadyExists = PJRT_Error_Code_ALREADY_EXISTS, "ALREADY_EXISTS";
    /// The caller does not have permission.
    PermissionDenied = PJRT_Error_Code_PERMISSION_DENIED, "PERMISSION_DENIED";
    /// A resource is exhausted, usually device memory.
    ResourceExhausted = PJRT_Error_Code_RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED";
    /// The current state does not allow the operation.
    FailedPrecondition = PJRT_Error_Code_FAILED_PRECONDITION, "FAILED_PRECONDITION";
    /// The operation was aborted.
    Aborted = PJRT_Error_Code_ABORTED, "ABORTED";
    /// Past the valid range.
    OutOfRange = PJRT_Error_Code_OUT_OF_RANGE, "OUT_OF_RANGE";
    /// The plugin does not implement this.
    Unimplemented = PJRT_Error_Code_UNIMPLEMENTED, "UNIMPLEMENTED";
    /// An invariant is broken.
    Internal = PJRT_Error_Code_INTERNAL, "INTERNAL";
    /// A service or the device cannot be reached now.
    Unavailable = PJRT_Error_Code_UNAVAILABLE, "UNAVAILABLE";
    /// Data is lost or corrupt.
    DataLoss = PJRT_Error_Code_DATA_LOSS, "DATA_LOSS";
    /// The caller is not authenticated.
    Unauthenticated = PJRT_Error_Code_UNAUTHENTICATED, "UNAUTHENTICATED";
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
