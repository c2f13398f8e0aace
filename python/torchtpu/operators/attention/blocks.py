"""Flex attention by blocks. Only the blocks of the block mask are computed. For each block of queries (or keys),
only one block of scores is in memory at a time.

The softmax is computed incrementally, as in FlashAttention (https://arxiv.org/abs/2205.14135). All blocks of
queries step together, so the number of steps is the largest number of blocks in a row of the block mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule

# With fewer blocks of keys, the whole matrix of scores can be faster; for causal masks of four blocks it is.
FEWEST_BLOCKS = 8

Tensors = tuple[Tensor, ...]


class _Blocks(NamedTuple):
    """For each block along one side, the blocks along the other side that it attends to."""

    counts: Tensor  # [B, H, n]
    indices: Tensor  # [B, H, n, m]
    full_counts: Tensor
    full_indices: Tensor

    @staticmethod
    def of(counts: Tensor, indices: Tensor, full_counts: Tensor | None, full_indices: Tensor | None) -> _Blocks:
        if full_counts is None or full_indices is None:
            return _Blocks(counts, indices, torch.zeros_like(counts), indices)
        return _Blocks(counts, indices, full_counts, full_indices)

    def steps(self) -> Tensor:
        """The largest number of steps."""
        return (self.counts + self.full_counts).max()

    def at(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """The block of each row in a step, and whether there is one."""
        last = self.indices.shape[-1] - 1
        partial, full = (
            indices.gather(-1, place.clamp(0, last).long()[..., None])[..., 0]
            for indices, place in (
                (self.indices, step.expand_as(self.counts)),
                (self.full_indices, step - self.counts),
            )
        )
        index = torch.where(step < self.counts, partial, full).clamp(0, last)
        return index, step < self.counts + self.full_counts


class _Side(NamedTuple):
    """A dimension that is split into blocks: the queries or the keys."""

    length: int
    size: int

    @property
    def blocks(self) -> int:
        return -(-self.length // self.size)

    def split(self, x: Tensor, value: float = 0.0) -> Tensor:
        """[B, H, length, ...] to [B, H, blocks, size, ...]."""
        missing = self.blocks * self.size - self.length
        padded = torch.nn.functional.pad(x, (0, 0) * (x.ndim - 3) + (0, missing), value=value)
        return padded.reshape(*x.shape[:2], self.blocks, self.size, *x.shape[3:])

    def joined(self, x: Tensor) -> Tensor:
        return x.flatten(2, 3)[:, :, : self.length]

    def places(self, index: Tensor) -> Tensor:
        """The positions of the elements of blocks: [..., size]."""
        return index[..., None] * self.size + torch.arange(self.size, dtype=torch.int32, device=index.device)


class _Problem(NamedTuple):
    """The sizes, and the functions that modify a score."""

    batch: int
    heads: int
    groups: int
    key_batch: int
    queries: _Side
    keys: _Side
    scale: float
    dtype: torch.dtype
    score_mod: Callable[..., Tensor]
    mask_mod: Callable[..., Tensor]

    def all_blocks(self, side: _Side, device: torch.device) -> Tensor:
        return torch.arange(side.blocks, dtype=torch.int32, device=device).expand(self.batch, self.heads, side.blocks)

    def expanded(self, of_blocks: Tensor) -> Tensor:
        return of_blocks.expand(self.batch, self.heads, of_blocks.shape[2])

    def rows_of(self, x: Tensor, index: Tensor) -> Tensor:
        """The blocks of queries at `index`."""
        batch, heads = self._axes(index.device)
        return x[batch, heads, index]

    def columns_of(self, x: Tensor, index: Tensor) -> Tensor:
        """The blocks of keys at `index`. Heads of a group share them."""
        batch, heads = self._axes(index.device)
        return x[batch if self.key_batch > 1 else torch.zeros_like(batch), heads // self.groups, index]

    def _axes(self, device: torch.device) -> tuple[Tensor, Tensor]:
        return torch.arange(self.batch, device=device)[:, None, None], torch.arange(self.heads, device=device)[:, None]

    def modified(
        self, scores: Tensor, rows: Tensor, columns: Tensor, active: Tensor, buffers: Tensors, mask_buffers: Tensors
    ) -> Tensor:
        """Scores [B, H, n, queries, keys] for the softmax; `rows` and `columns` are [B, H, n, size]."""
        places = self.places(rows, columns)
        kept = _over_blocks(self.mask_mod, 0, len(mask_buffers))(*places, *mask_buffers)
        kept = kept & active[..., None, None] & (columns < self.keys.length)[..., None, :]
        changed = _over_blocks(self.score_mod, 1, len(buffers))(scores, *places, *buffers)
        return torch.where(kept, changed.to(self.dtype), -math.inf)

    def places(self, rows: Tensor, columns: Tensor) -> Tensors:
        """The four indices that score and mask functions take, as int32 like in PyTorch's kernels. All are in
        range.
        """
        batch, heads = (torch.arange(size, dtype=torch.int32, device=rows.device) for size in (self.batch, self.heads))
        return batch, heads, rows.clamp(max=self.queries.length - 1), columns.clamp(max=self.keys.length - 1)


def _over_blocks(function: Callable[..., Any], scores: int, buffers: int, joint: bool = False) -> Callable[..., Any]:
    """Maps a score or mask function of single elements to [B, H, n, queries, keys]."""
    mapped = function
    # For each axis, from the last to the first: which of batch, head, row and column change along it.
    for along in ((None, None, None, 0), (None, None, 0, None), (None, None, 0, 0), (None, 0, 0, 0), (0, None, 0, 0)):
        in_dims = (*(0,) * scores, *along, *(0,) * joint, *(None,) * buffers)
        out_dims: Any = [0, *[None] * (4 + buffers)] if joint else 0
        mapped = torch.vmap(mapped, in_dims=in_dims, out_dims=out_dims)
    return mapped


def _loop(steps: Tensor, body: Callable[..., Tensors], carried: Tensors, given: Tensors) -> Tensors:
    """Applies `body` (step, carried..., given...) -> carried until all steps are done."""

    def goes_on(step: Tensor, steps: Tensor, *_: Tensor) -> Tensor:
        return step < steps

    def next_step(step: Tensor, steps: Tensor, *rest: Tensor) -> Tensors:
        return step + 1, steps.clone(), *body(step, *rest)

    first = torch.zeros_like(steps)
    return torch.ops.higher_order.while_loop(goes_on, next_step, (first, steps, *carried), given)[2:]


def _problem(query: Tensor, key: Tensor, score_mod: Any, block_mask: tuple[Any, ...], scale: float) -> _Problem:
    batch, heads, length, _ = query.shape
    key_batch, key_heads, key_length, _ = key.shape
    *_, rows, columns, mask_mod = block_mask
    return _Problem(
        batch,
        heads,
        heads // key_heads,
        key_batch,
        _Side(length, rows),
        _Side(key_length, columns),
        scale,
        torch.float64 if query.dtype == torch.float64 else torch.float32,
        score_mod,
        mask_mod,
    )


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Tensors = (),
    mask_mod_other_buffers: Tensors = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """`torch.ops.higher_order.flex_attention`: the result, and the logsumexp and maximum of the scores in base
    two."""
    p = _problem(query, key, score_mod, block_mask, scale)
    blocks = _Blocks.of(*block_mask[2:6])
    queries, keys, values = p.queries.split(query), p.keys.split(key), p.keys.split(value)
    buffers = len(score_mod_other_buffers)

    def body(step: Tensor, top: Tensor, total: Tensor, sums: Tensor, *given: Tensor) -> Tensors:
        blocks, (queries, keys, values), others = _Blocks(*given[:4]), given[4:7], given[7:]
        index, active = map(p.expanded, blocks.at(step))
        scores = queries.to(p.dtype) @ p.columns_of(keys, index).to(p.dtype).mT * p.scale
        rows = p.queries.places(p.all_blocks(p.queries, index.device))
        scores = p.modified(scores, rows, p.keys.places(index), active, others[:buffers], others[buffers:])
        highest = torch.maximum(top, scores.amax(-1))
        base = torch.where(torch.isinf(highest), 0.0, highest)
        weights, shrunk = (scores - base[..., None]).exp(), (top - base).exp()
        sums = sums * shrunk[..., None] + weights @ p.columns_of(values, index).to(p.dtype)
        return highest, total * shrunk + weights.sum(-1), sums

    top = queries.new_full(queries.shape[:-1], -math.inf, dtype=p.dtype)
    carried = (top, torch.zeros_like(top), queries.new_zeros((*top.shape, value.shape[-1]), dtype=p.dtype))
    given = (*blocks, queries, keys, values, *score_mod_other_buffers, *mask_mod_other_buffers)
    top, total, sums = _loop(blocks.steps(), body, carried, given)
    result = (sums / torch.where(total == 0, 1.0, total)[..., None]).to(query.dtype)
    logsumexp = top + total.log()
    return p.queries.joined(result), p.queries.joined(logsumexp) / math.log(2), p.queries.joined(top) / math.log(2)


def backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    grad_out: Tensor,
    grad_logsumexp: Tensor | None,
    fw_graph: Callable[..., Tensor],
    joint_graph: Callable[..., Any],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Tensors = (),
    mask_mod_other_buffers: Tensors = (),
) -> tuple[Tensor, Tensor, Tensor, tuple[None, ...]]:
    """`torch.ops.higher_order.flex_attention_backward`, if no buffer of the score function has a gradient."""
    p = _problem(query, key, fw_graph, block_mask, scale)
    buffers = len(score_mod_other_buffers)
    others = (*score_mod_other_buffers, *mask_mod_other_buffers)
    joint = _over_blocks(joint_graph, 1, buffers, joint=True)
    queries, keys, values = p.queries.split(query), p.keys.split(key), p.keys.split(value)
    grads = p.queries.split(grad_out)
    offsets = (out.to(p.dtype) * grad_out.to(p.dtype)).sum(-1)
    if grad_logsumexp is not None:
        offsets = offsets - grad_logsumexp / math.log(2)
    # Rows without keys have no weights: their logsumexp is minus infinity.
    natural = torch.where(torch.isinf(logsumexp), math.inf, logsumexp * math.log(2))
    of_rows = (queries, grads, p.queries.split(natural, math.inf), p.queries.split(offsets))
    of_columns = (keys, values)

    def weights_and_gradients(
        of_rows: Tensors, of_columns: Tensors, rows: Tensor, columns: Tensor, active: Tensor, others: Tensors
    ) -> Tensors:
        queries, grads, natural, offsets = of_rows
        keys, values = of_columns
        scores = queries.to(p.dtype) @ keys.to(p.dtype).mT * p.scale
        modified = p.modified(scores, rows, columns, active, others[:buffers], others[buffers:])
        weights = (modified - natural[..., None]).exp()
        of_modified = weights * (grads.to(p.dtype) @ values.to(p.dtype).mT - offsets[..., None])
        of_scores = joint(scores, *p.places(rows, columns), of_modified, *others[:buffers])[0]
        return weights, torch.where(weights == 0, 0.0, of_scores.to(p.dtype)) * p.scale

    def along_rows(step: Tensor, sums: Tensor, *given: Tensor) -> Tensors:
        blocks, of_rows, of_columns, others = _Blocks(*given[:4]), given[4:8], given[8:10], given[10:]
        index, active = map(p.expanded, blocks.at(step))
        of_columns = tuple(p.columns_of(each, index) for each in of_columns)
        rows = p.queries.places(p.all_blocks(p.queries, index.device))
        _, gradients = weights_and_gradients(of_rows, of_columns, rows, p.keys.places(index), active, others)
        return (sums + gradients @ of_columns[0].to(p.dtype),)

    def along_columns(step: Tensor, key_sums: Tensor, value_sums: Tensor, *given: Tensor) -> Tensors:
        blocks, of_rows, of_columns, others = _Blocks(*given[:4]), given[4:8], given[8:10], given[10:]
        index, active = map(p.expanded, blocks.at(step))
        of_rows = tuple(p.rows_of(each, index) for each in of_rows)
        all_columns = p.all_blocks(p.keys, index.device)
        of_columns = tuple(p.columns_of(each, all_columns) for each in of_columns)
        rows, columns = p.queries.places(index), p.keys.places(all_columns)
        weights, gradients = weights_and_gradients(of_rows, of_columns, rows, columns, active, others)
        key_sums = key_sums + gradients.mT @ of_rows[0].to(p.dtype)
        return key_sums, value_sums + weights.mT @ of_rows[1].to(p.dtype)

    def zeros(side: _Side, width: int) -> Tensor:
        return query.new_zeros((p.batch, p.heads, side.blocks, side.size, width), dtype=p.dtype)

    def shared(x: Tensor, like: Tensor) -> Tensor:
        """Sums the gradients of keys over the heads of a group and over batches."""
        x = p.keys.joined(x).unflatten(1, (-1, p.groups)).sum(2)
        return (x if p.key_batch == p.batch else x.sum(0, keepdim=True)).to(like.dtype)

    kv_blocks, q_blocks = _Blocks.of(*block_mask[2:6]), _Blocks.of(*block_mask[6:10])
    given = (*of_rows, *of_columns, *others)
    (grad_query,) = _loop(kv_blocks.steps(), along_rows, (zeros(p.queries, query.shape[-1]),), (*kv_blocks, *given))
    carried = (zeros(p.keys, key.shape[-1]), zeros(p.keys, value.shape[-1]))
    grad_key, grad_value = _loop(q_blocks.steps(), along_columns, carried, (*q_blocks, *given))
    return (
        p.queries.joined(grad_query).to(query.dtype),
        shared(grad_key, key),
        shared(grad_value, value),
        (None,) * buffers,
    )


def form_of(name: str, args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The function that computes a call by blocks, if that is faster."""
    block_mask = args[4] if name == "flex_attention" else args[9]
    if block_mask[3].shape[-1] < FEWEST_BLOCKS:
        return None
    if name == "flex_attention":
        return forward
    gradient, joint = args[5], args[8]
    if gradient is None or block_mask[6] is None or not isinstance(joint, GraphModule):
        return None
    outputs: Any = joint.graph.output_node().args[0]
    has_gradients_of_buffers = any(each is not None for each in outputs[5:])
    return None if has_gradients_of_buffers else backward
