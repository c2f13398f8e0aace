"""`torch.compile(mode=..., options=...)` for tpu graphs."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from torchtpu import _C
from torchtpu.graphs.encoder import Flag, Flags

# A graph is one program, which XLA has fused as a whole, and a call of it is one call of the plugin: there is no launch
# cost to save as CUDA graphs do, and no templates to tune. So the modes are accepted and mean the same.
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def flags_of(mode: str | None, options: Mapping[str, Flag] | None) -> Flags:
    """XLA's flags for the programs of a graph. RuntimeError, as inductor raises, for what is not known."""
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    flags = tuple(sorted((options or {}).items()))
    for name, value in flags:
        if not name.startswith("xla_") or not isinstance(value, bool | int | float | str):
            raise RuntimeError(
                f"Unexpected optimization option {name}={value!r} for tpu tensors: known options are XLA's flags, such "
                f"as xla_cpu_enable_fast_math, with a bool, a number or a string"
            )
    if flags:
        _try_out(flags)
    return flags


@functools.cache
def _try_out(flags: Flags) -> None:
    """Has the plugin compile a program of nothing with the flags: it alone knows which ones there are."""
    number = ("torchtpu::constant", [("data", ("is", [0])), ("size", ("is", [])), ("dtype", ("d", 3))], 1)
    try:
        _C.CompiledGraph("options", (0, [number], [0]), "", [], [(3, [], [])], [0], 0, list(flags))([])
    except RuntimeError as error:
        names = ", ".join(name for name, _ in flags)
        raise RuntimeError(f"Unexpected optimization option among {names}: {error}") from error
