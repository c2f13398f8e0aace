"""PyTorch's fast paths of nn.MultiheadAttention and nn.TransformerEncoder in evaluation mode."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor, nn

from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.multi_head_attention_forward",
    "nn.functional.scaled_dot_product_attention",
    "torch.ops.aten._efficient_attention_forward",
    "torch.ops.aten._flash_attention_forward",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
)

MASKS = {
    "no mask": None,
    "padding behind": torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]], dtype=torch.bool),
    "padding before": torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 1]], dtype=torch.bool),
}
CONTEXTS = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "enable_grad": torch.enable_grad}


def inputs(length: int = 5) -> Tensor:
    return torch.randn(3, length, 8)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual.cpu(), expected, rtol=tolerance, atol=tolerance)


def on(device: torch.device, mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.to(device)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder(
    mask: Tensor | None, context: type[AbstractContextManager], norm_first: bool, mode: str, device: torch.device
) -> None:
    """Besides its values, which tokens are hidden: after nested tensors those are zero."""
    activation = "gelu" if norm_first else "relu"
    layer = nn.TransformerEncoderLayer(8, 2, 16, activation=activation, batch_first=True, norm_first=norm_first)
    on_cpu = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=not norm_first).eval()
    on_device = copy.deepcopy(on_cpu).to(device)
    x = inputs()
    with context():
        expected = on_cpu(x, src_key_padding_mask=mask)
        assert_close(on_device(x.to(device), src_key_padding_mask=on(device, mask)), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_layer_with_an_attention_mask(causal: bool, mode: str, device: torch.device) -> None:
    on_cpu = nn.TransformerEncoderLayer(8, 4, 16, batch_first=True).eval()
    on_device = copy.deepcopy(on_cpu).to(device)
    x = inputs()
    mask = nn.Transformer.generate_square_subsequent_mask(5) if causal else torch.rand(5, 5) < 0.3
    mask.fill_diagonal_(0)
    with torch.no_grad():
        expected = on_cpu(x, mask, is_causal=causal)
        assert_close(on_device(x.to(device), mask.to(device), is_causal=causal), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("weights", ["none", "averaged", "of each head"])
def test_multihead_attention(
    dtype: torch.dtype, mask: Tensor | None, weights: str, mode: str, device: torch.device
) -> None:
    on_cpu = nn.MultiheadAttention(8, 2, batch_first=True, dtype=dtype).eval()
    on_device = copy.deepcopy(on_cpu).to(device)
    x = inputs().to(dtype)
    options = {"need_weights": weights != "none", "average_attn_weights": weights == "averaged"}
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-5
    with torch.no_grad():
        expected = on_cpu(x, x, x, key_padding_mask=mask, **options)
        y = x.to(device)
        actual = on_device(y, y, y, key_padding_mask=on(device, mask), **options)
    assert_close(actual[0], expected[0], tolerance)
    assert (actual[1] is None) == (expected[1] is None)
    if expected[1] is not None:
        assert_close(actual[1], expected[1], tolerance)


def test_empty_batches(device: torch.device) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval().to(device)
    with torch.no_grad():
        assert layer(torch.empty(0, 5, 8, device=device)).shape == (0, 5, 8)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_compiled(mask: Tensor | None, device: torch.device, fresh_dynamo: None) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    on_cpu = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    on_device = torch.compile(copy.deepcopy(on_cpu).to(device))
    x = inputs()
    with torch.no_grad():
        expected = on_cpu(x, src_key_padding_mask=mask)
        assert_close(on_device(x.to(device), src_key_padding_mask=on(device, mask)), expected)
