"""Rows of crates/aten/src/ops/nn/grid_sample.rs."""

import torch

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "grid_sampler_2d",
    "grid_sampler_3d",
    "nn.functional.grid_sample",
)


def test_gradient_of_the_input_only(device: torch.device) -> None:
    """Autograd asks for one of the two gradients (`output_mask`)."""

    def program(device: torch.device) -> list[torch.Tensor]:
        results = []
        for spatial in (2, 3):
            image = torch.linspace(-1, 1, 2 * 3**spatial).reshape(1, 2, *[3] * spatial).to(device).requires_grad_()
            grid = torch.linspace(-1.2, 1.2, 4 * spatial).reshape(1, *[2] * 2, *[1] * (spatial - 2), spatial).to(device)
            sampled = torch.nn.functional.grid_sample(image, grid, align_corners=False)
            results.extend(torch.autograd.grad(sampled.square().sum(), image))
        return results

    check(program, device)
