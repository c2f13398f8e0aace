"""Sparse tensors: every program has the same results as on the CPU, including the layout."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import check_python, check_refused

Program = Callable[[torch.device], Any]

FORMS = ("coalesced", "uncoalesced", "hybrid", "empty")
COMPRESSED = ("csr", "csc", "bsr", "bsc")


def check(program: Program, device: torch.device) -> None:
    """Like helpers.check, for results of which some are sparse."""
    actual, expected = (
        result if isinstance(result, list | tuple) else (result,)
        for result in (program(device), program(torch.device("cpu")))
    )
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        if not isinstance(other, Tensor):
            assert one == other
            continue
        assert (one.layout, one.dtype, one.shape, one.device.type) == (
            other.layout,
            other.dtype,
            other.shape,
            device.type,
        )
        if other.layout == torch.sparse_coo:
            assert one.sparse_dim() == other.sparse_dim()
            assert one.is_coalesced() or not other.is_coalesced()
        torch.testing.assert_close(*(each.detach().cpu().to_dense() for each in (one, other)), equal_nan=True)


def refuses(program: Program, device: torch.device) -> None:
    with pytest.raises(NotImplementedError, match=r"Call \.to_dense\(\)"):
        program(device)


class Inputs:
    """Sparse and dense tensors, the same on each device."""

    def __init__(self, form: str = "coalesced", dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.tail = (3,) if form == "hybrid" else ()
        nnz = 0 if form == "empty" else 9
        self.size = (6, 4, *self.tail)
        self.indices = torch.stack((torch.randint(6, (nnz,)), torch.randint(4, (nnz,))))
        self.values = self.random(nnz, *self.tail)
        self.is_coalesced = form != "uncoalesced"
        sizes = ((6, 4, 3), (6, 4), (4, 6), (4, 3), (6, 3), (3, 4), (2, 4, 3), (4,), (6,))
        self.given = {size: self.random(*size) for size in sizes}

    def random(self, *size: int) -> Tensor:
        drawn = torch.randint(-4, 5, size) if not self.dtype.is_floating_point else torch.randn(size)
        return drawn.to(self.dtype)

    def sparse(self, device: torch.device) -> Tensor:
        made = torch.sparse_coo_tensor(
            self.indices.to(device), self.values.to(device), self.size, check_invariants=True
        )
        return made.coalesce() if self.is_coalesced else made

    def other(self, device: torch.device) -> Tensor:
        """A tensor that shares some indices with `sparse`."""
        return self.sparse(device).coalesce().index_select(0, torch.tensor([0, 2, 1, 3, 5, 4], device=device))

    def dense(self, device: torch.device, *size: int) -> Tensor:
        return self.given[size or self.size].to(device).clone()

    def compressed(self, device: torch.device, layout: str) -> Tensor:
        block = ((2, 2),) if layout.startswith("b") else ()
        dense = self.given[6, 4]
        return getattr(torch.where(dense > 0, dense, 0).to(device), f"to_sparse_{layout}")(*block)


COO: dict[str, Callable[[Inputs, torch.device], Any]] = {
    "coalesce": lambda i, d: i.sparse(d).coalesce(),
    "to_dense": lambda i, d: i.sparse(d).to_dense(),
    "parts": lambda i, d: (i.sparse(d)._indices(), i.sparse(d)._values(), i.sparse(d)._nnz()),
    "add": lambda i, d: i.sparse(d) + i.other(d),
    "sub": lambda i, d: i.sparse(d).sub(i.sparse(d), alpha=3),
    "add_": lambda i, d: i.sparse(d).add_(i.sparse(d)),
    "dense add": lambda i, d: i.dense(d).add(i.sparse(d), alpha=2),
    "dense add_": lambda i, d: i.dense(d).add_(i.sparse(d)),
    "dense strided add_": lambda i, d: i.dense(d).transpose(0, 1).contiguous().transpose(0, 1).add_(i.sparse(d)),
    "mul": lambda i, d: i.sparse(d) * i.other(d),
    "mul dense": lambda i, d: i.sparse(d) * i.dense(d),
    "mul row": lambda i, d: i.sparse(d) * i.dense(d)[0],
    "mul number": lambda i, d: i.sparse(d).mul_(3),
    "div": lambda i, d: i.sparse(d).coalesce() / 2,
    "zero-preserving": lambda i, d: i.sparse(d).coalesce().abs().sqrt().sin().neg_(),
    "sum": lambda i, d: (i.sparse(d).sum(), torch.sparse.sum(i.sparse(d), 0), torch.sparse.sum(i.sparse(d), (0, 1))),
    "cat": lambda i, d: torch.cat((i.sparse(d), i.sparse(d)), 1),
    "transpose": lambda i, d: i.sparse(d).transpose(0, 1),
    "index_select": lambda i, d: i.sparse(d).index_select(0, torch.tensor([3, 1, 1, 0], device=d)),
    "select": lambda i, d: i.sparse(d)[1],
    "narrow": lambda i, d: torch.narrow_copy(i.sparse(d), 0, 1, 3),
    "dense mask": lambda i, d: i.dense(d).sparse_mask(i.sparse(d)),
    "sparse mask": lambda i, d: i.dense(d).to_sparse(2).sparse_mask(i.sparse(d)),
    "clone": lambda i, d: (i.sparse(d).clone().zero_(), torch.zeros_like(i.sparse(d)), i.sparse(d).detach()),
    "copy": lambda i, d: i.sparse(d).mul_(2).copy_(i.sparse(d)),
    "to": lambda i, d: (i.sparse(torch.device("cpu")).to(d), i.sparse(d).to(torch.int16)),
}
FLOATING = {
    "softmax": lambda i, d: (torch.sparse.softmax(i.sparse(d), 1), torch.sparse.log_softmax(i.sparse(d), -1)),
    "norm": lambda i, d: i.sparse(d).norm(),
}
PRODUCTS = {
    "mm": lambda i, d: torch.sparse.mm(i.sparse(d), i.dense(d, 4, 3)),
    "mv": lambda i, d: i.sparse(d) @ i.dense(d, 4),
    "sparse mm": lambda i, d: torch.sparse.mm(i.sparse(d), i.sparse(d).t()),
    "addmm": lambda i, d: torch.sparse.addmm(i.dense(d, 6, 3), i.sparse(d), i.dense(d, 4, 3), alpha=2, beta=3),
    "addmm_": lambda i, d: i.dense(d, 6, 3).addmm_(i.sparse(d), i.dense(d, 4, 3)),
    "bmm": lambda i, d: torch.bmm(torch.stack((i.sparse(d), i.sparse(d) * 2)), i.dense(d, 2, 4, 3)),
    "hspmm": lambda i, d: torch.hspmm(i.sparse(d), i.dense(d, 4, 3)),
    "to_sparse_csr": lambda i, d: i.sparse(d).to_sparse_csr(),
    "to_sparse_bsr": lambda i, d: i.sparse(d).to_sparse_bsr((3, 2)),
}
GRADIENTS: dict[str, Callable[[Inputs, torch.device, Tensor], Tensor]] = {
    "to_dense": lambda i, d, x: x.to_dense(),
    "to_sparse": lambda i, d, x: x.to_dense().to_sparse(2).to_dense(),
    "sum": lambda i, d, x: torch.sparse.sum(x, 0).to_dense(),
    "mul": lambda i, d, x: (x * i.dense(d)).to_dense(),
    "add": lambda i, d, x: i.dense(d) + x,
    "softmax": lambda i, d, x: torch.sparse.softmax(x, 1).to_dense(),
    "mask": lambda i, d, x: x.to_dense().sparse_mask(i.sparse(d).coalesce()).to_dense(),
}


@pytest.mark.parametrize("name", COO)
@pytest.mark.parametrize("form", FORMS)
def test_coo(name: str, form: str, device: torch.device) -> None:
    inputs = Inputs(form)
    check(lambda d: COO[name](inputs, d), device)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.complex64, torch.bfloat16], ids=str)
def test_coo_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    inputs = Inputs("uncoalesced", dtype)
    for name in ("coalesce", "to_dense", "sub", "dense add_", "mul", "mul dense", "sum", "dense mask", "to"):
        check(lambda d, name=name: COO[name](inputs, d), device)


def test_coo_in_each_mode(device: torch.device, mode: str) -> None:
    inputs = Inputs("uncoalesced")
    for program in (COO["coalesce"], COO["mul"], FLOATING["softmax"], PRODUCTS["sparse mm"]):
        check(lambda d, program=program: program(inputs, d), device)


@pytest.mark.parametrize("form", FORMS)
def test_coo_floating(form: str, device: torch.device) -> None:
    inputs = Inputs(form)
    for program in FLOATING.values():
        check(lambda d, program=program: program(inputs, d), device)


@pytest.mark.parametrize("name", PRODUCTS)
def test_coo_products(name: str, device: torch.device) -> None:
    for form in ("coalesced", "uncoalesced", "empty"):
        inputs = Inputs(form)
        check(lambda d, inputs=inputs: PRODUCTS[name](inputs, d), device)


@pytest.mark.parametrize("name", GRADIENTS)
def test_coo_gradients(name: str, device: torch.device) -> None:
    for form in ("coalesced", "hybrid"):
        inputs = Inputs(form)

        def program(d: torch.device, inputs: Inputs = inputs) -> Tensor | None:
            x = inputs.sparse(d).requires_grad_()
            GRADIENTS[name](inputs, d, x).square().sum().backward()
            return x.grad

        check(program, device)


def test_broadcasting(device: torch.device) -> None:
    """Compared with dense tensors: PyTorch's CPU is wrong if the sparse operand is broadcast."""
    for form in FORMS:
        inputs = Inputs(form)
        sparse, row, cube = inputs.sparse(device), inputs.dense(device)[:1].to_sparse(2), torch.rand(2, *inputs.size)
        for one, other in ((row, inputs.dense(device)), (cube.to(device), sparse), (row, sparse), (3, sparse)):
            dense = [each.to_dense() if isinstance(each, Tensor) else each for each in (one, other)]
            torch.testing.assert_close((one * other).to_dense(), dense[0] * dense[1])


def test_spdiags(device: torch.device) -> None:
    diagonals = torch.randn(3, 5)
    for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        check(lambda d, to=layout: torch.sparse.spdiags(diagonals.to(d), torch.tensor([-2, 0, 3]), (5, 5), to), device)


@pytest.mark.parametrize("dims", [(), (0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2)], ids=str)
def test_gradients_of_sums_of_repeated_elements(dims: tuple[int, ...], device: torch.device) -> None:
    places = torch.tensor([[0, 2, 0, 2, 1, 0], [1, 1, 1, 0, 0, 1]])
    values, weights = torch.randn(6, 3), torch.randn(4, 3, 3)

    def program(d: torch.device) -> Tensor | None:
        x = torch.sparse_coo_tensor(places, values, (4, 3, 3)).to(d).requires_grad_()
        total = torch.sparse.sum(x, dims) if dims else torch.sparse.sum(x)
        total = total.to_dense() if total.is_sparse else total
        (total * weights.sum(dims).to(d)).sum().backward()
        assert x.grad is not None
        return x.grad.coalesce()

    check(program, device)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_products_that_are_refused(layout: torch.layout, device: torch.device) -> None:
    dense = torch.ones(3, 3, device=device)
    sparse = dense.to_sparse(layout=layout)
    with pytest.raises(RuntimeError, match="addmm: mat2 must be a matrix, got 3-D tensor"):
        torch.addmm(dense, sparse, dense[None])
    with pytest.raises(RuntimeError, match=re.escape("{[1, 3, 3]}, size=[3, 3])")):
        torch.addmm(dense[None], sparse, dense)


def test_gradients_of_products(device: torch.device) -> None:
    inputs = Inputs()

    def program(d: torch.device, other: str) -> tuple[Tensor | None, Tensor | None]:
        x = inputs.sparse(d).requires_grad_()
        y = (inputs.dense(d, 4, 3) if other == "dense" else inputs.sparse(d).t().coalesce()).detach().requires_grad_()
        torch.sparse.sum(torch.sparse.mm(x, y).to_sparse()).backward()
        return x.grad, y.grad

    check(lambda d: program(d, "dense"), device)
    check(lambda d: program(d, "sparse"), device)


@pytest.mark.parametrize("layout", COMPRESSED)
def test_compressed(layout: str, device: torch.device) -> None:
    inputs = Inputs()

    def x(d: torch.device) -> Tensor:
        return inputs.compressed(d, layout)

    check(lambda d: (x(d), x(d).to_dense(), x(d).to_sparse(), x(torch.device("cpu")).to(d)), device)
    check(lambda d: (x(d).sin(), x(d).neg_(), x(d) * 2, x(d).sum(), x(d).double(), x(d).clone().zero_()), device)
    check(lambda d: (x(d).transpose(0, 1), torch.zeros_like(x(d)), x(d).neg_().copy_(x(d))), device)
    check(lambda d: x(d).to_dense().mul(2).sparse_mask(x(d)), device)
    if layout in ("csr", "csc"):  # the CPU does not support more for blocks
        check(lambda d: (inputs.dense(d) + x(d), x(d) @ inputs.dense(d, 4, 3), x(d) @ inputs.dense(d, 4)), device)


@pytest.mark.parametrize("batch", [(), (2,)], ids=["matrix", "batch"])
@pytest.mark.parametrize("goal", COMPRESSED)
@pytest.mark.parametrize("source", COMPRESSED)
def test_from_one_compressed_layout_to_another(
    source: str, goal: str, batch: tuple[int, ...], device: torch.device
) -> None:
    dense = torch.tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 3.0]]).expand(*batch, 2, 4)

    def converted(to: torch.device) -> torch.Tensor:
        made = dense.to(to)
        for layout in (source, goal):
            blocks = {"blocksize": (2, 2)} if layout in ("bsr", "bsc") else {}
            made = made.to_sparse(layout=getattr(torch, f"sparse_{layout}"), **blocks)
        return made.to_dense()

    if (source in ("bsr", "bsc") and goal in ("csr", "csc")) or (source in ("csr", "csc") and goal[0] == "b" and batch):
        check_refused(converted, device)
    else:
        check(converted, device)


def test_indices_keep_their_dtype_in_blocks(device: torch.device) -> None:
    parts = [torch.tensor(part, dtype=torch.int32, device=device) for part in ([0, 1, 2], [1, 0])]
    made = torch.sparse_csr_tensor(*parts, torch.ones(2, device=device), size=(2, 2)).to_sparse_bsr((1, 1))
    assert made.crow_indices().dtype == made.col_indices().dtype == torch.int32


def test_csr(device: torch.device) -> None:
    inputs = Inputs()

    def x(d: torch.device) -> Tensor:
        return inputs.compressed(d, "csr")

    check(lambda d: (x(d) + x(d).sin(), x(d) * x(d).sin(), x(d) * inputs.dense(d)), device)
    check(
        lambda d: [getattr(x(d), f"to_sparse_{to}")(*([(3, 2)] if to[0] == "b" else [])) for to in COMPRESSED], device
    )
    check(lambda d: (x(d) @ x(d).to_sparse_csc().transpose(0, 1), inputs.dense(d, 4, 6) @ x(d)), device)
    check(lambda d: torch.addmm(inputs.dense(d, 6, 3), x(d), inputs.dense(d, 4, 3), beta=0.5, alpha=2), device)
    check(lambda d: torch.addmv(inputs.dense(d, 6), x(d), inputs.dense(d, 4), beta=0.5), device)
    check(lambda d: (x(d).sum(0, keepdim=True), x(d).sum((0, 1), keepdim=True)), device)
    check(lambda d: torch.sparse.sampled_addmm(x(d), inputs.dense(d, 6, 3), inputs.dense(d, 3, 4), beta=0.5), device)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_mm_reduce(reduce: str, device: torch.device) -> None:
    inputs = Inputs()

    def program(d: torch.device) -> tuple[Tensor, Tensor | None, Tensor | None]:
        x = inputs.compressed(d, "csr").requires_grad_()
        y = inputs.dense(d, 4, 3).requires_grad_()
        result = torch.sparse.mm(x, y, reduce)
        result.square().sum().backward()
        return result, x.grad, y.grad

    check(program, device)


def test_products_with_other_dimensions_are_refused(device: torch.device) -> None:
    def matrix(d: torch.device) -> Tensor:
        return torch.eye(3).to_sparse_csr().to(d)

    for other in (torch.ones(3), torch.ones(1, 3, 2), torch.ones(2, 3), torch.ones(())):
        check_refused(lambda d, other=other: torch.sparse.mm(matrix(d), other.to(d), "amax"), device)
    for one in (torch.ones(3), torch.ones(())):
        check_refused(
            lambda d, one=one: torch.sparse.sampled_addmm(matrix(d), one.to(d), torch.eye(3, device=d)), device
        )
        check_refused(
            lambda d, one=one: torch.sparse.sampled_addmm(matrix(d), torch.eye(3, device=d), one.to(d)), device
        )


def test_triangular_solve_of_a_matrix_without_elements(device: torch.device) -> None:
    solved = torch.triangular_solve(torch.ones(3, 2, device=device), torch.zeros(3, 3, device=device).to_sparse_csr())
    assert solved.solution.isnan().all()


def test_triangular_solve_is_counted(device: torch.device) -> None:
    matrix, right = torch.randn(4, 4).triu() + 4 * torch.eye(4), torch.randn(4, 2)
    torch.tpu.reset_op_stats()
    check(lambda d: torch.triangular_solve(right.to(d), matrix.to(d).to_sparse_csr()).solution, device)
    assert torch.tpu.op_stats()["densified"] == {"triangular_solve": 1}


def test_invariants(device: torch.device) -> None:
    def make(crow: list[int], col: list[int]) -> Tensor:
        parts = torch.tensor(crow, device=device), torch.tensor(col, device=device), torch.ones(len(col), device=device)
        return torch.sparse_csr_tensor(*parts, size=(2, 3), check_invariants=True)

    assert make([0, 1, 3], [2, 0, 2])._nnz() == 3
    for wrong in (([1, 1, 3], [2, 0, 2]), ([0, 1, 2], [2, 0, 2]), ([0, 1, 3], [2, 0, 3]), ([0, 1, 3], [2, 2, 0])):
        with pytest.raises(RuntimeError, match="is not satisfied"):
            make(*wrong)
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        torch.sparse_coo_tensor(
            torch.tensor([[5]], device=device), torch.ones(1, device=device), (2,), check_invariants=True
        )


def test_what_is_refused(device: torch.device) -> None:
    sparse = torch.eye(3, device=device).to_sparse()
    refuses(lambda d: sparse.cos(), device)
    refuses(lambda d: sparse.to_sparse_csr().cumsum(0), device)
    refuses(lambda d: torch.linalg.qr(sparse), device)
    with pytest.raises(RuntimeError, match="Use add\\(dense, sparse\\) instead"):
        sparse + torch.eye(3, device=device)


def test_printing(device: torch.device) -> None:
    sparse = torch.eye(2, device=device).to_sparse()
    assert repr(sparse) == (
        "tensor(indices=tensor([[0, 1],\n                       [0, 1]]),\n       values=tensor([1., 1.]),\n"
        "       device='tpu:0', size=(2, 2), nnz=2, layout=torch.sparse_coo)"
    )
    assert "layout=torch.sparse_csr" in repr(sparse.to_sparse_csr())


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1, foreach=False),
    "SparseAdam": lambda parameters: torch.optim.SparseAdam(parameters, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
def test_training(name: str, kind: str, device: torch.device) -> None:
    weight, words, target = torch.randn(10, 4), torch.randint(10, (3, 6, 5)), torch.randn(6, 4)

    def program(d: torch.device) -> list[Any]:
        layer = getattr(nn, kind)(10, 4, sparse=True, padding_idx=2, _weight=weight.clone()).to(d)
        optimizer = OPTIMIZERS[name](layer.parameters())
        losses = []
        for batch in words:
            out = layer(batch.to(d))
            loss = (out - (target if kind == "EmbeddingBag" else target.unsqueeze(1)).to(d)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            assert layer.weight.grad.layout == torch.sparse_coo
            optimizer.step()
            losses.append(loss.detach())
        return [*losses, layer.weight]

    check(program, device)


def test_loaded_when_first_used() -> None:
    check_python(
        "import sys, torch\ntorch.ones(2, device='tpu') + 1\nassert 'torchtpu.operators.layouts' not in sys.modules\n"
        "torch.eye(2, device='tpu').to_sparse().coalesce().mul(2)\n"
    )


@pytest.mark.parametrize("is_coalesced", [False, True])
def test_products_of_sparse_numbers(is_coalesced: bool, device: torch.device) -> None:
    """Tensors without dimensions that have several elements: the product has as many in either order."""

    def program(on: torch.device) -> list[Any]:
        values = torch.arange(4, device=on) * (1 + 2j)
        several = torch.sparse_coo_tensor(torch.empty(0, 4, dtype=torch.int64, device=on), values, ())
        several = several.coalesce() if is_coalesced else several
        one = torch.tensor(3, device=on).to_sparse()
        products = [several * one, one * several]
        return [*(each._values() for each in products), *(each.to_dense() for each in products)]

    check(program, device)


def check_everywhere(indices: Tensor, values: Tensor) -> Tensor:
    with torch.sparse.check_sparse_tensor_invariants():
        return torch.sparse_coo_tensor(indices, values, (3, 3), is_coalesced=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda i, v: torch._validate_sparse_coo_tensor_args(i, v, (3, 3), is_coalesced=True),
        lambda i, v: torch.sparse_coo_tensor(i, v, (3, 3), is_coalesced=True, check_invariants=True),
        check_everywhere,
    ],
    ids=["arguments", "tensor", "everywhere"],
)
@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([[0, 1], [1, 0]], None),
        ([[], []], None),
        ([[2], [1]], None),
        ([[1, 0], [0, 1]], "cannot set is_coalesced to true"),
        ([[1, 1], [0, 0]], "cannot set is_coalesced to true"),
        ([[0, 3], [1, 0]], "for dim 0, size is 3 but found index 3"),
    ],
)
def test_invariants_of_coalesced_tensors(
    indices: list[list[int]], message: str | None, make: Callable[[Tensor, Tensor], Tensor], device: torch.device
) -> None:
    for on in (device, torch.device("cpu")):
        given = torch.tensor(indices, dtype=torch.int64, device=on), torch.ones(len(indices[0]), device=on)
        expected = nullcontext() if message is None else pytest.raises(RuntimeError, match=message)
        with expected:
            make(*given)


def test_a_coalesced_tensor_is_loaded(device: torch.device) -> None:
    """torch.load checks the invariants of what it has loaded to the default device."""
    file = io.BytesIO()
    torch.save(torch.eye(3, device=device).to_sparse(), file)
    file.seek(0)
    with torch.device(device):
        loaded = torch.load(file)
    assert loaded.device.type == device.type
    assert loaded.is_coalesced()
    assert torch.equal(loaded.to_dense().cpu(), torch.eye(3))


def test_a_product_of_two_dtypes(device: torch.device) -> None:
    message = "mat1 dtype Double does not match mat2 dtype Float"
    for place in ("cpu", device):
        wide, narrow = (torch.eye(3, dtype=dtype).to_sparse().to(place) for dtype in (torch.float64, torch.float32))
        with pytest.raises(RuntimeError, match=message):
            torch.sparse.mm(wide, narrow)


def test_compressed_matrices_of_one_element(device: torch.device) -> None:
    """Their indices are contiguous, as the checks of invariants ask."""
    with torch.sparse.check_sparse_tensor_invariants():
        for layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
            block = {"blocksize": (2, 3)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
            dense = torch.ones(2, 3) if block else torch.ones(1, 1)
            sparse = dense.to(device).to_sparse(layout=layout, **block)
            torch.testing.assert_close(sparse.to_dense().cpu(), dense)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("accumulates", [False, True])
def test_projection_of_a_mask(accumulates: bool, dtype: torch.dtype, device: torch.device) -> None:
    """The elements of the first tensor, with zeros where the mask has none; each may stand more than once."""
    places = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 1, 0, 1]])
    first, second = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]]), places[:, :0]
    if dtype == torch.bool and accumulates:
        first = first[:, :1]
    for values_of in (lambda n: torch.arange(1, n + 1).to(dtype), lambda n: torch.ones(n, 3).to(dtype)):
        for one, mask in [(first, places), (places, first), (places, places), (first, second), (second, first)]:

            def project(
                on: torch.device | str, one: Tensor = one, mask: Tensor = mask, of: Any = values_of
            ) -> list[Tensor]:
                given = of(one.shape[1])
                sparse = torch.sparse_coo_tensor(one, given, (2, 2, *given.shape[1:])).to(on)
                other = torch.sparse_coo_tensor(mask, of(mask.shape[1]), sparse.shape).to(on)
                return [torch.ops.aten._sparse_mask_projection(sparse, other, accumulates), sparse.sparse_mask(other)]

            for expected, actual in zip(project("cpu"), project(device), strict=True):
                assert actual.is_coalesced() == expected.is_coalesced()
                assert actual._indices().tolist() == expected._indices().tolist()
                torch.testing.assert_close(actual._values().cpu(), expected._values())


def test_the_gradient_of_a_product_of_repeated_elements(device: torch.device) -> None:
    indices = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 1, 0, 1]])
    values = torch.arange(1.0, 6.0)
    gradients = []
    for place in ("cpu", device):
        a = torch.sparse_coo_tensor(indices, values, (2, 2)).to(place).requires_grad_()
        b = torch.sparse_coo_tensor(indices.flip(0), values, (2, 2)).to(place).requires_grad_()
        torch.sparse.mm(a, b).to_dense().square().sum().backward()
        gradients.append([x.grad.to_dense().cpu() for x in (a, b)])  # type: ignore[union-attr]
    torch.testing.assert_close(*gradients)
