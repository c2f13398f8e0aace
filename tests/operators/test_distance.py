"""Rows of crates/aten/src/ops/nn/distance.rs."""

import pytest
import torch
from torch import Tensor

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "cdist",
    "nn.functional.cosine_similarity",
    "nn.functional.pairwise_distance",
    "nn.functional.pdist",
)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    "sizes", [((4, 5), (0, 3, 5)), ((0, 4, 5), (3, 5)), ((4, 5), (2, 0, 5)), ((2, 4, 0), (3, 0))], ids=str
)
def test_gradients_of_no_distances(device: torch.device, p: float, sizes: tuple[tuple[int, ...], ...]) -> None:
    """The batches of the two are broadcast."""

    def run(d: torch.device) -> list[Tensor]:
        x, y = (torch.ones(size).to(d).requires_grad_() for size in sizes)
        torch.cdist(x, y, p).sum().backward()
        return [x.grad, y.grad]

    check(run, device)
