"""`torch.tpu`: the device's module, with the functions that users of `torch.cuda` expect.

torch.tpu.is_available(), torch.tpu.device_count(), torch.tpu.synchronize()
torch.tpu.eager_mode = "fused"
with torch.tpu.set_eager_mode("debug", check_finite=True): ...
torch.tpu.memory_allocated(), torch.tpu.cache_stats()
with torch.tpu.explain() as explanation: ...
print(torch.tpu.stablehlo(function, x))
"""

from __future__ import annotations

import sys
from types import ModuleType

from torch import OutOfMemoryError

from torchtpu.compile import compile_step
from torchtpu.tpu.devices import (
    _exchange_device,
    _maybe_exchange_device,
    current_device,
    device,
    device_count,
    device_of,
    get_device_index,
    is_available,
    set_device,
    synchronize,
)
from torchtpu.tpu.explanation import Explanation, explain
from torchtpu.tpu.lazy import _is_in_bad_fork, _lazy_call, _lazy_init, init, is_initialized
from torchtpu.tpu.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from torchtpu.tpu.modes import (
    EagerMode,
    get_eager_mode,
    set_eager_mode,
)
from torchtpu.tpu.properties import (
    get_amp_supported_dtype,
    get_device_name,
    get_device_properties,
    is_bf16_supported,
)
from torchtpu.tpu.random import (
    default_generators,
    fork_rng,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torchtpu.tpu.sizes import mark_dynamic
from torchtpu.tpu.stats import cache_stats, op_stats, reset_cache_stats, reset_op_stats
from torchtpu.tpu.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from torchtpu.tpu.text import stablehlo

__all__ = [
    "EagerMode",
    "Event",
    "Explanation",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "_exchange_device",
    "_is_in_bad_fork",
    "_lazy_call",
    "_lazy_init",
    "_maybe_exchange_device",
    "cache_stats",
    "compile_step",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "eager_mode",
    "empty_cache",
    "explain",
    "fork_rng",
    "get_amp_supported_dtype",
    "get_device_index",
    "get_device_name",
    "get_device_properties",
    "get_eager_mode",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "mark_dynamic",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "op_stats",
    "reset_accumulated_memory_stats",
    "reset_cache_stats",
    "reset_op_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_eager_mode",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stablehlo",
    "stream",
    "synchronize",
]


class _TpuModule(ModuleType):
    """Attributes of the module that are computed, or take effect when assigned."""

    @property
    def _initialized(self) -> bool:
        """Activation checkpointing reads this before it saves the random state of the device."""
        return is_initialized()

    @property
    def pallas(self) -> ModuleType:
        """The module torchtpu.pallas."""
        import torchtpu.pallas

        return torchtpu.pallas

    @property
    def eager_mode(self) -> EagerMode:
        """The eager mode: see EagerMode. Assign a mode or its name to change it."""
        return get_eager_mode()

    @eager_mode.setter
    def eager_mode(self, mode: EagerMode | str) -> None:
        set_eager_mode(mode)


sys.modules[__name__].__class__ = _TpuModule

eager_mode: EagerMode  # declared for readers and type checkers; the property above answers
