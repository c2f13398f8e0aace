//! Element types, and numbers as StableHLO text.

use std::fmt;

/// The element type of a StableHLO tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DType {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F8E4M3FN,
    F8E5M2,
    F8E4M3FNUZ,
    F8E5M2FNUZ,
    /// Powers of two, the scales of blocks: the exponent of a float32. Programs have it as the bits of a `U8`, which each
    /// compiler takes, and convert it by way of `F32`.
    F8E8M0FNU,
    /// Pairs of 4-bit floats, the first in the lower half. They are stored and multiplied. Programs have them as the
    /// bits of a `U8`.
    F4E2M1FNX2,
    F16,
    BF16,
    F32,
    F64,
    /// Pairs of `F16`. StableHLO has no such type: programs have the pair as the bits of a `U32`, the real part in the
    /// lower half, and compute in `C64`.
    C32,
    C64,
    C128,
}

impl DType {
    /// The unsigned integers of this many bytes, of which there are 1, 2, 4 and 8.
    pub const fn unsigned(bytes: usize) -> DType {
        match bytes {
            1 => DType::U8,
            2 => DType::U16,
            4 => DType::U32,
            _ => DType::U64,
        }
    }

    /// Bytes of one element in host memory.
    pub const fn size_bytes(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::F8E4M3FN | DType::F8E5M2 | DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => 1,
            DType::F8E8M0FNU | DType::F4E2M1FNX2 => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 | DType::C32 => 4,
            DType::U64 | DType::I64 | DType::F64 | DType::C64 => 8,
            DType::C128 => 16,
        }
    }

    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::F4E2M1FNX2) || self.is_float8()
    }

    /// Whether this is a type of 8 bits. Programs convert it by way of `F32`.
    pub const fn is_float8(self) -> bool {
        matches!(self, DType::F8E4M3FN | DType::F8E5M2 | DType::F8E4M3FNUZ | DType::F8E5M2FNUZ | DType::F8E8M0FNU)
    }

    pub const fn is_complex(self) -> bool {
        matches!(self, DType::C32 | DType::C64 | DType::C128)
    }

    /// Whether this is an integer type, signed or unsigned. `Bool` is not.
    pub const fn is_integer(self) -> bool {
        !self.is_float() && !self.is_complex() && !matches!(self, DType::Bool)
    }

    pub const fn is_unsigned(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    /// The real type of a complex type; other types are returned unchanged.
    pub const fn real(self) -> DType {
        match self {
            DType::C32 => DType::F16,
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            other => other,
        }
    }

    /// The complex type with parts of this type.
    pub const fn complex(self) -> DType {
        match self {
            DType::F16 | DType::C32 => DType::C32,
            DType::F64 | DType::C128 => DType::C128,
            _ => DType::C64,
        }
    }

    /// The type in which PyTorch computes: float32 for the 16-bit floats, alone or as parts.
    pub const fn opmath(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            DType::C32 => DType::C64,
            other => other,
        }
    }

    /// The integer type through which PyTorch converts floats to this type, so that they wrap around. XLA's own
    /// conversion gives the nearest value of the type. A conversion to `uint8` goes through int64 in PyTorch's source;
    /// compilers take int32 registers for the others.
    pub const fn converts_through(self) -> Option<DType> {
        match self {
            DType::U8 => Some(DType::I64),
            DType::I8 | DType::I16 | DType::U16 => Some(DType::I32),
            _ => None,
        }
    }

    /// The lowest finite value.
    pub fn lowest(self) -> Number {
        match self {
            DType::Bool => Number::Bool(false),
            DType::I8 => Number::Int(i8::MIN.into()),
            DType::I16 => Number::Int(i16::MIN.into()),
            DType::I32 => Number::Int(i32::MIN.into()),
            DType::I64 => Number::Int(i64::MIN),
            t if t.is_unsigned() => Number::Int(0),
            t => Number::Float(-t.max_finite()),
        }
    }

    /// The integers for counts up to `most` and for positions before it: int32 where it holds them, else int64.
    pub fn of_counts(most: i64) -> DType {
        if most <= i32::MAX.into() { DType::I32 } else { DType::I64 }
    }

    /// The largest finite value.
    pub fn highest(self) -> Number {
        match self {
            DType::Bool => Number::Bool(true),
            DType::U8 => Number::Int(u8::MAX.into()),
            DType::U16 => Number::Int(u16::MAX.into()),
            DType::U32 => Number::Int(u32::MAX.into()),
            DType::U64 => Number::Int(-1),
            DType::I8 => Number::Int(i8::MAX.into()),
            DType::I16 => Number::Int(i16::MAX.into()),
            DType::I32 => Number::Int(i32::MAX.into()),
            DType::I64 => Number::Int(i64::MAX),
            t => Number::Float(t.max_finite()),
        }
    }

    fn max_finite(self) -> f64 {
        match self.real() {
            DType::F8E4M3FN => 448.0,
            DType::F8E4M3FNUZ => 240.0,
            DType::F8E5M2 | DType::F8E5M2FNUZ => 57344.0,
            DType::F8E8M0FNU => 2.0f64.powi(127),
            DType::F4E2M1FNX2 => 6.0,
            DType::F16 => half::f16::MAX.to_f64(),
            DType::BF16 => half::bf16::MAX.to_f64(),
            DType::F32 => f32::MAX.into(),
            _ => f64::MAX,
        }
    }

    /// The initial value of a maximum: minus infinity for floats, the lowest value otherwise.
    pub fn max_identity(self) -> Number {
        if self.is_float() { Number::Float(f64::NEG_INFINITY) } else { self.lowest() }
    }

    /// The initial value of a minimum: infinity for floats, the highest value otherwise.
    pub fn min_identity(self) -> Number {
        if self.is_float() { Number::Float(f64::INFINITY) } else { self.highest() }
    }

    /// The distance from 1 to the next representable value.
    pub fn epsilon(self) -> f64 {
        match self.real() {
            DType::F8E4M3FN | DType::F8E4M3FNUZ => 0.125,
            DType::F8E5M2 | DType::F8E5M2FNUZ => 0.25,
            DType::F8E8M0FNU => 1.0,
            DType::F4E2M1FNX2 => 0.5,
            DType::F16 => half::f16::EPSILON.to_f64(),
            DType::BF16 => half::bf16::EPSILON.to_f64(),
            DType::F32 => f32::EPSILON.into(),
            _ => f64::EPSILON,
        }
    }

    /// The smallest positive float32 or float64 with all digits.
    pub fn smallest_normal(self) -> f64 {
        if self.real() == DType::F64 { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE.into() }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::Bool => "i1",
            DType::U8 | DType::F8E8M0FNU | DType::F4E2M1FNX2 => "ui8",
            DType::U16 => "ui16",
            DType::U32 | DType::C32 => "ui32",
            DType::U64 => "ui64",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::F8E4M3FN => "f8E4M3FN",
            DType::F8E5M2 => "f8E5M2",
            DType::F8E4M3FNUZ => "f8E4M3FNUZ",
            DType::F8E5M2FNUZ => "f8E5M2FNUZ",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::C64 => "complex<f32>",
            DType::C128 => "complex<f64>",
        })
    }
}

/// A number that is known when the program is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Bool(bool),
    Int(i64),
    /// An integer that does not fit into i64.
    Unsigned(u64),
    Float(f64),
    Complex(f64, f64),
}

impl Number {
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Bool(b) => b.into(),
            Number::Int(i) => i as f64,
            Number::Unsigned(i) => i as f64,
            Number::Float(f) | Number::Complex(f, _) => f,
        }
    }

    pub fn to_i64(self) -> i64 {
        match self {
            Number::Bool(b) => b.into(),
            Number::Int(i) => i,
            Number::Unsigned(i) => i as i64,
            Number::Float(f) | Number::Complex(f, _) => f as i64,
        }
    }

    /// The number as an unsigned integer: negative numbers wrap.
    pub fn to_u64(self) -> u64 {
        match self {
            Number::Float(f) | Number::Complex(f, _) if f >= 0.0 => f as u64,
            other => other.to_i64() as u64,
        }
    }

    pub fn is_zero(self) -> bool {
        match self {
            Number::Complex(re, im) => re == 0.0 && im == 0.0,
            other => other.to_f64() == 0.0,
        }
    }

    /// The number as an element of a `dense<…>` attribute of type `dtype`, converted as in C. Floats are written as
    /// hexadecimal bits: this is exact, and the only form that MLIR accepts for every value.
    pub fn literal(self, dtype: DType) -> String {
        match dtype {
            DType::Bool => (!self.is_zero() || self.to_f64().is_nan()).to_string(),
            t if t.is_complex() => {
                let (re, im) = match self {
                    Number::Complex(re, im) => (re, im),
                    other => (other.to_f64(), 0.0),
                };
                if t == DType::C32 {
                    return half_pair(re, im).to_string();
                }
                format!("({}, {})", float_bits(re, t.real()), float_bits(im, t.real()))
            }
            DType::F4E2M1FNX2 => (self.to_i64() as u8).to_string(),
            t if t.is_float() => float_bits(self.to_f64(), t),
            DType::U8 => (self.to_i64() as u8).to_string(),
            DType::U16 => (self.to_i64() as u16).to_string(),
            DType::U32 => (self.to_i64() as u32).to_string(),
            DType::U64 => self.to_u64().to_string(),
            DType::I8 => (self.to_i64() as i8).to_string(),
            DType::I16 => (self.to_i64() as i16).to_string(),
            DType::I32 => (self.to_i64() as i32).to_string(),
            _ => self.to_i64().to_string(),
        }
    }
}

/// The bits of a [`DType::C32`].
pub fn half_pair(re: f64, im: f64) -> u32 {
    let bits = |part| u32::from(half::f16::from_f64(part).to_bits());
    bits(re) | bits(im) << 16
}

fn float_bits(value: f64, dtype: DType) -> String {
    match dtype {
        DType::F16 => format!("0x{:04X}", half::f16::from_f64(value).to_bits()),
        DType::BF16 => format!("0x{:04X}", half::bf16::from_f64(value).to_bits()),
        DType::F32 => format!("0x{:08X}", (value as f32).to_bits()),
        _ => format!("0x{:016X}", value.to_bits()),
    }
}

macro_rules! number_from {
    ($($from:ty => $variant:ident as $to:ty),*) => {
        $(impl From<$from> for Number {
            fn from(value: $from) -> Number {
                Number::$variant(value as $to)
            }
        })*
    };
}
number_from!(bool => Bool as bool, i32 => Int as i64, i64 => Int as i64, usize => Int as i64, f64 => Float as f64);
