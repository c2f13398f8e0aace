"""LoRA. A program multiplies by the adapters of all places on the device, and each token takes what is its own's.

    x [t, i]   a [n, 1, r, i]   b [n, 1, o, r]        y[t] += b[p] a[p] x[t], for the place p of the token's adapter

Places are data, and so are the adapters in them: neither another mix of adapters nor a new adapter compiles anything.
vLLM loads adapters and chooses their places. Its layers have the numbers on the host, and a place that has changed is
uploaded before the next step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.lora.layers import BaseLayerWithLoRA, VocabParallelEmbeddingWithLoRA
from vllm.lora.model_manager import LRUCacheLoRAModelManager
from vllm.lora.punica_wrapper.punica_base import PunicaWrapperBase
from vllm.lora.worker_manager import LRUCacheWorkerLoRAManager
from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner
from vllm.model_executor.models import supports_lora

from torchtpu.vllm.programs import Run, compiled


class Products(PunicaWrapperBase):
    """What vLLM's layers call: each method returns y with the products added."""

    tokens: Tensor
    """(tokens,), int32. The place of each token's adapter, counted from 1; 0 for none."""
    rows: Tensor
    """(sequences,), int32. The same for the tokens whose logits are computed."""

    def add_shrink(
        self, y: Any, x: Tensor, lora_a_stacked: tuple[Tensor, ...], scale: float, **options: Any
    ) -> tuple[Tensor, ...]:
        """a x of each token's adapter, zero at other places: (tokens, places, r) for each of `lora_a_stacked`."""
        return tuple(self._shrunk(x, a, self.tokens) * scale for a in lora_a_stacked)

    def add_expand(
        self,
        y: Tensor,
        x: tuple[Tensor, ...] | Tensor,
        lora_b_stacked: tuple[Tensor, ...],
        output_slices: tuple[int, ...],
        offset_start: int = 0,
        add_inputs: bool = True,
        **options: Any,
    ) -> Tensor:
        """y and the products of `lora_b_stacked`, side by side from column `offset_start`."""
        parts = [torch.einsum("tnr,nor->to", each, b[:, 0]) for each, b in zip(x, lora_b_stacked, strict=True)]
        added = torch.cat(parts, -1)
        added = nn.functional.pad(added, (offset_start, y.shape[-1] - offset_start - added.shape[-1])).to(y.dtype)
        return y + added if add_inputs else added

    def add_lora_linear(
        self,
        y: Tensor,
        x: Tensor,
        lora_a_stacked: tuple[Tensor, ...],
        lora_b_stacked: tuple[Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        *,
        buffer: Any = None,
        add_inputs: bool = True,
        **options: Any,
    ) -> Tensor:
        shrunk = self.add_shrink(None, x, lora_a_stacked, scale)
        return self.add_expand(y, shrunk, lora_b_stacked, output_slices, add_inputs=add_inputs)

    def add_lora_embedding(
        self, y: Tensor, x: Tensor, lora_b_stacked: Tensor, add_inputs: bool = True, **options: Any
    ) -> Tensor:
        """x: (tokens, r), rows of a that the layer has looked up."""
        own = _own(x[:, None].expand(-1, lora_b_stacked.shape[0], -1), self.tokens)
        return self.add_expand(y, (own,), (lora_b_stacked,), (y.shape[-1],), add_inputs=add_inputs)

    def add_lora_logits(
        self, y: Tensor, x: Tensor, lora_a_stacked: Tensor, lora_b_stacked: Tensor, scale: float, **options: Any
    ) -> Tensor:
        shrunk = self._shrunk(x, lora_a_stacked, self.rows) * scale
        return self.add_expand(y, (shrunk,), (lora_b_stacked,), (y.shape[-1],))

    def apply_lora_full_linear(self, *arguments: Any) -> Tensor:
        raise NotImplementedError("torchtpu: LoRA of classification heads is not supported")

    @staticmethod
    def _shrunk(x: Tensor, a: Tensor, places: Tensor) -> Tensor:
        every = nn.functional.linear(x.to(a.dtype), a.flatten(0, 2))
        return _own(every.unflatten(-1, (a.shape[0], -1)), places)


def _own(every: Tensor, places: Tensor) -> Tensor:
    """Of (tokens, places, r), what belongs to the place of each token; zeros elsewhere."""
    numbers = torch.arange(1, every.shape[1] + 1, device=every.device, dtype=torch.int32)
    return torch.where((places[:, None] == numbers)[..., None], every, 0.0)


class Places(LRUCacheLoRAModelManager):
    """vLLM's places. Remembers which were filled since they were uploaded."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.changed: set[int] = set()
        super().__init__(*arguments, **options)

    def activate_adapter(self, lora_id: int) -> bool:
        is_new = super().activate_adapter(lora_id)
        if is_new:
            self.changed.add(self.lora_index_to_id.index(lora_id))
        return bool(is_new)


class Loader(LRUCacheWorkerLoRAManager):
    _manager_cls = Places


class Adapters:
    """The adapters of a model whose weights are on the host. Replaces its layers by vLLM's layers with adapters.

    Raises NotImplementedError for models whose layers cannot have adapters.
    """

    def __init__(self, model: nn.Module, config: VllmConfig) -> None:
        if not supports_lora(model) or any(isinstance(module, MoERunner) for module in model.modules()):
            raise NotImplementedError(f"torchtpu: enable_lora: {type(model).__name__} is not supported")
        self.loader = Loader(config, torch.device("cpu"), model.embedding_modules)
        self.loader.create_lora_manager(model, config)
        self._places: Places = self.loader._adapter_manager
        self._layers = [module for module in model.modules() if isinstance(module, BaseLayerWithLoRA)]
        self._products = next(iter(self._places.punica_wrapper_mapping.values()))
        self._held: list[Tensor] = []

    @property
    def on_host(self) -> list[Tensor]:
        """The numbers of all places, (places, ...) for each."""
        return [each for layer in self._layers for name in _NAMES for each in _listed(getattr(layer, name))]

    def compile(self, held: list[Tensor], device: torch.device) -> None:
        """Takes the tensors of the device, and compiles the program that writes a place of all of them."""
        self._held = held
        self._device = device

        def function(*tensors: Tensor) -> list[Tensor]:
            *pairs, place = tensors
            for every, one in zip(pairs[: len(held)], pairs[len(held) :], strict=True):
                every.index_copy_(0, place, one[None])
            return [place.clone()]

        self._write: Run = compiled(function, [*held, *self._uploads(0)], "upload of an adapter")

    def places(self, requests: Sequence[Any]) -> dict[int, int]:
        """The places of the adapters of a step's requests, counted from 1, by their number. Uploads what is new.

        Raises what vLLM raises for adapters that cannot be loaded.
        """
        self.loader.set_active_adapters(set(requests), None)
        for place in sorted(self._places.changed):
            self._write([*self._held, *self._uploads(place)])
        self._places.changed.clear()
        return {number: place for place, number in enumerate(self._places.lora_index_to_id, 1) if number is not None}

    def _uploads(self, place: int) -> list[Tensor]:
        given = [each[place].contiguous() for each in self.on_host]
        return [each.to(self._device) for each in [*given, torch.tensor([place], dtype=torch.int32)]]

    @contextlib.contextmanager
    def given(self, held: Sequence[Tensor], tokens: Tensor, rows: Tensor) -> Iterator[None]:
        """Has the layers compute with these tensors, as long as the context lasts."""
        names = (*_NAMES, _TABLE)
        before = [
            (layer, {name: getattr(layer, name) for name in names if hasattr(layer, name)}) for layer in self._layers
        ]
        left = iter(held)
        self._products.tokens, self._products.rows = tokens, rows
        try:
            for layer, values in before:
                for name in _NAMES:
                    setattr(layer, name, _replaced(values[name], lambda: next(left)))
                if isinstance(layer, VocabParallelEmbeddingWithLoRA):
                    table = layer.lora_a_stacked
                    setattr(layer, _TABLE, table.flatten(0, 1))
                    # Where a token's adapter starts in the table. Without one, the product is not used.
                    self._products._embeddings_indices = (tokens - 1).clamp(min=0).long() * table.shape[1]
            yield
        finally:
            for layer, values in before:
                for name, value in values.items():
                    setattr(layer, name, value)


_NAMES = ("lora_a_stacked", "lora_b_stacked")
# The first of them for tables of embeddings, with places and rows as one dimension.
_TABLE = "lora_a_stacked_2d"


def _listed(value: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


def _replaced(value: Tensor | tuple[Tensor, ...], following: Callable[[], Tensor]) -> Any:
    return following() if isinstance(value, Tensor) else tuple(following() for _ in value)
