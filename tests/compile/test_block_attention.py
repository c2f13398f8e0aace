"""Flex attention with a block mask equals the whole matrix of scores, but does not compute it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from tests.helpers import check_python


class Case(NamedTuple):
    """A mask function, a score function, and the sizes."""

    mask: str
    score: str = "plain"
    batch: int = 2
    heads: int = 2
    key_heads: int = 2
    queries: int = 128
    keys: int = 128
    block: Any = 16
    dtype: torch.dtype = torch.float32


CASES = {
    "causal": Case("causal"),
    "window, groups of heads, sizes between blocks": Case("window", "relative", 2, 4, 2, 121, 139),
    "documents": Case("documents", "slopes", 1, 2, 2, 150, 150),
    "rows that see nothing": Case("nothing", "tanh", 1, 2, 2, 128, 128),
    "blocks that are no squares": Case("causal", "tanh", 1, 2, 1, 64, 256, (32, 16)),
    "bfloat16": Case("window", "relative", 1, 2, 2, dtype=torch.bfloat16),
}


Function = Callable[..., Tensor]


def _functions(case: Case, device: torch.device | str) -> tuple[Function, Function]:
    """The mask and the score function on a device."""
    slopes = torch.linspace(0.01, 0.1, case.heads).to(device)
    documents = (torch.arange(max(case.queries, case.keys)) // 37).to(device)
    masks: dict[str, Function] = {
        "causal": lambda b, h, i, j: i >= j,
        "window": lambda b, h, i, j: (i - j).abs() < 20 + 3 * h,
        "documents": lambda b, h, i, j: documents[i] == documents[j],
        "nothing": lambda b, h, i, j: (i > 40) & (i >= j),
    }
    scores: dict[str, Function] = {
        "plain": lambda score, b, h, i, j: score,
        "relative": lambda score, b, h, i, j: score * 0.5 + (i - j) * 0.01,
        "slopes": lambda score, b, h, i, j: score - slopes[h] * (i - j),
        "tanh": lambda score, b, h, i, j: torch.tanh(score),
    }
    return masks[case.mask], scores[case.score]


def _whole(case: Case, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """With the whole matrix of scores, in float32."""
    mask_mod, score_mod = _functions(case, "cpu")
    q, k, v = (each.float() for each in (q, k, v))
    k, v = (each.repeat_interleave(case.heads // case.key_heads, 1) for each in (k, v))
    places = (
        torch.arange(case.batch)[:, None, None, None],
        torch.arange(case.heads)[:, None, None],
        torch.arange(case.queries)[:, None],
        torch.arange(case.keys),
    )
    scores = score_mod(q @ k.mT / math.sqrt(q.shape[-1]), *places)
    scores = scores.masked_fill(~mask_mod(*places), -math.inf)
    nothing = torch.isinf(scores).all(-1, keepdim=True)
    weights = torch.where(nothing, 0.0, torch.where(nothing, 0.0, scores).softmax(-1))
    return weights @ v, torch.where(nothing, 0.0, torch.where(nothing, 0.0, scores).logsumexp(-1, keepdim=True))


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_whole_matrix(device: torch.device, name: str) -> None:
    case = CASES[name]
    mask_mod, score_mod = _functions(case, device)
    mask = create_block_mask(
        mask_mod, case.batch, case.heads, case.queries, case.keys, device=device, BLOCK_SIZE=case.block
    )

    def function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        y, aux = flex_attention(
            q,
            k,
            v,
            score_mod=score_mod,
            block_mask=mask,
            enable_gqa=case.heads != case.key_heads,
            return_aux=AuxRequest(lse=True),
        )
        return y, torch.where(torch.isinf(aux.lse), 0.0, aux.lse)[..., None]

    q = torch.randn(case.batch, case.heads, case.queries, 8).to(case.dtype)
    k, v = (torch.randn(case.batch, case.key_heads, case.keys, 8).to(case.dtype) for _ in range(2))
    gradient = torch.randn_like(q)
    results = []
    for call, place in ((lambda *qkv: _whole(case, *qkv), "cpu"), (torch.compile(function, fullgraph=True), device)):
        moved = [each.detach().clone().to(place).requires_grad_() for each in (q, k, v)]
        y, logsumexp = call(*moved)
        ((y * gradient.to(place)).sum() + logsumexp.sum()).backward()
        results.append([each.detach().cpu().float() for each in (y, logsumexp, *(each.grad for each in moved))])
    tolerance = 1e-4 if case.dtype == torch.float32 else 5e-2
    torch.testing.assert_close(results[1], results[0], rtol=tolerance, atol=tolerance)


def test_there_is_no_matrix_of_scores(tmp_path: Path) -> None:
    check_python(f"""
import torch
import torchtpu
from pathlib import Path
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

q, k, v = (torch.randn(1, 1, 1000, 4, device="tpu").requires_grad_() for _ in range(3))
mask = create_block_mask(lambda b, h, i, j: (i - j).abs() < 64, None, None, 1000, 1000, device="tpu", BLOCK_SIZE=50)
torch.tpu.synchronize()
torchtpu._C.dump_programs({str(tmp_path)!r})
torch.compile(flex_attention)(q, k, v, block_mask=mask).sum().backward()
torch.tpu.synchronize()
texts = [path.read_text() for path in Path({str(tmp_path)!r}).iterdir()]
assert sum("stablehlo.while" in text for text in texts) == 2
assert not any("1000x1000" in text for text in texts)
""")
