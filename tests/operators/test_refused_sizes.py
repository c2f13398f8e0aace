"""Arguments of sizes that the CPU's kernels refuse are refused, with the same words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import check_refused

F = nn.functional
Call = Callable[[Callable[..., Tensor]], object]
# `m` makes a tensor of ones of the given sizes.
REFUSED: dict[str, Call] = {
    "conv1d, bias": lambda m: F.conv1d(m(1, 3, 4), m(3, 3, 3), m(1)),
    "conv2d, bias": lambda m: F.conv2d(m(1, 3, 4, 4), m(3, 3, 3, 3), m(1, 3)),
    "conv2d, bias 0-d": lambda m: F.conv2d(m(1, 3, 4, 4), m(3, 3, 3, 3), m()),
    "conv2d, no outputs": lambda m: F.conv2d(m(1, 3, 4, 4), m(0, 3, 3, 3)),
    "conv2d, fewer outputs than groups": lambda m: F.conv2d(m(1, 4, 4, 4), m(1, 1, 3, 3), groups=4),
    "conv2d, empty image": lambda m: F.conv2d(m(1, 3, 4, 0), m(3, 3, 3, 1), padding=1),
    "conv_transpose2d, empty image": lambda m: F.conv_transpose2d(m(1, 3, 2, 0), m(3, 2, 3, 3)),
    "binary_cross_entropy": lambda m: F.binary_cross_entropy(m(2), m(2), m(1, 2)),
    "binary_cross_entropy_with_logits": lambda m: F.binary_cross_entropy_with_logits(m(2), m(2), m(1, 2)),
    "binary_cross_entropy_with_logits, pos_weight": lambda m: F.binary_cross_entropy_with_logits(
        m(2), m(2), pos_weight=m(3, 2)
    ),
    "soft_margin_loss": lambda m: F.soft_margin_loss(m(2), m(1, 2)),
    "put_": lambda m: m(3).put_(m(2).long(), m(3)),
    "batch_norm, running_mean": lambda m: F.batch_norm(m(2, 3), m(1, 3), m(3)),
    "batch_norm, running_var": lambda m: F.batch_norm(m(2, 3), m(3), m(3, 1), training=True),
    "grid_sample": lambda m: F.grid_sample(m(1, 1, 3, 0), m(1, 2, 2, 2), align_corners=True),
    "adaptive_avg_pool2d": lambda m: F.adaptive_avg_pool2d(m(1, 2, 3, 0), 2),
    "adaptive_avg_pool3d": lambda m: F.adaptive_avg_pool3d(m(2, 1, 0, 3, 3), 2),
    "interpolate": lambda m: F.interpolate(m(1, 2, 3, 0), (2, 2), mode="area"),
    "embedding, norm of a vector": lambda m: F.embedding(m(1).long(), m(3), max_norm=1.0),
    "embedding, norm of a number": lambda m: F.embedding(m(1).long(), m(), max_norm=1.0),
    "ormqr": lambda m: torch.ormqr(m(5, 5), m(4), m(5, 5)),
    "ormqr, right": lambda m: torch.ormqr(m(5, 3), m(2), m(2, 5), left=False),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_on_the_cpu(device: torch.device, name: str) -> None:
    error = check_refused(lambda d: REFUSED[name](lambda *sizes: torch.ones(sizes, device=d)), device)
    with pytest.raises(type(error)) as on_cpu:
        REFUSED[name](lambda *sizes: torch.ones(sizes))
    assert str(error).split(" [", 1)[0] == str(on_cpu.value).split(" [", 1)[0]


@pytest.mark.parametrize("sizes", [(), (1,)], ids=str)
def test_a_written_tensor_of_other_sizes(device: torch.device, sizes: tuple[int, ...]) -> None:
    """PyTorch's meta kernel would resize it."""
    written = torch.ones(sizes, device=device)
    check_refused(lambda d: written.to(d).addr_(torch.ones(5, device=d), torch.ones(4, device=d)), device)
    assert (written * 2).cpu().tolist() == torch.full(sizes, 2.0).tolist()
