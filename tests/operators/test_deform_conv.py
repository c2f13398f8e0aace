"""Rows of crates/aten/src/ops/nn/deform_conv.rs: torchvision's deformable convolution."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

# `make test` installs it. torchtpu does not need it.
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed: pip install torchvision")
deform_conv2d = torchvision.ops.deform_conv2d


class Sizes(NamedTuple):
    images: int = 2
    channels: int = 4
    outputs: int = 6
    kernel: tuple[int, int] = (3, 3)
    settings: tuple[Any, Any, Any] = (1, 1, 1)
    """Stride, padding and dilation."""
    groups: int = 1
    offset_groups: int = 1
    has_mask: bool = True
    has_bias: bool = True

    def tensors(self, dtype: torch.dtype) -> list[Tensor | None]:
        """Input, offset, weight, bias and mask."""
        image = torch.randn(self.images, self.channels, 7, 8, dtype=dtype)
        weight = torch.randn(self.outputs, self.channels // self.groups, *self.kernel, dtype=dtype)
        stride, padding, dilation = self.settings
        shape = torch.nn.functional.conv2d(image, weight, None, stride, padding, dilation, self.groups).shape[2:]
        taps = self.offset_groups * weight[0, 0].numel()
        offset = torch.randn(self.images, 2 * taps, *shape, dtype=dtype) * 2
        bias = torch.randn(self.outputs, dtype=dtype) if self.has_bias else None
        mask = torch.rand(self.images, taps, *shape, dtype=dtype) if self.has_mask else None
        return [image, offset, weight, bias, mask]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(),
        Sizes(kernel=(3, 2), settings=(2, 0, 1), groups=2, offset_groups=2, has_bias=False),
        Sizes(channels=6, outputs=3, settings=((1, 2), (1, 0), (2, 1)), groups=3, offset_groups=2, has_mask=False),
        Sizes(kernel=(1, 1), settings=(1, 0, 1), has_mask=False, has_bias=False),
        Sizes(groups=4, outputs=4, offset_groups=4),
        Sizes(images=0),
    ],
)
def test_results_and_gradients(sizes: Sizes, dtype: torch.dtype, device: torch.device) -> None:
    tensors, results = sizes.tensors(dtype), []
    for place in ("cpu", device):
        given = [None if x is None else x.to(place).detach().requires_grad_() for x in tensors]
        image, offset, weight, bias, mask = given
        stride, padding, dilation = sizes.settings
        result = deform_conv2d(image, offset, weight, bias, stride, padding, dilation, mask)
        result.backward(torch.linspace(-1, 1, result.numel(), dtype=dtype).view(result.shape).to(place))
        results.append([result.detach().cpu()] + [x.grad.cpu() for x in given if x is not None])  # type: ignore[union-attr]
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_compiled(device: torch.device) -> None:
    image, offset, weight, *_ = Sizes().tensors(torch.float32)
    compiled = torch.compile(lambda *given: deform_conv2d(*given, padding=1).relu())
    assert image is not None
    assert offset is not None
    assert weight is not None
    actual = compiled(image.to(device), offset.to(device), weight.to(device)).cpu()
    torch.testing.assert_close(actual, deform_conv2d(image, offset, weight, padding=1).relu(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("which", "shape"),
    [
        (0, (2, 3, 7, 8)),
        (1, (2, 16, 7, 8)),
        (1, (2, 18, 6, 8)),
        (2, (6, 3, 3, 3)),
        (4, (2, 8, 7, 8)),
        (4, (1, 9, 7, 8)),
    ],
)
def test_sizes_that_do_not_fit(which: int, shape: tuple[int, ...], device: torch.device) -> None:
    """They are refused in the CPU's words."""
    tensors = Sizes().tensors(torch.float32)
    tensors[which] = torch.rand(shape)

    def words(place: str | torch.device) -> str:
        image, offset, weight, bias, mask = (None if x is None else x.to(place) for x in tensors)
        with pytest.raises(RuntimeError) as error:
            deform_conv2d(image, offset, weight, bias, padding=1, mask=mask)
        return str(error.value)

    assert words(device) == words("cpu")
