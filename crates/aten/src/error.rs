//! The one error of the crate.

use stablehlo::DType;

/// Which of PyTorch's exceptions an error is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    Runtime,
    NotImplemented,
    Index,
    Type,
    Value,
    LinAlg,
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

    /// What PyTorch's CPU says of an integer divided by zero.
    pub(crate) fn zero_division() -> Error {
        Error::runtime("ZeroDivisionError")
    }

    /// What PyTorch's kernels say of an element type that they do not take.
    pub(crate) fn not_implemented_for(operator: &str, dtype: DType) -> Error {
        let (name, _) = operator.split_once('.').unwrap_or((operator, ""));
        let scalar_type = scalar_type_name(dtype);
        Error::not_implemented(format!("\"{name}\" not implemented for '{scalar_type}'"))
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

/// PyTorch's name of the `c10::ScalarType`.
pub(crate) fn scalar_type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "Bool",
        DType::U8 => "Byte",
        DType::I8 => "Char",
        DType::I16 => "Short",
        DType::I32 => "Int",
        DType::I64 => "Long",
        DType::U16 => "UInt16",
        DType::U32 => "UInt32",
        DType::U64 => "UInt64",
        DType::F16 => "Half",
        DType::BF16 => "BFloat16",
        DType::F32 => "Float",
        DType::F64 => "Double",
        DType::C64 => "ComplexFloat",
        DType::C128 => "ComplexDouble",
    }
}
