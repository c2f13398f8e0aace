//! Errors for arguments that an operator does not support.

pub use ::error::{Error, ErrorKind, Result};
use stablehlo::DType;

/// PyTorch's error for an element type that a kernel does not support.
pub(crate) fn not_implemented_for(operator: &str, dtype: DType) -> Error {
    let (name, _) = operator.split_once('.').unwrap_or((operator, ""));
    let scalar_type = scalar_type_name(dtype);
    Error::not_implemented(format!("\"{name}\" not implemented for '{scalar_type}'"))
}

/// PyTorch's error for a result that its target cannot hold.
pub(crate) fn cannot_be_cast(from: DType, to: DType) -> Error {
    let [from, to] = [from, to].map(scalar_type_name);
    Error::runtime(format!("result type {from} can't be cast to the desired output type {to}"))
}

/// A RuntimeError with this message where `holds` is false.
pub(crate) fn require(holds: bool, message: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::runtime(message)) }
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
        DType::F8E4M3FN => "Float8_e4m3fn",
        DType::F8E5M2 => "Float8_e5m2",
        DType::F8E4M3FNUZ => "Float8_e4m3fnuz",
        DType::F8E5M2FNUZ => "Float8_e5m2fnuz",
        DType::F8E8M0FNU => "Float8_e8m0fnu",
        DType::F4E2M1FNX2 => "Float4_e2m1fn_x2",
        DType::F16 => "Half",
        DType::BF16 => "BFloat16",
        DType::F32 => "Float",
        DType::F64 => "Double",
        DType::C32 => "ComplexHalf",
        DType::C64 => "ComplexFloat",
        DType::C128 => "ComplexDouble",
    }
}
