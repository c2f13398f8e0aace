"""Sparse tensors of booleans."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import check


@pytest.mark.parametrize(
    ("indices", "values", "shape"),
    [
        pytest.param([[0, 0, 1], [1, 1, 2]], [True, False, False], (2, 3), id="repeated"),
        pytest.param([[0, 1]], [[True, False], [False, False]], (2, 2), id="dense dimension"),
        pytest.param(torch.empty(0, 2, dtype=torch.int64).tolist(), [False, True], (), id="no dimension"),
    ],
)
def test_to_dense(indices: list[list[int]], values: list[bool], shape: tuple[int, ...], device: torch.device) -> None:
    def program(device: torch.device) -> torch.Tensor:
        where = torch.tensor(indices, dtype=torch.int64, device=device).reshape(len(indices), len(values))
        return torch.sparse_coo_tensor(where, torch.tensor(values, device=device), shape).to_dense()

    check(program, device)


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
def test_dense_to_compressed_passes_the_checks_of_sparse_tensors(layout: torch.layout, device: torch.device) -> None:
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    with torch.sparse.check_sparse_tensor_invariants():
        actual = x.to(device).to_sparse(layout=layout)
    assert torch.equal(actual.to_dense().cpu(), x)
