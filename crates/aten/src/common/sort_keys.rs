//! Unsigned integers that compare as elements do.

use stablehlo::{DType, Number, Value};

/// Unsigned integers in the order of the elements of `x`, by the radix-sort mapping: all bits of negative floats are
/// flipped, and the sign bit of other signed numbers. As in PyTorch, NaN is the largest and minus zero equals zero.
/// `None` for float64, because a TPU cannot bitcast it, and for complex types.
pub(crate) fn keys(x: Value<'_>) -> Option<Value<'_>> {
    let dtype = x.dtype();
    let unsigned = unsigned(dtype)?;
    Some(match dtype {
        DType::Bool => x.convert(DType::U8),
        t if t.is_unsigned() => x,
        t if t.is_integer() => x.bitcast(unsigned) ^ sign(unsigned),
        _ => {
            let bits = x.eq(0.0).select(x.splat_like(0.0), x).bitcast(unsigned);
            let negative = (bits & sign(unsigned)).ne(0);
            let ordered = negative.select(!bits, bits | sign(unsigned));
            x.is_nan().select(bits.splat_like(unsigned.highest()), ordered)
        }
    })
}

/// The inverse of [`keys`].
pub(crate) fn elements(keys: Value<'_>, dtype: DType) -> Value<'_> {
    let unsigned = keys.dtype();
    match dtype {
        DType::Bool => keys.convert(DType::Bool),
        t if t.is_unsigned() => keys,
        t if t.is_integer() => (keys ^ sign(unsigned)).bitcast(dtype),
        _ => {
            let positive = (keys & sign(unsigned)).ne(0);
            let numbers = positive.select(keys ^ sign(unsigned), !keys).bitcast(dtype);
            let nan = keys.eq(unsigned.highest());
            nan.select(numbers.splat_like(f64::NAN), numbers)
        }
    }
}

/// A mask of the elements that are minus zero, for floats of at most 32 bits.
pub(crate) fn is_minus_zero(x: Value<'_>) -> Value<'_> {
    match unsigned(x.dtype()) {
        Some(unsigned) => x.bitcast(unsigned).eq(sign(unsigned)),
        None => x.splat_like(0).ne(0.0),
    }
}

fn unsigned(dtype: DType) -> Option<DType> {
    match dtype {
        DType::Bool | DType::U8 | DType::I8 => Some(DType::U8),
        DType::U16 | DType::I16 | DType::F16 | DType::BF16 => Some(DType::U16),
        DType::U32 | DType::I32 | DType::F32 => Some(DType::U32),
        DType::U64 | DType::I64 => Some(DType::U64),
        _ => None,
    }
}

fn sign(unsigned: DType) -> Number {
    Number::Int(1 << (8 * unsigned.size_bytes() - 1))
}
