//! The error type of all crates: a message and the kind of Python exception.
//!
//! `crates/torchtpu` raises the exception for calls from Python, `csrc/errors.cpp` for calls from PyTorch.

/// The exception that is raised. `csrc/abi.h` lists the kinds.
pub use abi::ErrorKind;

/// The error message for the user. It has PyTorch's wording where PyTorch has the same error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: ErrorKind,
    pub message: String,
    /// Whether the message ends with the line of the user's program. An error about a lost value repeats the error
    /// that lost it, with its line.
    is_located: bool,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), is_located: false }
    }

    /// PyTorch's RuntimeError, the usual exception for bad shapes and dtypes.
    pub fn runtime(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Runtime, message)
    }

    pub fn not_implemented(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotImplemented, message)
    }

    pub fn index(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Index, message)
    }

    /// The error of PyTorch's CPU for an integer division by zero.
    pub fn zero_division() -> Error {
        Error::runtime("ZeroDivisionError")
    }

    /// The same error with the line of the user's program appended. `line` may be empty if it is unknown.
    pub fn at(self, line: &str) -> Error {
        if self.is_located || line.is_empty() {
            return self;
        }
        Error { message: format!("{} [at {line}]", self.message), is_located: true, ..self }
    }

    /// The same error with the names of the operators prepended.
    pub fn within(self, what: &str) -> Error {
        Error { message: format!("{what}: {}", self.message), ..self }
    }
}
