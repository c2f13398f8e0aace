//! PyTorch's type promotion (`c10::promoteTypes` and `at::native::result_type`).

use stablehlo::DType;

/// The smallest type that holds both, from PyTorch's table.
pub fn promote_types(a: DType, b: DType) -> DType {
    use DType::*;
    if a == b {
        return a;
    }
    let rank = |t: DType| match t {
        Bool => 0,
        t if t.is_integer() => 1,
        t if t.is_float() => 2,
        _ => 3,
    };
    let (low, high) = if rank(a) <= rank(b) { (a, b) } else { (b, a) };
    match (rank(low), rank(high)) {
        (0, _) => high,
        (1, 1) => promote_integers(low, high),
        (1, _) => high,
        (2, 2) => match (low, high) {
            (F64, _) | (_, F64) => F64,
            // float16 with bfloat16, and either with float32.
            _ => F32,
        },
        (2, 3) => match (low, high) {
            (F64, _) => C128,
            (F16, C32) => C32,
            (_, C32) => C64,
            _ => high,
        },
        _ if low == C128 || high == C128 => C128,
        _ => C64,
    }
}

/// Whether a result may be written to a tensor of another type (`c10::canCast`).
pub fn can_cast(from: DType, to: DType) -> bool {
    let kind = |dtype: DType| match dtype {
        DType::Bool => 0,
        dtype if dtype.is_complex() => 3,
        dtype if dtype.is_float() => 2,
        _ => 1,
    };
    kind(from) <= kind(to)
}

fn promote_integers(a: DType, b: DType) -> DType {
    use DType::*;
    let (a_unsigned, b_unsigned) = (a.is_unsigned(), b.is_unsigned());
    let wider = if a.size_bytes() >= b.size_bytes() { a } else { b };
    if a_unsigned == b_unsigned {
        return wider;
    }
    let (unsigned, signed) = if a_unsigned { (a, b) } else { (b, a) };
    if signed.size_bytes() > unsigned.size_bytes() {
        return signed;
    }
    match unsigned {
        U8 => I16,
        U16 => I32,
        _ => I64,
    }
}

/// The kind of an operand in a promotion, by decreasing priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Category {
    /// A tensor of at least one dimension.
    Dimensional,
    /// A 0-d tensor.
    ZeroDim,
    /// A Python number.
    Wrapped,
}

/// The common type of operands, as `at::result_type` computes it.
pub fn result_type(operands: &[(DType, Category)], default_dtype: DType) -> DType {
    let of = |category: Category| {
        operands
            .iter()
            .filter(|(_, c)| *c == category)
            .map(|&(dtype, c)| match c {
                Category::Wrapped if dtype.is_complex() => default_dtype.complex(),
                Category::Wrapped if dtype.is_float() => default_dtype,
                _ => dtype,
            })
            .reduce(promote_types)
    };
    let combine = |higher: Option<DType>, lower: Option<DType>| match (higher, lower) {
        (Some(high), Some(low)) => Some(match (high, low) {
            (high, _) if high.is_complex() => high,
            (high, low) if high.is_float() => {
                if low.is_complex() {
                    high.complex()
                } else {
                    high
                }
            }
            (high, low) if high == DType::Bool || low.is_float() || low.is_complex() => promote_types(high, low),
            (high, _) => high,
        }),
        (high, low) => high.or(low),
    };
    let tensors = combine(of(Category::Dimensional), of(Category::ZeroDim));
    combine(tensors, of(Category::Wrapped)).unwrap_or(default_dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Category::*;
    use DType::*;

    #[test]
    fn follows_pytorch() {
        assert!(can_cast(C64, C128) && can_cast(I64, F16) && can_cast(Bool, U8));
        assert!(!can_cast(C64, F64) && !can_cast(F32, I64) && !can_cast(U8, Bool));
        assert_eq!(promote_types(U8, I8), I16);
        assert_eq!(promote_types(F16, BF16), F32);
        assert_eq!(promote_types(I64, F16), F16);
        assert_eq!(promote_types(C64, F64), C128);
        assert_eq!(result_type(&[(I32, Dimensional), (F64, Wrapped)], F32), F32);
        assert_eq!(result_type(&[(BF16, Dimensional), (F32, ZeroDim)], F32), BF16);
        assert_eq!(result_type(&[(I32, Dimensional), (F64, ZeroDim)], F32), F64);
        assert_eq!(result_type(&[(Bool, Dimensional), (I64, Wrapped)], F32), I64);
        assert_eq!(result_type(&[(U8, Dimensional), (I64, Wrapped)], F32), U8);
        assert_eq!(result_type(&[(F32, Dimensional), (C128, Wrapped)], F32), C64);
    }
}
