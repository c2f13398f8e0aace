"""Rows of crates/aten/src/ops/linalg/spectral.rs."""

import torch

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "linalg.cond",
    "linalg.eigh",
    "linalg.eigvalsh",
    "linalg.lstsq",
    "linalg.lstsq.grad_oriented",
    "linalg.matrix_rank",
    "linalg.matrix_rank.hermitian",
    "linalg.matrix_sqrth",
    "linalg.pinv",
    "linalg.pinv.hermitian",
    "linalg.pinv.singular",
    "linalg.svd",
    "linalg.svdvals",
    "matrix_exp",
    "pca_lowrank",
    "pinverse",
    "svd",
    "svd_lowrank",
)


def test_solutions_of_lstsq_are_column_major(device: torch.device) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        a, b = torch.randn(2, 3, 4).to(device), torch.randn(2, 3, 2).to(device)
        square = torch.linalg.lstsq(a[..., :3] + 4 * torch.eye(3, device=device), b).solution
        return [torch.linalg.lstsq(a, b).solution, square, torch.linalg.lstsq(a[0], b[0]).solution]

    check(program, device)
