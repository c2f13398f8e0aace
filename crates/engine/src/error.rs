//! The engine's error: a message and the exception that it becomes.

use crate::lines::Line;

/// Which exception an error becomes in Python.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    Runtime,
    NotImplemented,
    OutOfMemory,
    Index,
    Type,
    Value,
    LinAlg,
}

/// What went wrong, for the user to read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: ErrorKind,
    pub message: String,
    /// Whether the message ends with the line of the call. An error that is passed on because a value is lost has the line
    /// of the call that lost it.
    is_located: bool,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), is_located: false }
    }

    pub fn runtime(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Runtime, message)
    }

    /// The error with the line of its call at the end of the message.
    pub fn at(self, line: Line) -> Error {
        if self.is_located || !line.is_known() {
            return self;
        }
        Error { message: format!("{} [at {}]", self.message, line.name()), is_located: true, ..self }
    }

    /// The error with the names of its operators at the beginning of the message.
    pub fn within(self, what: &str) -> Error {
        Error { message: format!("{what}: {}", self.message), ..self }
    }
}

impl From<pjrt::Error> for Error {
    fn from(error: pjrt::Error) -> Error {
        let kind = match error.code {
            pjrt::Code::ResourceExhausted => ErrorKind::OutOfMemory,
            _ => ErrorKind::Runtime,
        };
        let prefix = if kind == ErrorKind::OutOfMemory { "tpu out of memory: " } else { "" };
        Error::new(kind, format!("{prefix}{error}"))
    }
}

impl From<aten::Error> for Error {
    fn from(error: aten::Error) -> Error {
        let kind = match error.kind {
            aten::ErrorKind::Runtime => ErrorKind::Runtime,
            aten::ErrorKind::NotImplemented => ErrorKind::NotImplemented,
            aten::ErrorKind::Index => ErrorKind::Index,
            aten::ErrorKind::Type => ErrorKind::Type,
            aten::ErrorKind::Value => ErrorKind::Value,
            aten::ErrorKind::LinAlg => ErrorKind::LinAlg,
        };
        Error::new(kind, error.message)
    }
}
