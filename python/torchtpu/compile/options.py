"""`torch.compile(mode=..., options=...)` for tpu graphs."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Mapping

from torchtpu import _C
from torchtpu.graphs.encoder import Flag, Flags

# A graph is one program that XLA fuses as a whole, and a call of it is one call of the plugin. There are no launch
# costs for CUDA graphs to save, and no templates to tune. So all modes are accepted and mean the same.
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


# Inductor's options that a warning has named.
_said: set[str] = set()


def flags_of(mode: str | None, options: Mapping[str, Flag] | None) -> Flags:
    """XLA's flags for the programs of a graph. Inductor's options are ignored with a warning. RuntimeError, as in
    inductor, for unknown options."""
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    options = options or {}
    of_inductor = [name for name in options if not name.startswith("xla_") and _is_inductors(name)]
    warn_no_effect(of_inductor)
    flags = tuple(sorted((name, value) for name, value in options.items() if name not in of_inductor))
    for name, value in flags:
        if not name.startswith("xla_") or not isinstance(value, bool | int | float | str):
            raise RuntimeError(
                f"Unexpected optimization option {name}={value!r} for tpu tensors: known options are XLA's flags, such "
                f"as xla_cpu_enable_fast_math, with a bool, a number or a string, and those of inductor, which have "
                f"no effect"
            )
    if flags:
        _check_flags(flags)
    return flags


def warn_no_effect(names: Iterable[str]) -> None:
    """Warns once about each of inductor's options that is given for a graph with tpu tensors."""
    new = sorted(set(names) - _said)
    if new:
        _said.update(new)
        warnings.warn(
            f"XLA compiles graphs with tpu tensors: these options of inductor have no effect on them: {', '.join(new)}",
            stacklevel=2,
        )


def _is_inductors(name: str) -> bool:
    import torch._inductor

    return name.replace("-", "_") in torch._inductor.list_options()


@functools.cache
def _check_flags(flags: Flags) -> None:
    """Compiles an empty program with the flags: only the plugin knows which flags exist."""
    number = ("torchtpu::constant", [("data", ("is", [0])), ("size", ("is", [])), ("dtype", ("d", 3))], 1)
    try:
        _C.CompiledGraph("options", (0, [number], [0]), "", [], [(3, [], [])], [0], 0, list(flags))([])
    except RuntimeError as error:
        names = ", ".join(name for name, _ in flags)
        raise RuntimeError(f"Unexpected optimization option among {names}: {error}") from error
