//! The one error of the crate.

/// Which of PyTorch's exceptions an error is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    Runtime,
    NotImplemented,
    Index,
    Type,
    Value,
}

/// Why an operator cannot be lowered with these arguments, in PyTorch's words where it has them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: ErrorKind,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
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
}

impl From<stablehlo::Error> for Error {
    fn from(error: stablehlo::Error) -> Error {
        Error::runtime(format!("internal error in a lowering: {error}"))
    }
}
