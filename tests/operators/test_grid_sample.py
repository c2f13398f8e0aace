"""Rows of crates/aten/src/ops/nn/grid_sample.rs."""

import pytest
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


@pytest.mark.parametrize("padded", [(0,), (1,), (2,), (0, 1), (1, 2)])
def test_gradient_and_grid_with_padding_in_other_dimensions(padded: tuple[int, ...], device: torch.device) -> None:
    """With as many elements, the two lie at other positions."""
    image, grid, grad = torch.randn(1, 2, 5, 5, 5), torch.rand(1, 2, 2, 2, 3) * 2 - 1, torch.randn(1, 2, 2, 2, 2)

    def gradients(device: str | torch.device) -> tuple[torch.Tensor, ...]:
        given = [each.to(device) for each in (grad, image, grid)]
        if str(device) != "cpu":
            torch.tpu.mark_dynamic(given[0], 2, max=4)
            for dim in padded:
                torch.tpu.mark_dynamic(given[2], 1 + dim, max=4)
        return torch.ops.aten.grid_sampler_3d_backward(*given, 0, 0, False, [True, True])

    for expected, actual in zip(gradients("cpu"), gradients(device), strict=True):
        torch.testing.assert_close(actual.cpu(), expected)
