//! Dot products over pairs of dimensions.

use crate::bounds::Extent;
use crate::builder::{Target, Type, Value, join};
use crate::dtype::DType;

/// The dimensions of a general dot product.
#[derive(Clone, Debug, Default)]
pub struct DotDims {
    pub lhs_batch: Vec<usize>,
    pub rhs_batch: Vec<usize>,
    pub lhs_contract: Vec<usize>,
    pub rhs_contract: Vec<usize>,
}

impl DotDims {
    /// Products of matrices in the last two dimensions; the leading dimensions are batches.
    pub fn matrices(rank: usize) -> DotDims {
        let batch: Vec<usize> = (0..rank - 2).collect();
        DotDims {
            lhs_batch: batch.clone(),
            rhs_batch: batch,
            lhs_contract: vec![rank - 1],
            rhs_contract: vec![rank - 2],
        }
    }
}

fn axes(items: &[usize]) -> String {
    format!("[{}]", join(items))
}

impl<'b> Value<'b> {
    /// `stablehlo.dot_general`, with element type `dtype`. The result has the batch dimensions, then the free
    /// dimensions of the left operand, then those of the right operand.
    pub fn dot_general(self, other: Value<'b>, dims: &DotDims, dtype: DType) -> Value<'b> {
        if self.dtype().is_float8() {
            // bfloat16 holds these numbers, and float32 their products.
            let (a, b) = (self.convert(DType::BF16), other.convert(DType::BF16));
            return a.dot_general(b, dims, DType::F32).convert(dtype);
        }
        let (lhs, rhs) = (self.dims(), other.dims());
        let free = |dims: &[i64], batch: &[usize], contract: &[usize]| -> Vec<i64> {
            (0..dims.len()).filter(|i| !batch.contains(i) && !contract.contains(i)).map(|i| dims[i]).collect()
        };
        let mut result: Vec<i64> = dims.lhs_batch.iter().map(|&i| lhs[i]).collect();
        result.extend(free(&lhs, &dims.lhs_batch, &dims.lhs_contract));
        result.extend(free(&rhs, &dims.rhs_batch, &dims.rhs_contract));
        let agree = |a: &[usize], b: &[usize]| a.len() == b.len() && a.iter().zip(b).all(|(&i, &j)| lhs[i] == rhs[j]);
        let ty = Type::new(dtype, &result);
        if !agree(&dims.lhs_batch, &dims.rhs_batch) || !agree(&dims.lhs_contract, &dims.rhs_contract) {
            return self.builder.fail(format!("dot_general of {self:?} and {other:?} with {dims:?}"), ty);
        }
        if self.builder.target == Target::Tpu && matches!(dtype, DType::I64 | DType::U64) {
            return self.paired_dot(other, dims, dtype);
        }
        let attributes = format!(
            "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {}, rhs_batching_dimensions = {}, \
             lhs_contracting_dimensions = {}, rhs_contracting_dimensions = {}>, {}",
            axes(&dims.lhs_batch),
            axes(&dims.rhs_batch),
            axes(&dims.lhs_contract),
            axes(&dims.rhs_contract),
            self.precision_attribute(other)
        );
        let mut extents: Vec<Extent> =
            dims.lhs_batch.iter().zip(&dims.rhs_batch).map(|(&i, &j)| self.common_extent(i, other, j)).collect();
        let free = |of: Value<'b>, batch: &[usize], contract: &[usize]| -> Vec<Extent> {
            (0..of.rank()).filter(|i| !batch.contains(i) && !contract.contains(i)).map(|i| of.extent(i)).collect()
        };
        extents.extend(free(self, &dims.lhs_batch, &dims.lhs_contract));
        extents.extend(free(other, &dims.rhs_batch, &dims.rhs_contract));
        let pairs: Vec<(usize, usize)> =
            dims.lhs_contract.iter().copied().zip(dims.rhs_contract.iter().copied()).collect();
        let (lhs, rhs) = self.zero_padded_pair(other, &pairs);
        self.builder.emit("stablehlo.dot_general", &[lhs, rhs], &attributes, ty).with_extents(extents)
    }

    /// Batched products of matrices: [..., m, k] [..., k, n] -> [..., m, n]. If a reshape merged the batch
    /// dimensions, its operand is used instead: XLA's compiler for TPUs then chooses a layout that needs no copies of
    /// attention's heads.
    pub fn matmul(self, other: Value<'b>, dtype: DType) -> Value<'b> {
        let rank = self.rank();
        let merged = self.dims()[..rank - 2].to_vec();
        let whole = |batches: Value<'b>| batches.dims()[..batches.rank() - 2].to_vec();
        match (self.unmerged_matrices(), other.unmerged_matrices()) {
            (Some(a), Some(b)) if whole(a) == whole(b) => {
                let product = a.matrix_product(b, dtype);
                let sizes = product.dims();
                product.reshape(&[&merged, &sizes[sizes.len() - 2..]].concat())
            }
            _ => self.product_of_rows(other, dtype).unwrap_or_else(|| self.matrix_product(other, dtype)),
        }
    }

    /// The gradient of a linear layer's weight, [..., m] [..., n] -> [m, n], where reshapes merged the rows of both
    /// operands and a transpose turned the left one: it takes their operands. None for other products.
    ///
    /// XLA's compiler for TPUs fuses the operators before a product into it, but not through a reshape: then it keeps
    /// the result of a norm in memory until the backward pass.
    fn product_of_rows(self, other: Value<'b>, dtype: DType) -> Option<Value<'b>> {
        if self.builder.target != Target::Tpu || self.rank() != 2 || self.is_bounded() || other.is_bounded() {
            return None;
        }
        let before = self.matrices_before_transpose()?;
        let sizes = before.unmerged_rows().filter(|sizes| other.unmerged_rows().as_ref() == Some(sizes))?;
        let rows: Vec<usize> = (0..sizes.len()).collect();
        let dims = DotDims { lhs_contract: rows.clone(), rhs_contract: rows, ..DotDims::default() };
        Some(before.with_rows(&sizes)?.dot_general(other.with_rows(&sizes)?, &dims, dtype))
    }

    /// The sizes of the dimensions that a reshape merged to the rows of this matrix.
    fn unmerged_rows(self) -> Option<Vec<i64>> {
        let before = self.reshaped_from()?.dims();
        let count = (2..before.len()).find(|&count| before[..count].iter().product::<i64>() == self.dim(0))?;
        Some(before[..count].to_vec())
    }

    /// [m, n] as [..., n], from the operand of the reshape that made it.
    fn with_rows(self, sizes: &[i64]) -> Option<Value<'b>> {
        Some(self.reshaped_from()?.reshape(&[sizes, &[self.dim(1)]].concat()))
    }

    /// Batched products of matrices: [..., m, k] [..., k, n] -> [..., m, n].
    ///
    /// XLA's programs for a CPU copy a right operand that is transposed, as the weight of a linear layer is, in each
    /// run. If there are fewer rows than columns, a b = (b^T a^T)^T costs less: it copies the left operand and the
    /// result. The barrier keeps XLA from changing it back at first. Later it may join the transpose and the product, and
    /// its compiler aborts at batched products of other than row-major layout. One row is a reshape of one column.
    fn matrix_product(self, other: Value<'b>, dtype: DType) -> Value<'b> {
        let rank = self.rank();
        let dims = DotDims::matrices(rank);
        let (rows, columns) = (self.dim(rank - 2), other.dim(rank - 1));
        let is_swapped = self.builder.target == Target::Cpu && rows < columns && (rank == 2 || rows == 1);
        match other.matrices_before_transpose().filter(|_| is_swapped) {
            Some(source) => {
                let dims = DotDims { rhs_contract: vec![rank - 1], ..dims };
                source.dot_general(self, &dims, dtype).barrier().swap_axes(rank - 2, rank - 1)
            }
            None => self.dot_general(other, &dims, dtype),
        }
    }

    /// The matrices of which a transpose made these.
    fn matrices_before_transpose(self) -> Option<Value<'b>> {
        let rank = self.rank();
        let (source, permutation) = self.transposed_from()?;
        let swapped = (0..rank).map(|i| if i + 2 < rank { i } else { 2 * rank - 3 - i });
        permutation.into_iter().eq(swapped).then_some(source)
    }

    /// The matrices before a reshape that merged their batch dimensions.
    fn unmerged_matrices(self) -> Option<Value<'b>> {
        if self.is_bounded() {
            return None;
        }
        let rank = self.rank();
        if self.transposed_from().is_some() {
            let source = self.matrices_before_transpose()?.unmerged_matrices()?;
            return Some(source.swap_axes(source.rank() - 2, source.rank() - 1));
        }
        let source = self.reshaped_from()?;
        let (dims, before) = (self.dims(), source.dims());
        let is_merge = before.len() > rank && before[before.len() - 2..] == dims[rank - 2..];
        is_merge.then_some(source)
    }
}
