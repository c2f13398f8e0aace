"""Rows of crates/aten/src/ops/linalg/qr.rs."""

import torch

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "geqrf",
    "linalg.householder_product",
    "linalg.qr",
    "ormqr",
)


def test_geqrf_is_column_major(device: torch.device) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        shapes = ((3, 3), (2, 4, 3), (0, 3), (2, 0, 3))
        torch.manual_seed(0)
        return [each for shape in shapes for each in torch.geqrf(torch.randn(shape).to(device))]

    check(program, device)
