//! 64-bit integers for a TPU, which has none. Its compiler makes do with pairs of 32-bit ones, but not for products of
//! matrices, and a division takes it many seconds to compile. Both are written here in terms of what it does well.

use crate::builder::{Target, Value};
use crate::dot::DotDims;
use crate::dtype::DType;

/// How often a quotient is estimated. Each time the dividend that is left shrinks to less than 2⁻¹⁷ of what it was, or
/// to less than twice the divisor.
const ESTIMATES: usize = 4;

/// Takes from an estimate more than float32 can have been wrong by, so that it is never too large.
const SHARE: f64 = 1. - 1. / (1 << 18) as f64;

impl<'b> Value<'b> {
    /// Whether this is a 64-bit integer for a TPU.
    pub(crate) fn is_paired(self) -> bool {
        self.builder.target == Target::Tpu && matches!(self.dtype(), DType::I64 | DType::U64)
    }

    /// The quotient, truncated towards zero; all bits set where the divisor is zero, as XLA has it elsewhere.
    pub(crate) fn paired_quotient(self, divisor: Value<'b>) -> Value<'b> {
        let quotient = self.magnitude().divided(divisor.magnitude()).0.convert(self.dtype());
        let is_negative = self.lt(0).ne(divisor.lt(0));
        divisor.eq(0).select(!self.splat_like(0), is_negative.select(-quotient, quotient))
    }

    /// The remainder, with the sign of the dividend; the dividend where the divisor is zero.
    pub(crate) fn paired_remainder(self, divisor: Value<'b>) -> Value<'b> {
        let remainder = self.magnitude().divided(divisor.magnitude()).1.convert(self.dtype());
        divisor.eq(0).select(self, self.lt(0).select(-remainder, remainder))
    }

    fn magnitude(self) -> Value<'b> {
        self.abs().convert(DType::U64)
    }

    /// Long division, with a digit of as many bits as a float32 tells.
    fn divided(self, divisor: Value<'b>) -> (Value<'b>, Value<'b>) {
        let (mut quotient, mut rest) = (self.splat_like(0), self);
        let narrow = divisor.convert(DType::F32);
        for _ in 0..ESTIMATES {
            let digit = (rest.convert(DType::F32) / narrow * SHARE).convert(DType::U64);
            (quotient, rest) = (quotient + digit, rest - digit * divisor);
        }
        let is_short = rest.ge(divisor);
        (is_short.select(quotient + 1, quotient), is_short.select(rest - divisor, rest))
    }

    /// `dot_general` of 64-bit integers: their products, summed.
    pub(crate) fn paired_dot(self, other: Value<'b>, dims: &DotDims, dtype: DType) -> Value<'b> {
        let free = |of: Value<'b>, batch: &[usize], contract: &[usize]| -> Vec<usize> {
            (0..of.rank()).filter(|axis| !batch.contains(axis) && !contract.contains(axis)).collect()
        };
        let lhs_free = free(self, &dims.lhs_batch, &dims.lhs_contract);
        let rhs_free = free(other, &dims.rhs_batch, &dims.rhs_contract);
        let lhs = self.convert(dtype).transpose(&[&dims.lhs_batch[..], &lhs_free, &dims.lhs_contract].concat());
        let rhs = other.convert(dtype).transpose(&[&dims.rhs_batch[..], &rhs_free, &dims.rhs_contract].concat());
        // Of the products: batch, free on the left, free on the right, summed.
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
