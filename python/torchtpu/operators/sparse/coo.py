"""Kernels for COO tensors, and the products that the compressed layouts share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchtpu.operators.sparse.places import find, flat, look_up, runs, spread, sum_rows, unflat

aten = torch.ops.aten

Kernel = Callable[..., Any]

KERNELS: dict[str, Kernel] = {}

COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def is_compressed(tensor: Tensor) -> bool:
    return tensor.layout in COMPRESSED


def into(table: dict[str, Kernel]) -> Callable[[str], Callable[[Kernel], Kernel]]:
    """A decorator factory: registers a kernel in the table under a name."""

    def kernel(name: str) -> Callable[[Kernel], Kernel]:
        def register(function: Kernel) -> Kernel:
            table[name] = function
            return function

        return register

    return kernel


kernel = into(KERNELS)


def make(indices: Tensor, values: Tensor, size: Sequence[int], coalesced: bool) -> Tensor:
    sparse_dim = indices.shape[0]
    return aten._sparse_coo_tensor_with_dims_and_tensors(
        sparse_dim,
        len(size) - sparse_dim,
        size,
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
        is_coalesced=coalesced,
    )


def with_values(like: Tensor, values: Tensor) -> Tensor:
    """A tensor with the same indices and other values."""
    return make(like._indices(), values, like.shape, like.is_coalesced())


def write(out: Tensor, result: Tensor) -> Tensor:
    """Writes the result to `out`, in the layout of `out`."""
    if not torch.can_cast(result.dtype, out.dtype):
        raise RuntimeError(f"result type {result.dtype} can't be cast to the desired output type {out.dtype}")
    if out.layout == torch.strided:
        result = result.to_dense() if result.layout != torch.strided else result
        return (out if out.shape == result.shape else out.resize_(result.shape)).copy_(result)
    if out.layout == torch.sparse_coo:
        return aten.copy_sparse_to_sparse_(out, result)
    return aten.resize_as_sparse_(out, result).copy_(result)


def keys_of(self: Tensor) -> Tensor:
    """The flat positions of the specified elements in the sparse dimensions. Sorted and unique if coalesced."""
    return flat(self._indices(), self.shape[: self.sparse_dim()])


# ---- elements -----------------------------------------------------------------------------------------------------


@kernel("_coalesce")
def coalesce(self: Tensor) -> Tensor:
    if self.is_coalesced():
        return self
    if self._nnz() < 2:
        return make(self._indices().clone(), self._values().clone(), self.shape, True)
    keys, groups = torch.unique(keys_of(self), return_inverse=True)
    values = sum_rows(self._values(), groups, len(keys))
    return make(unflat(keys, self.shape[: self.sparse_dim()]), values, self.shape, True)


@kernel("add.out")
def _add_out(self: Tensor, other: Tensor, *, alpha: float = 1, out: Tensor) -> Tensor:
    self, other = torch.as_tensor(self), torch.as_tensor(other)
    if other.layout == torch.strided:
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    dtype = torch.promote_types(self.dtype, other.dtype)
    if not torch.can_cast(dtype, out.dtype):
        raise RuntimeError(f"Can't convert result type {dtype} to output {out.dtype} in add operation")
    if self.layout == torch.strided:
        return add_to_dense(self, other, alpha, out)
    if self.shape != other.shape:
        raise RuntimeError(
            f"add: expected sizes of 'self' and 'other' to match, but {list(self.shape)} != {list(other.shape)}"
        )
    if self._nnz() > 0 and other._nnz() > 0 and self.sparse_dim() != other.sparse_dim():
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same density, but 'self' has {self.sparse_dim()} sparse "
            f"dimensions while 'other' has {other.sparse_dim()} sparse dimensions"
        )
    values = scaled(other._values().to(dtype), alpha)
    if other._nnz() == 0:
        return write(out, self)
    if self._nnz() == 0:
        return write(out, with_values(other, values))
    indices = torch.cat((self._indices(), other._indices()), 1)
    total = make(indices, torch.cat((self._values().to(dtype), values)), self.shape, False)
    if self.is_coalesced() and other.is_coalesced():
        total = coalesce(total)
    return write(out, total)


def add_to_dense(self: Tensor, other: Tensor, alpha: float, out: Tensor) -> Tensor:
    """A dense tensor plus a COO tensor. Only the specified elements change."""
    if self.shape != other.shape:
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {list(self.shape)} while other has "
            f"size {list(other.shape)} (FYI: dense-sparse addition does not currently support broadcasting)"
        )
    if out is not self:
        (out if out.shape == self.shape else out.resize_(self.shape)).copy_(self)
    values = scaled(other._values().to(torch.promote_types(self.dtype, other.dtype)), alpha)
    indices = other._indices()
    if len(values) == 0:
        return out
    if len(indices) == 0:
        return out.logical_or_(values.any(0)) if out.dtype == torch.bool else out.add_(values.sum(0))
    if out.dtype == torch.bool:
        hits = torch.zeros(out.shape, dtype=torch.int32, device=out.device)
        return out.logical_or_(hits.index_put_(tuple(indices), values.to(torch.int32), accumulate=True))
    return out.index_put_(tuple(indices), values.to(out.dtype), accumulate=True)


@kernel("mul")
def _mul(self: Tensor | float, other: Tensor | float) -> Tensor:
    if not isinstance(self, Tensor) or (self.layout == torch.strided and isinstance(other, Tensor)):
        self, other = other, self
    assert isinstance(self, Tensor)
    if not isinstance(other, Tensor):
        return with_values(self, self._values() * other)
    if other.layout == torch.strided:
        return _mul_dense(self, other, torch.result_type(self, other))
    return _mul_sparse(self, other, torch.result_type(self, other))


def _mul_sparse(self: Tensor, other: Tensor, dtype: torch.dtype) -> Tensor:
    if self.dim() == 0 or other.dim() == 0:
        # One of the two is the number, and the result has the elements of the other one. If both have no dimensions,
        # the coalesced one is the number.
        is_number = other.dim() == 0 and (self.dim() > 0 or other.is_coalesced())
        scalar, self = (other, self) if is_number else (self, other)
        return with_values(self, self._values().to(dtype) * scalar._values().sum(0).to(dtype))
    if self.shape != other.shape:
        shape = torch.broadcast_shapes(self.shape, other.shape)
        self, other = _broadcast_to(self, shape), _broadcast_to(other, shape)
    if self.sparse_dim() != other.sparse_dim():
        raise RuntimeError("mul(sparse, sparse): inputs must have the same number of sparse dimensions")
    self, other = coalesce(self), coalesce(other)
    if self._nnz() == 0 or other._nnz() == 0:
        return make(self._indices()[:, :0], self._values()[:0].to(dtype), self.shape, True)
    mine, others = keys_of(self), keys_of(other)
    places = find(others, mine)
    common = (others[places] == mine).nonzero().squeeze(1)
    values = self._values()[common].to(dtype) * other._values()[places[common]].to(dtype)
    return make(self._indices()[:, common], values, self.shape, True)


def _mul_dense(self: Tensor, dense: Tensor, dtype: torch.dtype) -> Tensor:
    shape = torch.broadcast_shapes(self.shape, dense.shape)
    if shape != self.shape:
        self = coalesce(_broadcast_to(self, shape))
    values = self._values().to(dtype)
    if dense.dim() == 0:
        return with_values(self, values * dense)
    return with_values(self, values * take(dense.to(dtype).expand(shape), self))


@kernel("_sparse_broadcast_to")
def _broadcast_to(self: Tensor, size: Sequence[int]) -> Tensor:
    new = len(size) - self.dim()
    sparse_dim = self.sparse_dim() + new
    old = (1,) * new + tuple(self.shape)
    if new < 0 or any(one not in (1, other) for one, other in zip(old, size, strict=True)):
        raise RuntimeError(
            f"The expanded size of the tensor ({list(size)}) must match the existing size {list(self.shape)}"
        )
    repeated = [dim for dim in range(sparse_dim) if dim < new or old[dim] != size[dim]]
    repeats = unflat(
        torch.arange(math.prod(size[dim] for dim in repeated), device=self.device), [size[d] for d in repeated]
    )
    count, nnz = repeats.shape[1], self._nnz()
    rows = [
        repeats[repeated.index(dim)].unsqueeze(1) if dim in repeated else self._indices()[dim - new]
        for dim in range(sparse_dim)
    ]
    indices = [row.expand(count, nnz).reshape(-1) for row in rows]
    values = self._values().expand(count, nnz, *size[sparse_dim:]).reshape(count * nnz, *size[sparse_dim:])
    # If only leading dimensions are repeated, the elements stay in order.
    coalesced = self.is_coalesced() and repeated == list(range(len(repeated)))
    return make(torch.stack(indices) if indices else self._indices(), values, size, coalesced)


def take(dense: Tensor, places: Tensor) -> Tensor:
    """The elements of a dense tensor at the indices of a COO tensor."""
    indices = places._indices()
    return dense[tuple(indices)] if len(indices) else dense.expand(places._nnz(), *dense.shape)


@kernel("sparse_mask")
def _sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    if mask.layout != torch.sparse_coo:
        raise RuntimeError(f"sparse_mask: expected mask to be sparse COO, not {mask.layout}")
    if self.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size "
            f"{list(mask.shape)}"
        )
    if self is mask:
        return self
    if self.layout == torch.strided:
        return with_values(mask, take(self, mask))
    return _at_elements_of(self, mask)


def _at_elements_of(self: Tensor, mask: Tensor) -> Tensor:
    """The sums of the elements of a COO tensor at each element of another one."""
    self = coalesce(self)
    return with_values(mask, look_up(keys_of(self), self._values(), keys_of(mask)))


@kernel("_sparse_mask_projection")
def _project(self: Tensor, mask: Tensor, accumulate_matches: bool = False) -> Tensor:
    """The elements of `self`, with zeros where `mask` has no element: the gradient of `sparse_mask` and of products.

    If matches accumulate, each counts as often as the mask has an element there.
    """
    if self.shape != mask.shape:
        raise RuntimeError(
            f"_sparse_mask_projection(): operands have incompatible sizes; self has size {list(self.shape)} but mask "
            f"has size {list(mask.shape)}"
        )
    values, wanted, keys = self._values(), keys_of(self), keys_of(mask).sort().values
    matches = torch.searchsorted(keys, wanted, right=True) - torch.searchsorted(keys, wanted)
    if accumulate_matches:
        values = values * spread(matches, values).to(values.dtype)
    return with_values(self, values.masked_fill(spread(matches == 0, values), 0))


@kernel("index_select")
def _index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    dim = _wrapped(self, dim)
    size = (*self.shape[:dim], len(index), *self.shape[dim + 1 :])
    if dim >= self.sparse_dim():
        values = self._values().index_select(dim - self.sparse_dim() + 1, index)
        return make(self._indices(), values, size, self.is_coalesced())
    column, order = self._indices()[dim].sort(stable=True)
    wanted = torch.where(index < 0, index + self.shape[dim], index).to(torch.int64)
    starts = torch.searchsorted(column, wanted)
    found, owners = runs(starts, torch.searchsorted(column, wanted, right=True) - starts)
    taken = order[found]
    indices = self._indices()[:, taken]
    indices[dim] = owners
    return make(indices, self._values()[taken], size, len(taken) < 2)


def _wrapped(self: Tensor, dim: int) -> int:
    if not -self.dim() <= dim < max(self.dim(), 1):
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-self.dim()}, {self.dim() - 1}], but got {dim})"
        )
    return dim % max(self.dim(), 1)


# ---- sums ---------------------------------------------------------------------------------------------------------


@kernel("_sparse_sum_backward")
def _sparse_sum_backward(grad: Tensor, self: Tensor, dims: Sequence[int]) -> Tensor:
    # Elements at the same place are one element: the gradient has it once.
    self = coalesce(self)
    summed = {_wrapped(self, dim) for dim in dims}
    sparse_dim = self.sparse_dim()
    kept = [dim for dim in range(sparse_dim) if dim not in summed]
    if not kept:
        rows = grad.unsqueeze(0)
    else:
        grad = coalesce(grad)
        wanted = flat(self._indices()[kept], [self.shape[dim] for dim in kept])
        rows = look_up(keys_of(grad), grad._values(), wanted)
    for dim in sorted(dim for dim in summed if dim >= sparse_dim):
        rows = rows.unsqueeze(dim - sparse_dim + 1)
    return with_values(self, rows.expand(self._values().shape).clone())


def _pools(self: Tensor, dim: int) -> tuple[Tensor, int]:
    """A pool is a set of elements that share all coordinates but one. Returns the pool of each element, and the
    number of pools."""
    others = [each for each in range(self.sparse_dim()) if each != dim]
    keys = flat(self._indices()[others], [self.shape[each] for each in others])
    pools, members = torch.unique(keys, return_inverse=True)
    return members, len(pools)


def _softmax(is_log: bool, self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    self, dim = coalesce(self), _wrapped(self, dim)
    values = self._values()
    if dim >= self.sparse_dim():
        function = torch.log_softmax if is_log else torch.softmax
        return with_values(self, function(values, dim - self.sparse_dim() + 1))
    if len(values) == 0:
        return with_values(self, values.clone())
    members, count = _pools(self, dim)
    lowest = values.new_full((count, *values.shape[1:]), -torch.inf)
    values = values - lowest.index_reduce_(0, members, values, "amax")[members]
    powers = values.exp()
    sums = sum_rows(powers, members, count)[members]
    return with_values(self, values - sums.log() if is_log else powers / sums)


def _softmax_backward(is_log: bool, grad_output: Tensor, output: Tensor, dim: int, self: Tensor) -> Tensor:
    output, dim = coalesce(output), _wrapped(output, dim)
    grad, result = _at_elements_of(grad_output, output)._values(), output._values()
    weighted = grad if is_log else grad * result
    if dim >= output.sparse_dim():
        sums = weighted.sum(dim - output.sparse_dim() + 1, keepdim=True)
    elif len(result) == 0:
        sums = weighted
    else:
        members, count = _pools(output, dim)
        sums = sum_rows(weighted, members, count)[members]
    return with_values(output, grad - result.exp() * sums if is_log else weighted - result * sums)


for _prefix, _is_log in (("_sparse_softmax", False), ("_sparse_log_softmax", True)):
    KERNELS[_prefix] = functools.partial(_softmax, _is_log)
    KERNELS[f"{_prefix}_backward_data"] = functools.partial(_softmax_backward, _is_log)


@kernel("_spdiags")
def _spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: torch.layout | None = None) -> Tensor:
    diagonals = diagonals.unsqueeze(0) if diagonals.dim() == 1 else diagonals
    offsets = offsets.unsqueeze(0) if offsets.dim() == 0 else offsets
    if diagonals.dim() != 2:
        raise RuntimeError("Diagonals must be vector or matrix")
    if len(shape) != 2:
        raise RuntimeError("Output shape must be 2d")
    if offsets.dim() != 1:
        raise RuntimeError("Offsets must be scalar or vector")
    if len(diagonals) != len(offsets):
        raise RuntimeError(
            f"Number of diagonals ({len(diagonals)}) does not match the number of offsets ({len(offsets)})"
        )
    if layout not in (None, torch.sparse_coo, torch.sparse_csc, torch.sparse_csr):
        raise RuntimeError(f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout}")
    if offsets.dtype != torch.int64:
        raise RuntimeError("Offset Tensor must have dtype Long")
    places = offsets.tolist()
    if len(set(places)) != len(places):
        raise RuntimeError("Offset tensor contains duplicate values")
    columns = [
        torch.arange(max(0, at), max(0, at, min(diagonals.shape[1], shape[1], shape[0] + at)), device=diagonals.device)
        for at in places
    ]
    indices = torch.stack(
        (torch.cat([column - at for column, at in zip(columns, places, strict=True)]), torch.cat(columns))
    )
    values = torch.cat([diagonal[column] for diagonal, column in zip(diagonals, columns, strict=True)])
    made = make(indices, values, shape, False)
    if layout == torch.sparse_csr:
        return made.to_sparse_csr()
    return made.to_sparse_csc() if layout == torch.sparse_csc else made


# ---- products -----------------------------------------------------------------------------------------------------


def times(sparse: Tensor, dense: Tensor) -> Tensor:
    """A COO matrix times a dense matrix: adds each specified element's multiple of a row to a row of the result."""
    rows, columns = sparse._indices()
    products = sparse._values().unsqueeze(1) * dense[columns]
    return sum_rows(products, rows, sparse.shape[0])


def scaled(self: Tensor, factor: float) -> Tensor:
    """A multiple, in the tensor's dtype."""
    return self if factor == 1 else (self * factor).to(self.dtype)


def scaled_sum(self: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """`beta * self + alpha * product`, as in addmm: `self` is not read if beta is 0."""
    product = scaled(product, alpha)
    if self.layout == torch.strided:
        torch.empty((), dtype=self.dtype).expand(self.shape).expand(product.shape)  # refuses in the CPU's words
    return product if beta == 0 else product + scaled(self, beta)


def scalar_type(tensor: Tensor) -> str:
    """PyTorch's name of the dtype in messages of its kernels, such as "Float"."""
    return torch.empty(0, dtype=tensor.dtype).type().removeprefix("torch.").removesuffix("Tensor")


def check_product(name: str, mat1: Tensor, mat2: Tensor) -> None:
    for what, matrix in (("mat1", mat1), ("mat2", mat2)):
        if matrix.dim() != 2:
            raise RuntimeError(f"{name}: {what} must be a matrix, got {matrix.dim()}-D tensor")
    if mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"{name}: mat1 and mat2 shapes cannot be multiplied "
            f"({mat1.shape[0]}x{mat1.shape[1]} and {mat2.shape[0]}x{mat2.shape[1]})"
        )
    if mat1.dtype != mat2.dtype:
        raise RuntimeError(f"mat1 dtype {scalar_type(mat1)} does not match mat2 dtype {scalar_type(mat2)}")
    for matrix in (mat1, mat2):
        if matrix.layout == torch.sparse_coo and matrix.sparse_dim() != 2:
            raise RuntimeError(f"{name}: expected two sparse dimensions, got {matrix.sparse_dim()}")


@kernel("addmm")
def _addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    check_product("addmm", mat1, mat2)
    if mat1.layout != torch.sparse_coo or mat2.layout != torch.strided or self.layout != torch.strided:
        raise NotImplementedError(
            "addmm: of a COO tensor, only dense + COO @ dense is supported. Call .to_dense() on the others"
        )
    self.expand(mat1.shape[0], mat2.shape[1])
    return scaled_sum(self, times(mat1, mat2), beta, alpha)


KERNELS["mm"] = aten.mm.default  # for mm.out


@kernel("_sparse_sparse_matmul")
def matmul(self: Tensor, other: Tensor) -> Tensor:
    """The product of two COO matrices: each element of the first is multiplied with a row of the second."""
    check_product("_sparse_sparse_matmul", self, other)
    left, right = coalesce(self), coalesce(other)
    rows, columns = left._indices()
    others = right._indices()
    starts = torch.searchsorted(others[0].contiguous(), columns)
    met, owners = runs(starts, torch.searchsorted(others[0].contiguous(), columns, right=True) - starts)
    indices = torch.stack((rows[owners], others[1][met]))
    values = left._values()[owners] * right._values()[met]
    return coalesce(make(indices, values, (self.shape[0], other.shape[1]), False))


@kernel("bmm")
def _bmm(self: Tensor, mat2: Tensor) -> Tensor:
    if mat2.layout != torch.strided or self.layout != torch.sparse_coo or self.sparse_dim() != 3:
        raise NotImplementedError("bmm: only COO @ dense is supported. Call .to_dense() on the others")
    if mat2.dim() != 3 or self.shape[0] != mat2.shape[0] or self.shape[2] != mat2.shape[1]:
        raise RuntimeError(f"bmm: shapes {list(self.shape)} and {list(mat2.shape)} cannot be multiplied")
    batch, rows, columns = self._indices()
    products = self._values().unsqueeze(1) * mat2[batch, columns]
    total = sum_rows(products, batch * self.shape[1] + rows, self.shape[0] * self.shape[1])
    return total.view(*self.shape[:2], mat2.shape[2])


@kernel("hspmm")
def _hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    check_product("hspmm", mat1, mat2)
    mat1 = coalesce(mat1)
    rows, columns = mat1._indices()
    kept, groups = torch.unique(rows, return_inverse=True)
    values = sum_rows(mat1._values().unsqueeze(1) * mat2[columns], groups, len(kept))
    return make(kept.unsqueeze(0), values, (mat1.shape[0], mat2.shape[1]), True)


@kernel("sspaddmm")
def _sspaddmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    check_product("sspaddmm", mat1, mat2)
    product = matmul(mat1, mat2.to_sparse() if mat2.layout == torch.strided else mat2)
    return scaled_sum(self, product, beta, alpha)
