//! 64-bit integers for a TPU, which has none. Its compiler emulates them with pairs of 32-bit integers, but does not
//! support matrix products of them, and takes many seconds to compile a division. Both are written here with
//! operations that it supports well.

use crate::builder::{Target, Value};
use crate::dot::DotDims;
use crate::dtype::DType;

/// The number of estimates of a quotient. Each estimate reduces the remaining dividend to less than 2⁻¹⁷ of its
/// value, or to less than twice the divisor.
const ESTIMATES: usize = 4;

/// Reduces an estimate by more than the possible error of float32, so that it is never too large.
const ROUND_DOWN: f64 = 1. - 1. / (1 << 18) as f64;

impl<'b> Value<'b> {
    /// Whether this is a 64-bit integer for a TPU.
    pub(crate) fn is_paired(self) -> bool {
        self.builder.target == Target::Tpu && matches!(self.dtype(), DType::I64 | DType::U64)
    }

    /// The quotient, truncated towards zero. All bits are set if the divisor is zero, as in XLA on other targets.
    pub(crate) fn paired_quotient(self, divisor: Value<'b>) -> Value<'b> {
        let quotient = self.magnitude().quotient_and_remainder(divisor.magnitude()).0.convert(self.dtype());
        let is_negative = self.lt(0).ne(divisor.lt(0));
        divisor.eq(0).select(!self.splat_like(0), is_negative.select(-quotient, quotient))
    }

    /// The remainder, with the sign of the dividend. The dividend if the divisor is zero.
    pub(crate) fn paired_remainder(self, divisor: Value<'b>) -> Value<'b> {
        let remainder = self.magnitude().quotient_and_remainder(divisor.magnitude()).1.convert(self.dtype());
        divisor.eq(0).select(self, self.lt(0).select(-remainder, remainder))
    }

    fn magnitude(self) -> Value<'b> {
        self.abs().convert(DType::U64)
    }

    /// Long division. Each digit has as many bits as float32 can represent. Returns quotient and remainder.
    fn quotient_and_remainder(self, divisor: Value<'b>) -> (Value<'b>, Value<'b>) {
        let (mut quotient, mut rest) = (self.splat_like(0), self);
        let narrow = divisor.convert(DType::F32);
        for _ in 0..ESTIMATES {
            let digit = (rest.convert(DType::F32) / narrow * ROUND_DOWN).convert(DType::U64);
            (quotient, rest) = (quotient + digit, rest - digit * divisor);
        }
        let is_short = rest.ge(divisor);
        (is_short.select(quotient + 1, quotient), is_short.select(rest - divisor, rest))
    }

    /// `dot_general` of 64-bit integers: the sum of products.
    pub(crate) fn paired_dot(self, other: Value<'b>, dims: &DotDims, dtype: DType) -> Value<'b> {
        let free = |of: Value<'b>, batch: &[usize], contract: &[usize]| -> Vec<usize> {
            (0..of.rank()).filter(|axis| !batch.contains(axis) && !contract.contains(axis)).collect()
        };
        let lhs_free = free(self, &dims.lhs_batch, &dims.lhs_contract);
        let rhs_free = free(other, &dims.rhs_batch, &dims.rhs_contract);
        let lhs = self.convert(dtype).transpose(&[&dims.lhs_batch[..], &lhs_free, &dims.lhs_contract].concat());
        let rhs = other.convert(dtype).transpose(&[&dims.rhs_batch[..], &rhs_free, &dims.rhs_contract].concat());
        // The dimensions of the products: batch, free on the left, free on the right, contracted.
        let left = dims.lhs_batch.len() + lhs_free.len();
        let right = left + rhs_free.len();
        let rank = right + dims.lhs_contract.len();
        let (lhs_dims, rhs_dims) = (lhs.dims(), rhs.dims());
        let sizes = [&lhs_dims[..left], &rhs_dims[dims.rhs_batch.len()..]].concat();
        let lhs_axes: Vec<usize> = (0..left).chain(right..rank).collect();
        let rhs_axes: Vec<usize> = (0..dims.rhs_batch.len()).chain(left..rank).collect();
        let products = lhs.broadcast_in_dim(&sizes, &lhs_axes) * rhs.broadcast_in_dim(&sizes, &rhs_axes);
        products.reduce_sum(&(right..rank).collect::<Vec<_>>())
    }
}
