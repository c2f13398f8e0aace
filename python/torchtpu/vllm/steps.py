"""A step as a function of tensors.

The inputs of its program are the weights, the caches (which it overwrites in place) and one vector of numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.forward_context import set_forward_context

from torchtpu.vllm.adapters import Adapters
from torchtpu.vllm.attention import Batch
from torchtpu.vllm.programs import Sized
from torchtpu.vllm.sampling import SETTINGS, pick


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where each number of a step is in the vector that is uploaded: int32, floats by their bits."""

    tokens: int
    sequences: int
    places: int
    """The pages that a sequence may have."""
    has_adapters: bool = False

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        by_token, by_sequence = (self.tokens,), (self.sequences,)
        return {
            "ids": by_token,
            "positions": by_token,
            "slots": by_token,
            "lengths": by_sequence,
            "last": by_sequence,
            "starts": (self.sequences + 1,),
            "count": (1,),
            "tables": (self.sequences, self.places),
            "settings": (len(SETTINGS), self.sequences),
            "adapters": by_token if self.has_adapters else (0,),
        }

    @property
    def length(self) -> int:
        return sum(map(math.prod, self.shapes.values()))

    def empty(self) -> tuple[numpy.ndarray, dict[str, numpy.ndarray]]:
        """A vector of zeros, and its parts as views."""
        vector = numpy.zeros(self.length, dtype=numpy.int32)
        parts, start = {}, 0
        for name, shape in self.shapes.items():
            parts[name] = vector[start : start + math.prod(shape)].reshape(shape)
            start += math.prod(shape)
        return vector, parts

    def parts(self, vector: Tensor) -> dict[str, Tensor]:
        split = vector.split([math.prod(shape) for shape in self.shapes.values()])
        return {name: each.reshape(shape) for (name, shape), each in zip(self.shapes.items(), split, strict=True)}


class Step(nn.Module):
    """A step as a function of a layout, the caches and what adapters hold, and the vector of the layout. Returns the
    next token of each sequence, and the logits that it was taken from."""

    def __init__(
        self,
        model: nn.Module,
        config: VllmConfig,
        layers: dict[str, Any],
        adapters: Adapters | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self._config = config
        self._layers = layers
        self._adapters = adapters
        self._logits: Any = model.compute_logits

    def forward(self, layout: Layout, held: Sequence[Tensor], vector: Tensor) -> tuple[Tensor, Tensor]:
        parts = layout.parts(vector)
        caches, of_adapters = held[: len(self._layers)], held[len(self._layers) :]
        if self._adapters is None:
            return self._computed(layout.tokens, caches, parts)
        with self._adapters.given(of_adapters, parts["adapters"], parts["adapters"][parts["last"]]):
            return self._computed(layout.tokens, caches, parts)

    def _computed(self, tokens: int, caches: Sequence[Tensor], parts: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        batch = Batch(*(parts[name] for name in ("lengths", "tables", "starts", "count", "slots")))
        before = {name: layer.kv_cache for name, layer in self._layers.items()}
        try:
            for layer, cache in zip(self._layers.values(), caches, strict=True):
                layer.kv_cache = cache
            with set_forward_context(batch, self._config, num_tokens=tokens, slot_mapping={}):
                hidden = self.model(parts["ids"], parts["positions"])
        finally:
            for name, layer in self._layers.items():
                layer.kv_cache = before[name]
        # Logits of a padded vocabulary are a view.
        logits = self._logits(hidden[parts["last"]]).to(torch.float32).contiguous()
        return pick(logits, parts["settings"]), logits


def step_programs(
    step: Step, weights: dict[str, Tensor], transposed: set[str], held: list[Tensor], example: Layout
) -> Sized:
    """The programs of a step by the numbers of tokens and of sequences. They are called with the weights, what is held
    (caches and adapters) and the vector of the layout, in one list. Some weights are given transposed. `example` is a
    layout of more than one token and sequence."""
    names = list(weights)

    def layout(tokens: int, sequences: int) -> Layout:
        return dataclasses.replace(example, tokens=tokens, sequences=sequences)

    def function(tokens: int, sequences: int, *tensors: Tensor) -> Any:
        pairs = zip(names, tensors, strict=False)
        given = {name: tensor.t() if name in transposed else tensor for name, tensor in pairs}
        before = [(module, dict(module._buffers)) for module in step.modules()]
        try:
            caches, vector = tensors[len(names) : -1], tensors[-1]
            return torch.func.functional_call(step, given, (layout(tokens, sequences), caches, vector))
        finally:
            # Layers that convert a buffer when they are first called would keep a tensor of the trace.
            for module, buffers in before:
                module._buffers.update(buffers)

    sizes, fixed = (example.tokens, example.sequences), [*weights.values(), *held]
    return Sized(function, sizes, fixed, lambda *given: layout(*given).length, "step")
