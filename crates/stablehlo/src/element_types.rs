//! The element types that operations take.

use crate::builder::{Builder, Value};
use crate::dtype::DType;
use crate::refusal::Refusal;

/// A set of element types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DTypes(u32);

impl DTypes {
    pub const BOOL: DTypes = DTypes::of(&[DType::Bool]);
    pub const INTEGERS: DTypes =
        DTypes::of(&[DType::U8, DType::U16, DType::U32, DType::U64, DType::I8, DType::I16, DType::I32, DType::I64]);
    pub const FLOATS: DTypes = DTypes::of(&[DType::F16, DType::BF16, DType::F32, DType::F64]);
    pub const COMPLEX: DTypes = DTypes::of(&[DType::C32, DType::C64, DType::C128]);
    /// Integers and floats.
    pub const REAL_NUMBERS: DTypes = DTypes::INTEGERS.or(DTypes::FLOATS);
    /// Floats and complex numbers.
    pub const INEXACT: DTypes = DTypes::FLOATS.or(DTypes::COMPLEX);
    /// All but booleans.
    pub const NUMBERS: DTypes = DTypes::REAL_NUMBERS.or(DTypes::COMPLEX);
    /// All but complex numbers.
    pub const REAL: DTypes = DTypes::BOOL.or(DTypes::REAL_NUMBERS);
    /// All that have arithmetic.
    pub const ALL: DTypes = DTypes::BOOL.or(DTypes::NUMBERS);
    /// Numbers of 8 bits, which are multiplied.
    pub const FLOAT8: DTypes = DTypes::of(&[DType::F8E4M3FN, DType::F8E5M2, DType::F8E4M3FNUZ, DType::F8E5M2FNUZ]);
    /// All that elements can have.
    pub const STORED: DTypes = DTypes::ALL.or(DTypes::FLOAT8).or(DTypes::of(&[DType::F8E8M0FNU, DType::F4E2M1FNX2]));

    pub const fn of(dtypes: &[DType]) -> DTypes {
        let mut set = 0u32;
        let mut i = 0;
        while i < dtypes.len() {
            set |= 1 << dtypes[i] as u32;
            i += 1;
        }
        DTypes(set)
    }

    pub const fn or(self, other: DTypes) -> DTypes {
        DTypes(self.0 | other.0)
    }

    pub const fn contains(self, dtype: DType) -> bool {
        self.0 & (1 << dtype as u32) != 0
    }
}

/// The types that the last operand of an operation may have, from the StableHLO specification. For products,
/// remainders and ordered operations, types on which XLA's compilers fail are left out.
fn taken(operation: &str) -> DTypes {
    let Some((dialect, name)) = operation.split_once('.') else { return DTypes::STORED };
    match name {
        "subtract" | "divide" | "negate" | "power" | "dot_general" | "convolution" => DTypes::NUMBERS,
        "remainder" => DTypes::REAL_NUMBERS,
        "maximum" | "minimum" | "top_k" => DTypes::REAL,
        "and" | "or" | "xor" | "not" => DTypes::BOOL.or(DTypes::INTEGERS),
        "shift_left" | "shift_right_arithmetic" | "shift_right_logical" | "popcnt" | "count_leading_zeros" => {
            DTypes::INTEGERS
        }
        "floor" | "ceil" | "round_nearest_even" | "round_nearest_afz" | "is_finite" => DTypes::FLOATS,
        "erf" | "erfc" | "erf_inv" | "lgamma" | "digamma" | "zeta" | "polygamma" | "next_after" | "bessel_i1e" => {
            DTypes::FLOATS
        }
        "complex" => DTypes::of(&[DType::F32, DType::F64]),
        "fft" => DTypes::of(&[DType::F32, DType::F64]).or(DTypes::COMPLEX),
        "exponential"
        | "exponential_minus_one"
        | "log"
        | "log_plus_one"
        | "logistic"
        | "sqrt"
        | "rsqrt"
        | "cbrt"
        | "sine"
        | "cosine"
        | "tan"
        | "tanh"
        | "atan2"
        | "cholesky"
        | "triangular_solve" => DTypes::INEXACT,
        "add" | "multiply" | "abs" | "sign" | "clamp" | "compare" | "reduce" | "reduce_window"
        | "select_and_scatter" | "sort" => DTypes::ALL,
        _ if dialect == "chlo" => DTypes::INEXACT,
        // Operations that move elements.
        _ => DTypes::STORED,
    }
}

/// Whether an operation does more with its elements than to move them.
pub(crate) fn computes(operation: &str) -> bool {
    taken(operation) != DTypes::STORED
        || matches!(operation, "stablehlo.real" | "stablehlo.imag" | "stablehlo.custom_call")
}

impl Builder {
    /// Refuses an operation on an element type that it does not take.
    pub(crate) fn check_element_type(&self, operation: &str, operands: &[Value<'_>]) {
        if let Some(dtype) = operands.last().map(|last| last.dtype()) {
            self.check_taken(dtype, taken(operation));
            if dtype == DType::C32 && computes(operation) {
                self.refuse(Refusal::ElementType(dtype));
            }
        }
    }

    pub(crate) fn check_taken(&self, dtype: DType, taken: DTypes) {
        if !taken.contains(dtype) {
            self.refuse(Refusal::ElementType(dtype));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Type;

    #[test]
    fn unsupported_element_types_are_refused() {
        let b = Builder::default();
        let [float, boolean] = [DType::F32, DType::Bool].map(|dtype| b.parameter(Type::new(dtype, &[3])));
        let _ = (float.exp(), float - float, boolean & boolean, boolean + boolean, float.lt(0.0));
        assert_eq!(b.refusal(), None);
        let _ = boolean - boolean;
        let _ = float & float;
        assert_eq!(b.refusal(), Some(Refusal::ElementType(DType::Bool)));
    }

    #[test]
    fn complex_numbers_have_no_order() {
        let b = Builder::default();
        let complex = b.parameter(Type::new(DType::C64, &[3]));
        let _ = complex.eq(complex);
        assert_eq!(b.refusal(), None);
        let _ = complex.lt(complex);
        assert_eq!(b.refusal(), Some(Refusal::ElementType(DType::C64)));
    }
}
