"""`torchtpu.pallas.splash_attention`, interpreted, against PyTorch's own attention with a mask."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

pytest.importorskip("jax")

from torchtpu.kernels import routing
from torchtpu.pallas import splash_attention

LENGTH = 256
ROWS, COLUMNS = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
# The documents of two sequences.
SEGMENTS = torch.stack([(torch.arange(LENGTH) > 100).int(), torch.arange(LENGTH) // 50])
OF_ONE_SEGMENT = (SEGMENTS[:, :, None] == SEGMENTS[:, None, :])[:, None]
CASES: dict[str, tuple[dict[str, Any], torch.Tensor]] = {
    "segments": ({"segment_ids": SEGMENTS}, OF_ONE_SEGMENT),
    "causal segments": ({"segment_ids": SEGMENTS, "is_causal": True}, OF_ONE_SEGMENT & (ROWS >= COLUMNS)),
    "window": ({"window": (30, 10)}, (ROWS - COLUMNS <= 30) & (COLUMNS - ROWS <= 10)),
    "causal window": (
        {"window": (30, 10), "is_causal": True, "scale": 0.5},
        (ROWS - COLUMNS <= 30) & (ROWS >= COLUMNS),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.one_mode
def test_values_and_gradients(case: str, groups: int, device: torch.device) -> None:
    options, mask = CASES[case]
    torch.manual_seed(5)
    given = [torch.randn(2, heads, LENGTH, 32) for heads in (4, groups, groups)]
    ours = [each.to(device).requires_grad_() for each in given]
    theirs = [each.clone().requires_grad_() for each in given]
    on_device = {name: each.to(device) if isinstance(each, torch.Tensor) else each for name, each in options.items()}
    result = splash_attention(*ours, **on_device)
    expected = scaled_dot_product_attention(*theirs, attn_mask=mask, scale=options.get("scale"), enable_gqa=True)
    gradient = torch.randn_like(expected)
    result.backward(gradient.to(device))
    expected.backward(gradient)
    torch.testing.assert_close(result.detach().cpu(), expected.detach(), atol=1e-5, rtol=1e-5)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.grad.cpu(), other.grad, atol=2e-5, rtol=1e-5)


def test_segments_of_queries_and_keys(device: torch.device) -> None:
    torch.manual_seed(6)
    query, key = torch.randn(2, 2, 128, 32), torch.randn(2, 2, LENGTH, 32)
    rows = SEGMENTS[:, ::2]
    result = splash_attention(
        query.to(device), key.to(device), key.to(device), segment_ids=(rows.to(device), SEGMENTS.to(device))
    )
    mask = (rows[:, :, None] == SEGMENTS[:, None, :])[:, None]
    expected = scaled_dot_product_attention(query, key, key, attn_mask=mask)
    torch.testing.assert_close(result.cpu(), expected, atol=1e-5, rtol=1e-5)


def test_wrong_shapes(device: torch.device) -> None:
    def attend(*sizes: tuple[int, ...], **options: Any) -> None:
        splash_attention(*(torch.empty(each, device=device) for each in sizes), **options)

    same = (1, 4, 128, 64)
    with pytest.raises(ValueError, match="4 dimensions"):
        attend(same[1:], same, same)
    with pytest.raises(ValueError, match="heads are a multiple of key heads"):
        attend(same, (1, 3, 128, 64), (1, 3, 128, 64))
    with pytest.raises(ValueError, match="multiples of 128, not 130 and 130"):
        attend(*[(1, 4, 130, 64)] * 3)
    with pytest.raises(ValueError, match=r"segment_ids has the shape \[128\], not \[1, 128\]"):
        attend(same, same, same, segment_ids=torch.zeros(128, dtype=torch.int32, device=device))


@pytest.mark.tpu_compiler
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ,
    reason="libtpu is not installed: pip install libtpu",
)
def test_memory_with_segments() -> None:
    """It holds neither scores (4 GB) nor a mask."""
    x = torch.empty(1, 16, 8192, 128, dtype=torch.bfloat16, device="meta")
    ids = torch.empty(1, 8192, dtype=torch.int32, device="meta")
    kernel = routing.kernel(routing.ATTENTION)
    forward, saving, backward = kernel.check("v6e", x, x, x, True, 128**-0.5, None, (ids, ids), gradient=True)
    assert forward.peak_bytes <= 250e6
    assert saving.peak_bytes + backward.peak_bytes <= 900e6
