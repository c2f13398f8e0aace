"""Operators that a kernel of a library computes on a TPU if the call is eligible. Only used for TPU targets.

`scaled_dot_product_attention` goes to splash attention, which does not hold the matrix of scores, and has a gradient of
its own. So does flex attention in compiled graphs (`torchtpu.kernels.flex`). Grouped products of rows with matrices go
to megablox. `torchtpu::ragged_paged_attention` goes to the kernel of that name. What is not eligible is computed as
ever. `torch.tpu.op_stats()` counts both, the latter by reason. `torchtpu.kernels.ragged` does the same for JAX's own
`ragged_dot` in users' functions.
"""

from __future__ import annotations

import importlib.util
import logging
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from torchtpu.kernels.library.attention import LANES, masked_attention, masked_attention_gradient, splash_attention
from torchtpu.kernels.library.grouped import grouped_columns, grouped_product
from torchtpu.kernels.library.paged import paged_attention

logger = logging.getLogger(__name__)
routed: Counter[str] = Counter()
not_routed: Counter[str] = Counter()
_libraries: list[torch.library.Library] = []
_kernels: dict[str, Any] = {}

ATTENTION = "scaled_dot_product_attention"
GROUPED = "_grouped_mm"
COLUMNS = "_grouped_mm of columns"
PAGED = "ragged_paged_attention"


def register() -> None:
    """Registers the kernels if programs are made for a TPU. The plugin must be open."""
    from torchtpu.kernels.store import target

    if is_on() or target()[0] != "tpu":
        return
    library, own = torch.library.Library("aten", "IMPL"), torch.library.Library("torchtpu", "IMPL")
    _libraries.extend((library, own))
    # The second is for inference mode, which has no autograd.
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        library.impl(ATTENTION, _attention, key)
    own.impl(PAGED, _paged_attention, "AutogradPrivateUse1", with_keyset=True)


def is_on() -> bool:
    """Whether programs are made for a TPU, so that kernels can compute operators."""
    return bool(_libraries)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    reason = "it has a mask" if attn_mask is not None else "it has dropout" if dropout_p > 0 else None
    reason = reason or why_not(query, key, value, is_causal, enable_gqa)
    if counted(ATTENTION, reason):
        scale = float(query.shape[-1] ** -0.5 if scale is None else scale)
        result: Tensor = kernel(ATTENTION)(query, key, value, bool(is_causal), scale, None, None)
        return result
    composite: Tensor = torch.ops.aten.scaled_dot_product_attention.default.decompose(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return composite


def why_not(query: Tensor, key: Tensor, value: Tensor, causal: bool = False, shares_heads: bool = False) -> str | None:
    """The reason why splash attention cannot compute a call. None if it can."""
    sizes = [size for each in (query, key, value) for size in each.shape]
    if any(isinstance(size, torch.SymInt) for size in sizes):
        return "a size is a symbol"
    if not query.dim() == key.dim() == value.dim() == 4 or 0 in sizes:
        return "its tensors are not of 4 dimensions"
    if not query.dtype == key.dtype == value.dtype or query.dtype not in (torch.bfloat16, torch.float32):
        return "its dtype is neither bfloat16 nor float32"
    if query.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest":
        return "float32 is to be multiplied exactly (torch.set_float32_matmul_precision)"
    if not query.shape[0] == key.shape[0] == value.shape[0] or key.shape[:3] != value.shape[:3]:
        return "its sizes are broadcast"
    heads, groups = query.shape[1], key.shape[1]
    if heads != groups and (not shares_heads or heads % groups):
        return "its sizes are broadcast"
    if query.shape[3] != key.shape[3]:
        return "queries and keys differ in width"
    rows, columns = query.shape[2], key.shape[2]
    if rows % LANES or columns % LANES:
        return "positions are no multiple of 128"
    if causal and rows != columns:
        return "it is causal with fewer queries than keys"
    if importlib.util.find_spec("jax") is None:
        return "JAX is not installed"
    return None


def check_sizes(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raises ValueError if splash attention does not take tensors of these shapes."""
    shapes = [tuple(each.shape) for each in (query, key, value)]
    if any(len(shape) != 4 for shape in shapes) or shapes[1] != shapes[2]:
        raise ValueError(f"query, key and value have 4 dimensions, the last two the same sizes; not {shapes}")
    (batch, heads, rows, width), (batches, groups, columns, widths) = shapes[:2]
    if (batch, width) != (batches, widths) or groups == 0 or heads % groups:
        raise ValueError(f"batch and width of query and key agree, and heads are a multiple of key heads; not {shapes}")
    if rows % LANES or columns % LANES:
        raise ValueError(f"positions are multiples of {LANES}, not {rows} and {columns}")


def _paged_attention(
    keys: torch._C.DispatchKeySet,
    query: Tensor,
    pages: Tensor,
    *numbers: Tensor,
    scale: float = 1.0,
    window: int | None = None,
    soft_cap: float | None = None,
) -> Tensor:
    reason = None
    if any(isinstance(size, torch.SymInt) for each in (query, pages) for size in each.shape):
        reason = "a size is a symbol"
    elif query.dtype not in (torch.bfloat16, torch.float32):
        reason = "its dtype is neither bfloat16 nor float32"
    elif 0 in query.shape or query.shape[-1] % LANES:
        reason = "the width of its heads is no multiple of 128"
    elif not _is_tiled(pages.shape[2], 4 // pages.element_size()):
        reason = "the number of its key heads does not fill the tiles of a TPU's memory"
    elif importlib.util.find_spec("jax") is None:
        reason = "JAX is not installed"
    if counted(PAGED, reason):
        result: Tensor = kernel(PAGED)(query, pages, *numbers, float(scale), window, soft_cap)
        return result
    with torch._C._AutoDispatchBelowAutograd():
        result = torch.ops.torchtpu.ragged_paged_attention.default.redispatch(
            keys & torch._C._after_autograd_keyset,
            *(query, pages, *numbers),
            scale=scale,
            window=window,
            soft_cap=soft_cap,
        )
    return result


def _is_tiled(rows: int, packed: int) -> bool:
    """Whether rows of numbers, `packed` of them in 32 bits, fill whole tiles of 8 rows or a power of two of them."""
    tiles, rest = divmod(rows, packed)
    return rest == 0 and (tiles in (1, 2, 4) or tiles % 8 == 0)


def grouped(operator: str, left: Tensor, right: Tensor, ends: Tensor) -> Tensor | None:
    """A product by the kernel of `GROUPED` or `COLUMNS` (see `torchtpu.kernels.library.grouped`); None where none
    computes it. For decompositions. They are traced once for each signature, so each signature counts once."""
    if not is_on():
        return None
    sizes = [*left.shape, *right.shape[-2:]]
    reason = None
    if any(isinstance(size, torch.SymInt) for size in sizes):
        reason = "a size is a symbol"
    elif not left.dtype == right.dtype == torch.bfloat16:
        reason = "its dtype is not bfloat16"
    elif 0 in sizes or any(size % LANES for size in sizes):
        reason = "rows and columns are no multiples of 128"
    elif importlib.util.find_spec("jax") is None:
        reason = "JAX is not installed"
    if not counted(operator, reason):
        return None
    result: Tensor = kernel(operator)(left, right, ends)
    return result


def counted(operator: str, reason: str | None) -> bool:
    """Counts a call that a kernel computes, or the reason why none does. Logs the first one for each reason."""
    if reason is None:
        routed[operator] += 1
        return True
    if not not_routed[f"{operator}: {reason}"]:
        logger.info("%s is computed without a kernel: %s", operator, reason)
    not_routed[f"{operator}: {reason}"] += 1
    return False


def kernel(operator: str) -> Any:
    """The kernel of an operator."""
    if not _kernels:
        from torchtpu.pallas import custom_jax_kernel

        _kernels.update(
            {
                ATTENTION: custom_jax_kernel(splash_attention, static_argnums=(3, 4, 5)),
                "flex_attention": custom_jax_kernel(masked_attention, static_argnums=4),
                "flex_attention_backward": custom_jax_kernel(masked_attention_gradient, static_argnums=5),
                GROUPED: custom_jax_kernel(grouped_product),
                COLUMNS: custom_jax_kernel(grouped_columns),
                PAGED: custom_jax_kernel(paged_attention, static_argnums=(6, 7, 8)),
            }
        )
    return _kernels[operator]
