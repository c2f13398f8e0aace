"""The attention kernels that PyTorch only has for GPUs, compared with scaled_dot_product_attention on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

aten = torch.ops.aten
HEADS, WIDTH = 4, 8
LENGTHS = (3, 0, 6, 2)
STARTS = torch.tensor([0, 3, 3, 9, 11], dtype=torch.int32)


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
    """From tensors [batch, position, head, width]."""
    moved = (each.transpose(1, 2) for each in (query, key, value))
    return scaled_dot_product_attention(*moved, mask, **options).transpose(1, 2)


def of_each(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """For packed sequences [token, head, width]."""
    parts = zip(*(each.split(LENGTHS) for each in (query, key, value)), strict=True)
    return torch.cat([attention(*(each[None] for each in part), **options)[0] for part in parts])


def compare(
    function: Callable[..., Tensor], expected: Callable[..., Tensor], device: torch.device, *inputs: Tensor
) -> None:
    """Compares results and gradients."""
    here = [each.clone().requires_grad_() for each in inputs]
    there = [each.to(device).requires_grad_() for each in inputs]
    wanted, result = expected(*here), function(*there)
    torch.testing.assert_close(result.cpu(), wanted)
    weights = torch.randn(wanted.shape)
    (wanted * weights).sum().backward()
    (result * weights.to(device)).sum().backward()
    for one, other in zip(here, there, strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad)


def batch(queries: int = 5, keys: int = 9, heads_of_keys: int = HEADS) -> list[Tensor]:
    heads = (HEADS, heads_of_keys, heads_of_keys)
    return [torch.randn(2, size, n, WIDTH) for size, n in zip((queries, keys, keys), heads, strict=True)]


def packed() -> list[Tensor]:
    return [torch.randn(sum(LENGTHS), HEADS, WIDTH) for _ in range(3)]


def flash(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, **options: Any) -> Tensor:
    sizes = query.shape[1], key.shape[1]
    return aten._flash_attention_forward(query, key, value, None, None, *sizes, 0.0, is_causal, False, **options)[0]


def efficient(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None, mask_type: int = 0) -> Tensor:
    return aten._efficient_attention_forward(query, key, value, bias, None, None, None, None, 0.0, mask_type, True)[0]


@pytest.mark.parametrize("function", [flash, efficient])
def test_dense_batches(function: Callable[..., Tensor], mode: str, device: torch.device) -> None:
    compare(function, attention, device, *batch())


def test_heads_that_share_keys(device: torch.device) -> None:
    compare(flash, lambda *given: attention(*given, enable_gqa=True), device, *batch(heads_of_keys=2))


def test_where_a_causal_mask_begins(device: torch.device) -> None:
    rows, columns = torch.arange(5)[:, None], torch.arange(9)
    begins, ends = columns <= rows, columns <= rows + 4
    compare(lambda *given: flash(*given, is_causal=True), lambda *given: attention(*given, ends), device, *batch())
    compare(lambda *given: efficient(*given, mask_type=1), lambda *given: attention(*given, begins), device, *batch())
    compare(lambda *given: efficient(*given, mask_type=2), lambda *given: attention(*given, ends), device, *batch())


def test_windows(device: torch.device) -> None:
    rows, columns = torch.arange(9)[:, None], torch.arange(9)
    visible = (columns >= rows - 2) & (columns <= rows + 1)
    window = {"window_size_left": 2, "window_size_right": 1}
    compare(
        lambda *given: flash(*given, **window), lambda *given: attention(*given, visible), device, *batch(queries=9)
    )


def test_bias(device: torch.device) -> None:
    bias = torch.randn(2, HEADS, 5, 9)
    compare(efficient, lambda query, key, value, bias: attention(query, key, value, bias), device, *batch(), bias)


@pytest.mark.parametrize("is_causal", [False, True])
def test_sequences_of_different_lengths(is_causal: bool, mode: str, device: torch.device) -> None:
    varlen = pytest.importorskip("torch.nn.attention.varlen", reason="this torch has no varlen_attn")
    starts = STARTS.to(device)
    window = (-1, 0 if is_causal else -1)

    def through_flash(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return varlen.varlen_attn(query, key, value, starts, starts, max(LENGTHS), max(LENGTHS), window_size=window)

    def through_efficient(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        given = (each[None] for each in (query, key, value))
        rest = (None, starts, starts, max(LENGTHS), max(LENGTHS), 0.0, int(is_causal), True)
        return aten._efficient_attention_forward(*given, *rest)[0][0]

    for function in (through_flash, through_efficient):
        compare(function, lambda *given: of_each(*given, is_causal=is_causal), device, *packed())


def test_keys_in_pages(device: torch.device) -> None:
    """As in a server's cache: pages of two keys, and a list of pages for each sequence."""
    varlen = pytest.importorskip("torch.nn.attention.varlen", reason="this torch has no varlen_attn")
    query, (key, value) = torch.randn(2, HEADS, WIDTH), torch.randn(2, 6, 2, HEADS, WIDTH)
    table, used = torch.tensor([[4, 1], [0, 3]], dtype=torch.int32), torch.tensor([3, 2], dtype=torch.int32)
    expected = torch.stack(
        [
            attention(query[i][None, None], *(each[table[i]].flatten(0, 1)[None, : used[i]] for each in (key, value)))[
                0, 0
            ]
            for i in range(2)
        ]
    )
    starts = torch.arange(3, dtype=torch.int32, device=device)
    given = (each.to(device) for each in (query, key, value))
    paged = {"seqused_k": used.to(device), "block_table": table.to(device)}
    result = varlen.varlen_attn(*given, starts, None, 1, 4, **paged)
    torch.testing.assert_close(result.cpu(), expected)


def test_how_far_off_the_scores_are_is_returned(device: torch.device) -> None:
    query, key, value = batch()
    scores = query.transpose(1, 2) @ key.permute(0, 2, 3, 1) * WIDTH**-0.5
    given = [each.to(device) for each in (query, key, value)]
    result = aten._flash_attention_forward(*given, None, None, 5, 9, 0.0, False, False)
    torch.testing.assert_close(result[1].cpu(), scores.logsumexp(-1))
    result = aten._efficient_attention_forward(*given, None, None, None, None, None, 0.0, 0, True)
    assert result[1].shape == (2, HEADS, 32)
    assert result[4:] == (5, 9)
    torch.testing.assert_close(result[1][..., :5].cpu(), scores.logsumexp(-1))


def test_dropout_drops_the_same_in_the_gradient(device: torch.device) -> None:
    query, key = (torch.randn(1, 64, 2, WIDTH, device=device) for _ in range(2))
    # If the values are the identity, the output is the weights.
    identity = torch.eye(64, device=device).reshape(1, 64, 1, 64).expand(1, 64, 2, 64)
    for _ in range(2):
        rest = (None, None, None, None, None, 0.25, 0, True)
        assert 0.2 < (aten._efficient_attention_forward(query, key, identity, *rest)[0] == 0).float().mean() < 0.3
        value = torch.randn(1, 64, 2, WIDTH, device=device, requires_grad=True)
        output = aten._efficient_attention_forward(query, key, value, *rest)[0]
        (gradient,) = torch.autograd.grad(output.sum(), value)
        torch.testing.assert_close((gradient * value).sum(), output.sum(), rtol=1e-4, atol=1e-4)


def without_composites(query: Tensor, key: Tensor, value: Tensor, *mask: Tensor, **options: Any) -> Tensor:
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        return attention(query, key, value, *mask, **options)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_a_user_excludes_the_composites(options: dict[str, Any], mode: str, device: torch.device) -> None:
    def on_device(*given: Tensor) -> Tensor:
        return without_composites(*given, **options)

    with torch.autograd.profiler.profile() as profile:
        compare(on_device, lambda *given: attention(*given, **options), device, *batch())
    assert any(event.name == "aten::_scaled_dot_product_efficient_attention" for event in profile.function_events)
    hidden = torch.randn(2, HEADS, 5, 9) > 1
    if "is_causal" not in options:
        compare(
            lambda *given: without_composites(*given, hidden.to(device), **options),
            lambda *given: attention(*given, hidden, **options),
            device,
            *batch(),
        )


def test_a_user_excludes_the_composites_of_a_compiled_function(device: torch.device) -> None:
    compiled = torch.compile(without_composites, fullgraph=True)
    compare(compiled, attention, device, *batch(queries=32, keys=32))


def test_dropout_of_scaled_dot_product_attention(device: torch.device) -> None:
    """Of equal weights, the same are dropped in the gradient, and the rest is scaled."""
    value = torch.eye(64, device=device).expand(1, 2, 64, 64).contiguous().requires_grad_()
    zero = torch.zeros(1, 2, 64, 64, device=device)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        result = scaled_dot_product_attention(zero, zero, value, dropout_p=0.25)
    assert 0.2 < (result == 0).float().mean() < 0.3
    result.sum().backward()
    torch.testing.assert_close(value.grad[..., 0], result.detach().sum(-2))
