"""Flex attention with a block mask and without a score function, by splash attention. For graphs that are traced.

The mask becomes an array of booleans, one byte for each query and key, which heads and batches share if it does not
depend on them. The kernel leaves out blocks that are empty. The matrix of scores does not exist.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from torchtpu.kernels import routing

Tensors = tuple[Tensor, ...]

FORWARD = "flex_attention"
BACKWARD = "flex_attention_backward"


def form_of(name: str, args: tuple[Any, ...], has_maximum: bool) -> Any:
    """The function that computes a call of the higher-order operator `name`; None if no kernel does. The call is
    counted. `has_maximum`: whether the maximum of the scores, the third result, is used."""
    if not routing.is_on():
        return None
    function = args[3] if name == FORWARD else args[7]
    reason = routing.why_not(args[0], args[1], args[2], shares_heads=True)
    if not _is_plain(function):
        reason = "it has a score function"
    elif name == FORWARD and has_maximum:
        reason = "the maximum of its scores is used"
    elif name == BACKWARD and args[6] is not None:
        reason = "its logsumexp has a gradient"
    if not routing.counted(name, reason):
        return None
    return _forward if name == FORWARD else _backward


def _is_plain(function: Any) -> bool:
    """Whether a score function returns the score that it is given."""
    if not isinstance(function, GraphModule):
        return False
    result: Any = function.graph.output_node().args[0]
    if isinstance(result, list | tuple) and len(result) == 1:
        (result,) = result
    return result is next(iter(function.graph.nodes))


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any,
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Tensors = (),
    mask_mod_other_buffers: Tensors = (),
) -> Tensors:
    mask = _mask(query, key, block_mask, mask_mod_other_buffers)
    result, logsumexp = routing.kernel(FORWARD)(query, key, value, mask, float(scale))
    return result, logsumexp / math.log(2), torch.full_like(logsumexp, math.nan)


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    grad_out: Tensor,
    grad_logsumexp: None,
    fw_graph: Any,
    joint_graph: Any,
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Tensors = (),
    mask_mod_other_buffers: Tensors = (),
) -> tuple[Any, ...]:
    mask = _mask(query, key, block_mask, mask_mod_other_buffers)
    gradients = routing.kernel(BACKWARD)(query, key, value, mask, grad_out, float(scale))
    return *gradients, (None,) * len(score_mod_other_buffers)


def _mask(query: Tensor, key: Tensor, block_mask: tuple[Any, ...], buffers: Tensors) -> Tensor:
    """[1 or batch, 1 or heads, queries, keys]: whether the block is in the block mask, and the function says so."""
    *_, rows, columns, function = block_mask
    places = [torch.arange(size, dtype=torch.int32, device=query.device) for size in (*query.shape[:3], key.shape[2])]
    if isinstance(function, GraphModule):
        inputs = function.graph.find_nodes(op="placeholder")
        places[:2] = [place if node.users else place[:1] for node, place in zip(inputs, places[:2], strict=False)]
    seen = _over_axes(function, len(buffers))(*places, *buffers)
    _, _, counts, indices, full_counts, full_indices, *_ = block_mask
    listed = _listed(counts, indices, key, columns)
    if full_counts is not None:
        listed = listed | _listed(full_counts, full_indices, key, columns)
    return seen & listed[:, :, places[2] // rows][..., places[3] // columns]


def _over_axes(function: Any, buffers: int) -> Any:
    """Maps a mask function of single elements to [batch, heads, queries, keys]."""
    for axis in (3, 2, 1, 0):
        in_dims = tuple(0 if i == axis else None for i in range(4))
        function = torch.vmap(function, in_dims=(*in_dims, *(None,) * buffers))
    return function


def _listed(counts: Tensor, indices: Tensor, key: Tensor, size: int) -> Tensor:
    """Whether a block mask names a block: [B, H, blocks of queries, blocks of keys]."""
    blocks = -(-key.shape[2] // size)
    is_named = torch.arange(indices.shape[-1], device=counts.device) < counts[..., None]
    places = torch.where(is_named, indices, blocks).long()
    table = torch.zeros(*counts.shape, blocks + 1, dtype=torch.bool, device=counts.device)
    return table.scatter(-1, places, True)[..., :blocks]
