//! Random numbers from random bits.

use stablehlo::{DType, Value};

/// The unsigned type whose bits become one float of type `dtype`.
pub(crate) fn bits_type(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::U64 } else { DType::U32 }
}

/// The number of bits of the mantissa, including the leading one.
pub(crate) fn digits(dtype: DType) -> i64 {
    match dtype.real() {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F64 => 53,
        _ => 24,
    }
}

/// The `count` highest of these random bits, as a signed number.
fn leading_bits(bits: Value<'_>, count: i64) -> Value<'_> {
    let signed = if bits.dtype() == DType::U64 { DType::I64 } else { DType::I32 };
    let width = 8 * bits.dtype().size_bytes() as i64;
    bits.shift_right_logical(width - count).convert(signed)
}

/// The float type that random bits of this type become.
fn float_of_bits(bits: Value<'_>) -> DType {
    if bits.dtype() == DType::U64 { DType::F64 } else { DType::F32 }
}

/// Uniform numbers in [0, 1) with `digits` random bits.
pub(crate) fn half_open(bits: Value<'_>, digits: i64) -> Value<'_> {
    leading_bits(bits, digits).convert(float_of_bits(bits)) * 2f64.powi(-(digits as i32))
}

/// Uniform numbers in (0, 1): odd multiples of half a unit, which floats represent exactly.
pub(crate) fn open(bits: Value<'_>) -> Value<'_> {
    let dtype = float_of_bits(bits);
    let digits = digits(dtype);
    (leading_bits(bits, digits - 1) * 2 + 1).convert(dtype) * 2f64.powi(-(digits as i32))
}

/// Standard normal numbers by the inverse of the distribution function. It takes one draw and one polynomial for each
/// number; Box and Muller's method takes a logarithm, a root and two trigonometric functions.
pub(crate) fn normal(bits: Value<'_>) -> Value<'_> {
    let dtype = float_of_bits(bits);
    let digits = digits(dtype);
    // Odd multiples of half a unit: symmetric, and never ±1, where the inverse is infinite.
    let numerator = leading_bits(bits, digits) * 2 + (1 - (1i64 << digits));
    (numerator.convert(dtype) * 2f64.powi(-(digits as i32))).erf_inv() * std::f64::consts::SQRT_2
}
