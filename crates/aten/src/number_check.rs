//! Checks of the numbers among a row's arguments. The numbers are inputs of the program, so they are checked at each
//! call, before it is recorded.

use stablehlo::{DType, Number};

use crate::error::{Error, Result, scalar_type_name};

/// How a number must fit into an element type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// The number converts as in `c10::Scalar::to`: negative integers may wrap into unsigned types.
    Converts,
    /// A lower bound: not above the integer type's range.
    LowerBound,
    /// An upper bound: not below the integer type's range.
    UpperBound,
    /// Not zero after conversion to the integer type.
    Divisor,
}

/// A check of the `index`-th number of the call that is not baked in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberCheck {
    pub index: usize,
    pub dtype: DType,
    pub fit: Fit,
}

impl NumberCheck {
    /// # Errors
    /// As [`Fit::check`].
    pub fn check(&self, number: Number) -> Result<()> {
        self.fit.check(number, self.dtype)
    }
}

impl Fit {
    /// # Errors
    /// A RuntimeError in PyTorch's words where the number does not fit.
    pub fn check(self, number: Number, dtype: DType) -> Result<()> {
        match self {
            Fit::Converts if !converts(number, dtype) => Err(does_not_convert(dtype)),
            Fit::LowerBound if is_above(number, dtype) => Err(outside("min", number, dtype)),
            Fit::UpperBound if !is_above(number, dtype) && number.to_i64() < dtype.lowest().to_i64() => {
                Err(outside("max", number, dtype))
            }
            Fit::Divisor if number.to_i64() << (64 - 8 * dtype.size_bytes()) == 0 => Err(Error::zero_division()),
            _ => Ok(()),
        }
    }
}

fn converts(number: Number, dtype: DType) -> bool {
    match number {
        _ if dtype == DType::Bool => true,
        Number::Bool(_) => true,
        Number::Int(_) if matches!(dtype, DType::I64 | DType::U64) => true,
        Number::Int(i) if dtype.is_integer() => {
            let high = dtype.highest().to_i64();
            let low = if dtype.is_unsigned() { -high } else { dtype.lowest().to_i64() };
            (low..=high).contains(&i)
        }
        Number::Unsigned(_) if dtype.is_integer() => dtype == DType::U64,
        Number::Complex(_, imaginary) if !dtype.is_complex() && imaginary != 0.0 => false,
        Number::Complex(real, imaginary) if dtype.is_complex() => {
            converts(Number::Float(real), dtype.real()) && converts(Number::Float(imaginary), dtype.real())
        }
        _ if dtype.is_integer() => {
            let float = number.to_f64();
            float >= dtype.lowest().to_f64() && float < integer_end(dtype)
        }
        _ => {
            let float = number.to_f64();
            !float.is_finite() || float.abs() <= dtype.real().highest().to_f64()
        }
    }
}

fn is_above(number: Number, dtype: DType) -> bool {
    match number {
        Number::Unsigned(_) => dtype != DType::U64,
        other => other.to_i64() > dtype.highest().to_i64(),
    }
}

/// The first number above all integers of the type: floats are rounded towards zero.
fn integer_end(dtype: DType) -> f64 {
    let bits = 8 * dtype.size_bytes() - usize::from(!dtype.is_unsigned());
    2_f64.powi(bits as i32)
}

/// PyTorch's error for a number, or an element, that does not fit into the type.
pub(crate) fn does_not_convert(dtype: DType) -> Error {
    Error::runtime(format!("value cannot be converted to type {} without overflow", c_name(dtype)))
}

fn outside(bound: &str, number: Number, dtype: DType) -> Error {
    let (number, name) = (as_streams_print(number.to_f64()), scalar_type_name(dtype));
    Error::runtime(format!("Clamp {bound} value {number} is outside the representable range of {name}"))
}

/// A number as C++ streams print it: six digits, with an exponent where it is below -4 or above 5.
fn as_streams_print(number: f64) -> String {
    let text = format!("{number:.5e}");
    let Some((digits, exponent)) = text.split_once('e').and_then(|(digits, e)| Some((digits, e.parse::<i32>().ok()?)))
    else {
        return number.to_string().to_lowercase();
    };
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs());
    }
    without_zeros(&format!("{number:.*}", (5 - exponent) as usize))
}

/// The C++ type that PyTorch's messages about numbers use for an element type.
pub(crate) fn c_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int",
        DType::I64 => "int64_t",
        DType::U16 => "uint16_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        DType::F8E4M3FN => "c10::Float8_e4m3fn",
        DType::F8E5M2 => "c10::Float8_e5m2",
        DType::F8E4M3FNUZ => "c10::Float8_e4m3fnuz",
        DType::F8E5M2FNUZ => "c10::Float8_e5m2fnuz",
        DType::F8E8M0FNU => "c10::Float8_e8m0fnu",
        DType::F4E2M1FNX2 => "c10::Float4_e2m1fn_x2",
        DType::F16 => "c10::Half",
        DType::BF16 => "c10::BFloat16",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::C32 => "c10::complex<c10::Half>",
        DType::C64 => "c10::complex<float>",
        DType::C128 => "c10::complex<double>",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_convert_as_c10_converts_them() {
        let int = |i, dtype| converts(Number::Int(i), dtype);
        assert!(int(255, DType::U8) && int(-255, DType::U8) && int(-128, DType::I8));
        assert!(!int(256, DType::U8) && !int(-256, DType::U8) && !int(128, DType::I8));
        assert!(int(i64::MIN, DType::I64) && int(7, DType::Bool) && int(70_000, DType::BF16));
        assert!(!int(70_000, DType::F16));
        let float = |x, dtype| converts(Number::Float(x), dtype);
        assert!(float(1.5, DType::U8) && float(f64::INFINITY, DType::F16) && float(f64::NAN, DType::F32));
        assert!(!float(-0.5, DType::U8) && !float(f64::NAN, DType::I64) && !float(f64::INFINITY, DType::I64));
        assert!(!float(1e39, DType::F32) && !float(1e39, DType::C64) && float(1e39, DType::F64));
        assert!(converts(Number::Complex(1.0, 0.0), DType::F32) && !converts(Number::Complex(1.0, 2.0), DType::F32));
    }

    #[test]
    fn bounds_and_divisors_are_checked() {
        let fits = |fit: Fit, i, dtype| fit.check(Number::Int(i), dtype).is_ok();
        assert!(fits(Fit::LowerBound, -300, DType::U8) && fits(Fit::UpperBound, 300, DType::U8));
        assert!(!fits(Fit::LowerBound, 300, DType::U8) && !fits(Fit::UpperBound, -1, DType::U8));
        assert!(fits(Fit::Divisor, 257, DType::U8) && !fits(Fit::Divisor, 256, DType::U8));
    }
}
