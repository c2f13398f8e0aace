"""Kernels for the compressed layouts (CSR, CSC, BSR, BSC). Most convert to coordinates."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from torchtpu.operators.sparse import coo
from torchtpu.operators.sparse.coo import (
    Kernel,
    add_to_dense,
    check_product,
    coalesce,
    into,
    is_compressed,
    scalar_type,
    scaled,
    scaled_sum,
    times,
    write,
)
from torchtpu.operators.sparse.places import flat, sum_rows
from torchtpu.tpu.stats import count_densified

aten = torch.ops.aten

KERNELS: dict[str, Kernel] = {}
kernel = into(KERNELS)

BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
BY_ROW = (torch.sparse_csr, torch.sparse_bsr)


def parts_of(self: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if self.layout in BY_ROW:
        return self.crow_indices(), self.col_indices(), self.values()
    return self.ccol_indices(), self.row_indices(), self.values()


def make(compressed: Tensor, plain: Tensor, values: Tensor, like: Tensor, layout: torch.layout | None = None) -> Tensor:
    return aten._sparse_compressed_tensor_unsafe(
        compressed, plain, values, like.shape, dtype=values.dtype, layout=layout or like.layout, device=values.device
    )


def with_values(like: Tensor, values: Tensor) -> Tensor:
    """A tensor with the same indices and other values."""
    compressed, plain, _ = parts_of(like)
    return make(compressed.clone(), plain.clone(), values, like)


def in_layout(self: Tensor, like: Tensor) -> Tensor:
    """A COO matrix converted to the layout of another matrix."""
    if like.layout in BLOCKED:
        return blocked(self, like.values().shape[1:3], like.layout)
    return self.to_sparse_csr() if like.layout in BY_ROW else self.to_sparse_csc()


def to_coo(self: Tensor) -> Tensor:
    return self.to_sparse() if is_compressed(self) else self


# ---- conversion ---------------------------------------------------------------------------------------------------


def blocked(self: Tensor, block: Sequence[int], layout: torch.layout) -> Tensor:
    """A COO matrix in blocks. The blocks with elements are specified."""
    size = self.shape
    if size[0] % block[0] or size[1] % block[1]:
        raise RuntimeError(
            f"tensor sparse size ({size[0]}, {size[1]}) must be divisible by given blocksize ({block[0]}, {block[1]})"
        )
    self = coalesce(self)
    rows, columns = self._indices()
    parts = [(rows // block[0], size[0] // block[0]), (columns // block[1], size[1] // block[1])]
    (outer, lines), (inner, per_line) = parts if layout in BY_ROW else parts[::-1]
    per_line = max(per_line, 1)
    keys, groups = torch.unique(outer * per_line + inner, return_inverse=True)
    values = self._values().new_zeros((len(keys), *block, *size[2:]))
    values = values.index_put((groups, rows % block[0], columns % block[1]), self._values())
    compressed = torch._convert_indices_from_coo_to_csr(keys // per_line, lines)
    return make(compressed, keys % per_line, values, self, layout)


def _title(layout: torch.layout) -> str:
    """The name of a layout in PyTorch's errors: SparseCsr."""
    return str(layout).removeprefix("torch.").title().replace("_", "")


def _converter(layout: torch.layout) -> str:
    """The name of PyTorch's conversion of compressed tensors to a layout."""
    return f"sparse_compressed_to_{str(layout).removeprefix('torch.')}"


def _unsupported(self: Tensor, layout: torch.layout, what: str) -> str:
    conversion = f"conversion from {_title(self.layout)} to {_title(layout)}"
    return f"{_converter(layout)}: {conversion} {what} is not supported. Call .to_dense() first"


def _to_blocked(layout: torch.layout, self: Tensor, blocksize: Sequence[int], dense_dim: int | None = None) -> Tensor:
    if dense_dim is not None:
        raise RuntimeError("dense_dim argument is only used when converting strided tensors")
    batch_dims = parts_of(self)[0].dim() - 1
    if self.layout in BLOCKED:
        given = list(self.values().shape[batch_dims + 1 : batch_dims + 3])
        if given != list(blocksize):
            changed = f"with blocksize changed from {given} to {list(blocksize)}"
            raise RuntimeError(_unsupported(self, layout, changed))
        return _flipped(layout, self)
    if batch_dims > 0:
        raise RuntimeError(_unsupported(self, layout, "for batched inputs"))
    index = parts_of(self)[1].dtype
    compressed, plain, values = parts_of(blocked(self.to_sparse(), blocksize, layout))
    return make(compressed.to(index), plain.to(index), values, self, layout)


def _flipped(layout: torch.layout, self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The same elements or blocks, compressed along the other dimension."""
    if dense_dim is not None:
        raise RuntimeError("dense_dim argument is only used when converting strided tensors")
    if self.layout == layout:
        return self.clone()
    if (self.layout in BLOCKED) != (layout in BLOCKED):
        raise RuntimeError(
            f"{_converter(layout)}: expected SparseCsr or SparseCsc layout but got {_title(self.layout)}. "
            "Call .to_dense() first"
        )
    compressed, plain, values = parts_of(self)
    batch = compressed.shape[:-1]
    lines = self.shape[len(batch) + (0 if layout in BY_ROW else 1)]
    if layout in BLOCKED:
        lines //= values.shape[len(batch) + 1 + (0 if layout in BY_ROW else 1)]
    *where, old, new = torch._convert_indices_from_csr_to_coo(compressed, plain)
    sizes = [*batch, max(lines, 1), max(compressed.shape[-1] - 1, 1)]
    order = flat(torch.stack((*where, new, old)), sizes).argsort()
    starts = torch.arange(lines + 1, device=plain.device).expand(*batch, lines + 1).contiguous()
    ends = torch.searchsorted(new[order].view(plain.shape), starts)
    values = values.flatten(0, len(batch))[order].view(values.shape)
    return make(ends.to(plain.dtype), old[order].view(plain.shape).to(plain.dtype), values, self, layout)


KERNELS["_to_sparse_csr"] = functools.partial(_flipped, torch.sparse_csr)
KERNELS["_to_sparse_csc"] = functools.partial(_flipped, torch.sparse_csc)
KERNELS["_to_sparse_bsr"] = functools.partial(_to_blocked, torch.sparse_bsr)
KERNELS["_to_sparse_bsc"] = functools.partial(_to_blocked, torch.sparse_bsc)


@kernel("_to_sparse")
def _to_layout(
    self: Tensor,
    *,
    layout: torch.layout | None = None,
    blocksize: Sequence[int] | None = None,
    dense_dim: int | None = None,
) -> Tensor:
    """The conversion that a layout names. PyTorch's kernel calls functions of the CPU instead of operators."""
    if layout is None or layout == torch.sparse_coo:
        return aten._to_sparse.sparse_dim(self, 2)
    if layout not in BLOCKED:
        return _flipped(layout, self, dense_dim)
    if blocksize is None:
        raise RuntimeError(_unsupported(self, layout, "without blocksize argument given"))
    return _to_blocked(layout, self, blocksize, dense_dim)


@coo.kernel("_validate_compressed_sparse_indices")
def _validate(is_crow: bool, compressed: Tensor, plain: Tensor, cdim: int, dim: int, nnz: int) -> None:
    """Raises unless compressed indices ascend from 0 to nnz, and plain indices ascend within each line."""
    if compressed.numel() == 0:
        return
    ends, places = ("crow_indices", "col_indices") if is_crow else ("ccol_indices", "row_indices")
    lines, length = ("nrows", "ncols") if is_crow else ("ncols", "nrows")
    steps = compressed.diff(dim=-1)
    numbers = torch.arange(nnz, dtype=compressed.dtype, device=plain.device).expand(plain.shape).contiguous()
    owners = torch.searchsorted(compressed.contiguous(), numbers, right=True)
    checks = {
        f"{ends}[..., 0] == 0": compressed[..., 0] == 0,
        f"{ends}[..., -1] == nnz": compressed[..., -1] == nnz,
        f"0 <= {ends}[..., 1:] - {ends}[..., :-1] <= {length}": (steps >= 0) & (steps <= dim),
        f"0 <= {places} < {length}": (plain >= 0) & (plain < dim),
        f"{places}[..., {ends}[..., i - 1]:{ends}[..., i]] for all i = 1, ..., {lines} are sorted and distinct along "
        "the last dimension values": (plain.diff(dim=-1) > 0) | (owners.diff(dim=-1) > 0),
    }
    for condition, holds in zip(checks, torch.stack([check.all() for check in checks.values()]).tolist(), strict=True):
        if not holds:
            raise RuntimeError(f"`{condition}` is not satisfied.")


# ---- elements -----------------------------------------------------------------------------------------------------


@kernel("add.out")
def _add_out(self: Tensor, other: Tensor, *, alpha: float = 1, out: Tensor) -> Tensor:
    self, other = torch.as_tensor(self), torch.as_tensor(other)
    if self.layout == torch.strided:
        return add_to_dense(self, to_coo(other), alpha, out)
    if other.layout == torch.strided:
        return add_to_dense(scaled(other, alpha), to_coo(self), 1, out)
    total = to_coo(self).add(to_coo(other), alpha=alpha)
    return write(out, in_layout(total, self))


def _reduced(operator: str, self: Tensor, dim: Sequence[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    if self.layout != torch.sparse_csr or self.dim() != 2:
        raise NotImplementedError(f"{operator}: only CSR matrices are supported. Call .to_dense() first")
    if not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    values = self.values()
    is_integral = not (self.is_floating_point() or self.is_complex())
    values = values.to(dtype or (torch.int64 if is_integral else values.dtype))
    indices = torch._convert_indices_from_csr_to_coo(self.crow_indices(), self.col_indices())
    summed = {each % 2 for each in dim}
    kept = [each for each in range(2) if each not in summed]
    size = [1 if each in summed else self.shape[each] for each in range(2)]
    groups = indices[kept[0]] if kept else torch.zeros_like(indices[0])
    keys, members = torch.unique(groups, return_inverse=True)
    if operator == "sum":
        values = sum_rows(values, members, len(keys))
    else:
        values = values.new_ones(len(keys)).scatter_reduce_(0, members.to(torch.int64), values, "prod")
    at = [keys if each in kept else torch.zeros_like(keys) for each in range(2)]
    counts = torch._convert_indices_from_coo_to_csr(at[0], size[0], out_int32=self.crow_indices().dtype == torch.int32)
    return aten._sparse_compressed_tensor_unsafe(
        counts, at[1].to(counts.dtype), values, size, dtype=values.dtype, layout=torch.sparse_csr, device=values.device
    )


@kernel("_sparse_csr_sum")
def _sum(self: Tensor, dim: Sequence[int], keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return _reduced("sum", self, dim, keepdim, dtype)


@kernel("_sparse_csr_prod")
def _prod(self: Tensor, dim: Sequence[int], keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return _reduced("prod", self, dim, keepdim, dtype)


# ---- products -----------------------------------------------------------------------------------------------------


@kernel("addmm")
def _addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    check_product("addmm", mat1, mat2)
    left, right = to_coo(mat1), to_coo(mat2)
    if self.layout == torch.strided:
        if left.layout != torch.strided and right.layout != torch.strided:
            product = coo.matmul(left, right).to_dense()
        elif left.layout != torch.strided:
            product = times(left, right)
        else:
            product = times(right.t(), left.t()).t()
        return scaled_sum(self, product, beta, alpha)
    if left.layout == torch.strided or right.layout == torch.strided:
        raise NotImplementedError("addmm: a sparse result needs two sparse factors. Call .to_dense() on the result")
    product = coo.matmul(left, right)
    return in_layout(scaled_sum(to_coo(self), product, beta, alpha), self)


KERNELS["mm"] = aten.mm.default  # for mm.out


@kernel("addmv")
def _addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if mat.dim() != 2 or vec.dim() != 1 or mat.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"size mismatch, got input ({list(self.shape)}), mat ({list(mat.shape)}), vec ({list(vec.shape)})"
        )
    return scaled_sum(self, times(to_coo(mat), vec.unsqueeze(1)).squeeze(1), beta, alpha)


@kernel("sparse_sampled_addmm")
def _sampled_addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if self.layout != torch.sparse_csr:
        raise RuntimeError(f"sampled_addmm: Expected self to have sparse csr layout, but got {self.layout}")
    for name, matrix in (("mat1", mat1), ("mat2", mat2)):
        if matrix.layout != torch.strided:
            raise RuntimeError(f"sampled_addmm: Expected {name} to have strided layout, but got {matrix.layout}")
        if matrix.dim() < 2:
            raise RuntimeError(f"sampled_addmm: Expected {name} to be a matrix, got {matrix.dim()}-D tensor")
    for names, one, other in (("mat1 and mat2", mat1, mat2), ("mat1 and self", mat1, self)):
        if one.dtype != other.dtype:
            raise RuntimeError(
                f"sampled_addmm: Expected {names} to have the same dtype, but got {scalar_type(one)} and "
                f"{scalar_type(other)}"
            )
    if mat1.shape[:-2] != mat2.shape[:-2] or mat1.shape[:-2] != self.shape[:-2]:
        raise RuntimeError("sampled_addmm: Expected self, mat1 and mat2 to have the same batch sizes")
    if mat1.shape[-1] != mat2.shape[-2]:
        raise RuntimeError(
            f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied "
            f"({mat1.shape[-2]}x{mat1.shape[-1]} and {mat2.shape[-2]}x{mat2.shape[-1]})"
        )
    if self.shape[-2:] != (mat1.shape[-2], mat2.shape[-1]):
        raise RuntimeError("sampled_addmm: self and the product of mat1 and mat2 have different shapes")
    if not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError(f"sampled_addmm: Expected self to be floating-point or complex, but got {self.dtype}")
    *where, rows, columns = self.to_sparse()._indices()
    left, right = mat1[tuple(where) + (rows,)], mat2.mT[tuple(where) + (columns,)]
    products = (left * right).sum(-1).view(self.values().shape)
    return with_values(self, scaled_sum(self.values(), products, beta, alpha))


def _elements(self: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = torch._convert_indices_from_csr_to_coo(self.crow_indices(), self.col_indices())
    return rows.to(torch.int64), columns.to(torch.int64)


@kernel("_sparse_mm_reduce_impl")
def _mm_reduce(self: Tensor, other: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    """The product of a CSR matrix and a dense one with another reduction than the sum.

    Also returns, for a maximum or minimum, the number of the specified element that it came from, or the number of
    elements if there is none.
    """
    if self.layout != torch.sparse_csr or other.layout != torch.strided:
        raise RuntimeError("torch.sparse.mm: Expect self to be SparseCsr and other to be dense")
    if not self.is_floating_point():
        # PyTorch has no kernel for these dtypes on any device.
        raise NotImplementedError(f"torch.sparse.mm with a reduction is not implemented for {self.dtype}")
    if self.dtype != other.dtype:
        raise RuntimeError(
            f"Expected tensor for argument #1 'other' to have scalar type {scalar_type(self)}; but got {other.type()} "
            "instead (while checking arguments for sparse_mm_reduce)"
        )
    if other.dim() != 2 or other.shape[0] != self.shape[1]:
        given = f"dimension {other.dim()} and tensor.size[0] = {other.size(0)}"
        raise RuntimeError(
            f"Expected a tensor of dimension 2 and tensor.size[0] == {self.shape[1]} but got: {given} "
            "(while checking arguments for sparse_mm_reduce)"
        )
    rows, columns = _elements(self)
    products = self.values().unsqueeze(1) * other[columns]
    size = (self.shape[0], other.shape[1])
    nothing = rows.new_empty(0)
    if reduce in ("sum", "mean"):
        total = sum_rows(products, rows, size[0])
        if reduce == "mean":
            total = total / self.crow_indices().diff().clamp(min=1).unsqueeze(1).to(total.dtype)
        return total, nothing
    if reduce not in ("amax", "amin"):
        raise RuntimeError(f"reduce argument must be sum, mean, amax or amin, got {reduce}")
    result = products.new_zeros(size).index_reduce_(0, rows, products, reduce, include_self=False)
    numbers = torch.arange(len(rows), device=rows.device).unsqueeze(1).expand(products.shape)
    candidates = torch.where(products == result[rows], numbers, len(rows))
    return result, rows.new_full(size, len(rows)).index_reduce_(0, rows, candidates, "amin")


@kernel("_sparse_mm_reduce_impl_backward")
def _mm_reduce_backward(
    self: Tensor, grad_out: Tensor, weight: Tensor, reduce: str, arg_out: Tensor, output_mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    rows, columns = _elements(self)
    values = self.values()
    shares = grad_out[rows]
    if reduce == "mean":
        shares = shares / self.crow_indices().diff().clamp(min=1)[rows].unsqueeze(1).to(shares.dtype)
    elif reduce in ("amax", "amin"):
        numbers = torch.arange(len(rows), device=rows.device).unsqueeze(1)
        shares = torch.where(arg_out[rows] == numbers, shares, 0)
    grad_self = with_values(self, (shares * weight[columns]).sum(1)) if output_mask[0] else None
    grad_weight = sum_rows(shares * values.unsqueeze(1), columns, weight.shape[0]) if output_mask[1] else None
    return grad_self, grad_weight


@kernel("triangular_solve")
def _triangular_solve(
    self: Tensor, matrix: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    if matrix._nnz() == 0:
        # As in PyTorch's kernels, also where the ones of the diagonal are implied.
        return torch.full_like(self, float("nan")), self.new_empty(0)
    count_densified("triangular_solve")
    solution, _ = torch.triangular_solve(self, matrix.to_dense(), upper, transpose, unitriangular)
    return solution, self.new_empty(0)
