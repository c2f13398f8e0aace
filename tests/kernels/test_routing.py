"""Operators that a library's kernel computes on a TPU."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tests.helpers import check_python

pytest.importorskip("jax")

import torchtpu.pallas as pallas
from torchtpu.kernels import routing
from torchtpu.kernels.library.attention import masked_attention, masked_attention_gradient, splash_attention
from torchtpu.kernels.library.grouped import grouped_columns, grouped_product
from torchtpu.kernels.library.paged import paged_attention

PROGRAMS = """
import contextlib, json, sys, torch
from torch.nn.functional import scaled_dot_product_attention as attention
from torchtpu import _C

def program(shapes, dtype=torch.bfloat16, gradient=False, **options):
    tensors = [torch.empty(shape, dtype=dtype, device="tpu", requires_grad=gradient) for shape in shapes]
    torch.tpu.synchronize()
    torch.tpu.reset_op_stats()
    with contextlib.suppress(RuntimeError), torch.tpu.set_eager_mode("fused"):
        result = attention(*tensors, **options)
        if gradient:
            result = torch.autograd.grad(result, tensors, torch.empty_like(result))[0]
        result.sum().item()  # the plugin that is open is no TPU's
    stats = torch.tpu.op_stats()
    return [stats["routed"], stats["not_routed"]]

same = [(1, 4, 256, 64)] * 3
def grouped(rows, dtype=torch.bfloat16, compiled=True):
    x = torch.empty(rows, 128, dtype=dtype, device="tpu")
    matrices = torch.empty(4, 128, 256, dtype=dtype, device="tpu", requires_grad=True)
    ends = torch.zeros(4, dtype=torch.int32, device="tpu")
    torch.tpu.reset_op_stats()
    product = torch.compile(torch._grouped_mm, fullgraph=True, dynamic=False) if compiled else torch._grouped_mm
    with contextlib.suppress(RuntimeError), torch.tpu.set_eager_mode("fused"):
        result = product(x, matrices, ends)
        result.backward(torch.ones_like(result))
        matrices.grad.sum().item()
    stats = torch.tpu.op_stats()
    return [stats["routed"], stats["not_routed"]]

def flex(positions, score_mod=None):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    x = torch.empty(1, 2, positions, 64, dtype=torch.bfloat16, device="tpu")
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, positions, positions, device="cpu").to("tpu")
    torch.tpu.reset_op_stats()
    with contextlib.suppress(RuntimeError):
        torch.compile(flex_attention, fullgraph=True, dynamic=False)(x, x, x, score_mod, mask).sum().item()
    stats = torch.tpu.op_stats()
    return [stats["routed"], stats["not_routed"]]

def paged(width):
    pages, query = (torch.empty(*sizes, width, dtype=torch.bfloat16, device="tpu") for sizes in ((8, 16, 4), (16, 4)))
    lengths, tables, starts, count = (
        torch.zeros(sizes, dtype=torch.int32, device="tpu") for sizes in ((4,), (4, 2), (5,), (1,))
    )
    torch.tpu.reset_op_stats()
    with contextlib.suppress(RuntimeError), torch.no_grad():
        attend = torch.ops.torchtpu.ragged_paged_attention
        attend(query, pages, lengths, tables, starts, count, window=8).sum().item()
    stats = torch.tpu.op_stats()
    return [stats["routed"], stats["not_routed"]]

if "others" in sys.argv:
    print(json.dumps([flex(256), flex(256, lambda score, b, h, i, j: score * 2), flex(250)]))
    print(json.dumps([paged(128), paged(64)]))
    print(json.dumps([grouped(256), grouped(256, compiled=False), grouped(250)]))
print(json.dumps([
    program(same),
    program(same, gradient=True, is_causal=True),
    program([(1, 4, 256, 128), (1, 2, 256, 128), (1, 2, 256, 128)], enable_gqa=True),
    program(same, attn_mask=torch.zeros(256, 256, dtype=torch.bfloat16, device="tpu")),
    program(same, dropout_p=0.5),
    program(same, dtype=torch.float32),
    program([(1, 4, 250, 64)] * 3),
]))
"""


def test_calls_are_routed_where_they_can_be() -> None:
    name = "scaled_dot_product_attention"
    lines = check_python(PROGRAMS, "others", TORCHTPU_TARGET="tpu", TORCHTPU_CACHE="0").splitlines()
    (routed, _), *others = json.loads(lines[-4])
    assert routed == {"flex_attention": 1}
    reasons = ["it has a score function", "positions are no multiple of 128"]
    assert [why for _, why in others] == [{f"flex_attention: {reason}": 1} for reason in reasons]
    (routed, _), (_, why) = json.loads(lines[-3])
    assert routed == {"ragged_paged_attention": 1}
    assert why == {"ragged_paged_attention: the width of its heads is no multiple of 128": 1}
    *others, (_, why) = json.loads(lines[-2])
    # One product of rows with matrices; one of columns, for the gradient of the matrices.
    assert [routed for routed, _ in others] == [{"_grouped_mm": 1, "_grouped_mm of columns": 1}] * 2
    assert why["_grouped_mm: rows and columns are no multiples of 128"] == 1
    answers = json.loads(lines[-1])
    assert answers[:3] == [[{name: 1}, {}]] * 3
    reasons = ["it has a mask", "it has dropout", "float32 is to be multiplied exactly", "no multiple of 128"]
    for (routed, why), reason in zip(answers[3:], reasons, strict=True):
        assert routed == {}
        assert reason in next(iter(why))
    assert json.loads(check_python(PROGRAMS).splitlines()[-1]) == [[{}, {}]] * 7


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_splash_attention(groups: int, causal: bool, device: torch.device) -> None:
    """Interpreted, against PyTorch's own; the width is padded."""
    kernel = pallas.custom_jax_kernel(splash_attention, static_argnums=(3, 4))
    given = [torch.randn(2, heads, 256, 64) for heads in (4, groups, groups)]
    ours = [each.to(device).requires_grad_() for each in given]
    theirs = [each.clone().requires_grad_() for each in given]
    result = kernel(*ours, causal, 64**-0.5)
    expected = torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=causal, enable_gqa=True)
    gradient = torch.randn_like(expected)
    result.backward(gradient.to(device))
    expected.backward(gradient)
    torch.testing.assert_close(result.detach().cpu(), expected.detach(), atol=1e-5, rtol=1e-5)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.grad.cpu(), other.grad, atol=1e-5, rtol=1e-5)


MASKS = {
    "causal": lambda b, h, i, j: i >= j,
    "of each batch": lambda b, h, i, j: (i - j).abs() < 20 + 50 * b,
    "of each head": lambda b, h, i, j: (i >= j) & (i - j < 100 + 50 * h),
    "rows that see nothing": lambda b, h, i, j: (i >= j) & (i > 150),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.one_mode
def test_flex_attention(mask: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted, against the whole matrix of scores; two heads of queries share one of keys."""
    monkeypatch.setattr(routing, "is_on", lambda: True)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    torch._dynamo.reset()
    given = [torch.randn(2, heads, 256, 32) for heads in (4, 2, 2)]
    gradient = torch.randn(2, 4, 256, 32)
    sizes = [2 if "each batch" in mask else None, 4 if "each head" in mask else None, 256, 256]

    i, j = torch.arange(256)[:, None], torch.arange(256)
    seen = MASKS[mask](torch.arange(2)[:, None, None, None], torch.arange(4)[:, None, None], i, j)
    ours = [each.to(device).requires_grad_() for each in given]
    theirs = [each.clone().requires_grad_() for each in given]
    block_mask = create_block_mask(MASKS[mask], *sizes, device=device, BLOCK_SIZE=64)
    before = sum(routing.routed.values())
    attend = torch.compile(flex_attention, fullgraph=True, dynamic=False)
    result = attend(*ours, block_mask=block_mask, enable_gqa=True)
    result.backward(gradient.to(device))
    assert sum(routing.routed.values()) == before + 2
    expected = torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=seen, enable_gqa=True)
    expected.backward(gradient)
    torch.testing.assert_close(result.detach().cpu(), expected.detach(), atol=1e-5, rtol=1e-5)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.grad.cpu(), other.grad, atol=1e-5, rtol=1e-5)


def test_grouped_product(device: torch.device) -> None:
    """Interpreted, against products one by one; a group is empty."""
    kernel = pallas.custom_jax_kernel(grouped_product)
    x, matrices = torch.randn(256, 128), torch.randn(4, 128, 128)
    ends = [100, 100, 228, 256]
    result = kernel(x.to(device), matrices.to(device), torch.tensor(ends, dtype=torch.int32).to(device))
    expected = torch.cat([part @ matrix for part, matrix in zip(x.tensor_split(ends[:-1]), matrices, strict=True)])
    torch.testing.assert_close(result.cpu(), expected, atol=1e-4, rtol=1e-5)
    left, right = torch.randn(256, 128), torch.randn(256, 256)
    sums = pallas.custom_jax_kernel(grouped_columns)(
        left.to(device), right.to(device), torch.tensor(ends, dtype=torch.int32).to(device)
    )
    parts = zip(left.tensor_split(ends[:-1]), right.tensor_split(ends[:-1]), strict=True)
    torch.testing.assert_close(sums.cpu(), torch.stack([a.mT @ b for a, b in parts]), atol=1e-4, rtol=1e-5)


@pytest.mark.tpu_compiler
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ,
    reason="libtpu is not installed: pip install libtpu",
)
def test_memory_of_splash_attention(tmp_path: Path) -> None:
    """By the compiler's own figures; the matrix of scores alone would take 4 GB."""
    kernel = pallas.custom_jax_kernel(splash_attention, static_argnums=(3, 4))
    x = torch.empty(1, 16, 8192, 128, dtype=torch.bfloat16, device="meta")
    forward, saving, backward = kernel.check("v6e", x, x, x, True, 128**-0.5, gradient=True)
    assert forward.peak_bytes <= 250e6
    assert saving.peak_bytes + backward.peak_bytes <= 900e6


@pytest.mark.tpu_compiler
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ,
    reason="libtpu is not installed: pip install libtpu",
)
def test_memory_of_masked_attention() -> None:
    """It holds the mask and not the scores, which would take 4 GB."""
    forward = pallas.custom_jax_kernel(masked_attention, static_argnums=4)
    backward = pallas.custom_jax_kernel(masked_attention_gradient, static_argnums=5)
    x = torch.empty(1, 16, 8192, 128, dtype=torch.bfloat16, device="meta")
    mask = torch.empty(1, 1, 8192, 8192, dtype=torch.bool, device="meta")
    (found,) = forward.check("v6e", x, x, x, mask, 128**-0.5)
    assert found.peak_bytes <= 600e6
    (found,) = backward.check("v6e", x, x, x, mask, x, 128**-0.5)
    assert found.peak_bytes <= 900e6


@pytest.mark.tpu_compiler
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ,
    reason="libtpu is not installed: pip install libtpu",
)
@pytest.mark.parametrize("tokens", [256, 2048])
def test_memory_of_paged_attention(tokens: int) -> None:
    """With the sizes of an 8B model, the kernel holds little besides its arguments."""
    kernel = pallas.custom_jax_kernel(paged_attention, static_argnums=(6, 7, 8))
    query = torch.empty(tokens, 32, 128, dtype=torch.bfloat16, device="meta")
    pages = torch.empty(2048, 128, 16, 128, dtype=torch.bfloat16, device="meta")
    sizes = [(256,), (256, 64), (257,), (1,)]
    numbers = [torch.empty(size, dtype=torch.int32, device="meta") for size in sizes]
    (found,) = kernel.check("v6e", query, pages, *numbers, 128**-0.5, None, None)
    arguments = sum(each.nbytes for each in (query, pages, *numbers))
    assert found.peak_bytes - arguments <= 4 * query.nbytes + 1e6
