//! Which kernel runs an operator on tensors that are not dense: sparse tensors, and nested tensors of the strided
//! layout.
//!
//! Many of PyTorch's kernels for these tensors only call operators of the dense tensors inside, so they work on any
//! device.
//! For sparse tensors, the operators listed here use PyTorch's kernels; `python/torchtpu/operators/sparse` implements
//! the others. For nested tensors, all operators except those listed here use PyTorch's kernels, and
//! `python/torchtpu/operators/nested.py` implements two.

pub use abi::{Layout, Owner};

/// Conversions from dense tensors to sparse and nested ones.
const FROM_DENSE: &[&str] = &[
    "_embedding_bag_backward",
    "_nested_from_padded",
    "_nested_view_from_buffer",
    "_nested_tensor_from_mask",
    "_nested_tensor_from_mask_left_aligned",
    "_to_sparse",
    "_to_sparse.sparse_dim",
    "_to_sparse_bsc",
    "_to_sparse_bsr",
    "_to_sparse_csc",
    "_to_sparse_csr",
];

/// Operators of dense tensors that only the kernels of sparse tensors call.
const FOR_SPARSE: &[&str] = &["_spdiags", "_validate_compressed_sparse_indices"];

/// Operators on the values, in all forms (in-place, `out=`).
const POINTWISE: &[&str] = &[
    "_conj_physical",
    "abs",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "conj_physical",
    "deg2rad",
    "div",
    "erf",
    "erfinv",
    "expm1",
    "floor",
    "floor_divide",
    "frac",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "log1p",
    "nan_to_num",
    "neg",
    "pow",
    "rad2deg",
    "relu",
    "round",
    "sgn",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "sub",
    "tan",
    "tanh",
    "threshold_backward",
    "trunc",
];

/// Parts of a COO tensor, rearrangements, and reductions over all values.
const COO: &[&str] = &[
    "_coalesced_",
    "_dimI",
    "_dimV",
    "_indices",
    "_nnz",
    "_pin_memory",
    "_sparse_coo_tensor_with_dims",
    "_sparse_coo_tensor_with_dims_and_tensors",
    "_to_dense",
    "_to_sparse",
    "_to_sparse.sparse_dim",
    "_to_sparse_bsc",
    "_to_sparse_bsr",
    "_to_sparse_csc",
    "_to_sparse_csr",
    "_values",
    "add.Tensor",
    "add_.Tensor",
    "any",
    "cat",
    "clone",
    "copy_",
    "copy_sparse_to_sparse_",
    "dense_dim",
    "empty.memory_format",
    "empty_like",
    "indices",
    "is_coalesced",
    "is_pinned",
    "linalg_vector_norm",
    "mm",
    "mul.Tensor",
    "mul_.Tensor",
    "mv",
    "narrow_copy",
    "native_norm",
    "native_norm.ScalarOpt_dim_dtype",
    "norm.ScalarOpt_dim",
    "norm.ScalarOpt_dim_dtype",
    "permute",
    "resize_as_sparse_",
    "sparse_dim",
    "sparse_resize_",
    "sparse_resize_and_clear_",
    "sum",
    "sum.dim_IntList",
    "unsqueeze",
    "values",
    "view_as_complex",
    "view_as_real",
    "zero_",
    "zeros.out",
];

const COMPRESSED: &[&str] = &[
    "_nnz",
    "_pin_memory",
    "_to_dense",
    "_to_sparse.sparse_dim",
    "add.Tensor",
    "add_.Tensor",
    "addmm",
    "ccol_indices",
    "clone",
    "col_indices",
    "copy_",
    "crow_indices",
    "dense_dim",
    "empty.memory_format",
    "empty_like",
    "fill_.Scalar",
    "is_pinned",
    "mm",
    "mul.Scalar",
    "mul.Tensor",
    "mul.out",
    "mul_.Scalar",
    "mul_.Tensor",
    "normal_",
    "resize_",
    "resize_as_sparse_",
    "row_indices",
    "select.int",
    "select_copy.int",
    "sparse_dim",
    "sparse_mask",
    "sum",
    "sum.dim_IntList",
    "values",
    "zero_",
];

/// `python/torchtpu/operators/nested.py` implements these, because PyTorch's kernels read memory directly, or call a
/// kernel that does.
const NESTED_IN_PYTHON: &[&str] = &[
    "_nested_sum_backward",
    "_transform_bias_rescale_qkv",
    "native_layer_norm",
    "native_layer_norm_backward",
    "sum.dim_IntList",
];

/// Which kernel runs an operator that PyTorch's CPU supports for such tensors. `name` has no `aten::`.
pub fn owner(layout: Layout, name: &str) -> Owner {
    let sparse = |names: &[&str]| {
        let is_named = POINTWISE.contains(&base(name)) || names.contains(&name);
        if is_named { Owner::Pytorch } else { Owner::Python }
    };
    match layout {
        Layout::Dense if FROM_DENSE.contains(&name) => Owner::Pytorch,
        Layout::Dense if FOR_SPARSE.contains(&name) => Owner::Python,
        Layout::Dense => Owner::Other,
        Layout::Coo => sparse(COO),
        Layout::Compressed => sparse(COMPRESSED),
        Layout::Nested if NESTED_IN_PYTHON.contains(&name) => Owner::Python,
        Layout::Nested => Owner::Pytorch,
    }
}

/// The name without overload and trailing underscore: "div" for "div_.Tensor".
fn base(name: &str) -> &str {
    let (name, _) = name.split_once('.').unwrap_or((name, ""));
    name.strip_suffix('_').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointwise_operators_have_pytorchs_kernels_in_all_forms() {
        for name in ["div.Tensor", "div_.Tensor", "div.out_mode", "abs_", "abs"] {
            assert_eq!(owner(Layout::Coo, name), Owner::Pytorch, "{name}");
        }
        assert_eq!(owner(Layout::Coo, "softmax"), Owner::Python);
    }

    #[test]
    fn operators_of_dense_tensors_are_not_pytorchs() {
        assert_eq!(owner(Layout::Dense, "add.Tensor"), Owner::Other);
        assert_eq!(owner(Layout::Dense, "_to_sparse"), Owner::Pytorch);
        assert_eq!(owner(Layout::Nested, "native_layer_norm"), Owner::Python);
    }
}
