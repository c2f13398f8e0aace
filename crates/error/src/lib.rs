//! The error of all crates: a message and the exception of PyTorch that it becomes.
//!
//! `crates/torchtpu` makes it an exception where Python calls, and `csrc/errors.cpp` where PyTorch calls.

/// Which exception an error becomes. `csrc/abi.h` lists them.
pub use abi::ErrorKind;

/// What went wrong, for the user to read, in PyTorch's words where it has them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: ErrorKind,
    pub message: String,
    /// Whether the message ends with the line where it began. What fails for want of a lost value fails for the same
    /// reason as that.
    is_located: bool,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), is_located: false }
    }

    /// PyTorch's RuntimeError, the usual one for bad shapes and dtypes.
    pub fn runtime(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Runtime, message)
    }

    pub fn not_implemented(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotImplemented, message)
    }

    pub fn index(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Index, message)
    }

    /// What PyTorch's CPU says of an integer divided by zero.
    pub fn zero_division() -> Error {
        Error::runtime("ZeroDivisionError")
    }

    /// The same error with the line of the user's program whose call it concerns behind; an empty one is not known.
    pub fn at(self, line: &str) -> Error {
        if self.is_located || line.is_empty() {
            return self;
        }
        Error { message: format!("{} [at {line}]", self.message), is_located: true, ..self }
    }

    /// The same error with the operators that it concerns in front.
    pub fn within(self, what: &str) -> Error {
        Error { message: format!("{what}: {}", self.message), ..self }
    }
}
