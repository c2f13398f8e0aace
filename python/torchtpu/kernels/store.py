"""The texts of kernels' programs, in memory and beside the disk cache, so that JAX is imported only for new ones."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from torchtpu import _C
from torchtpu.kernels.calls import Call, Spec
from torchtpu.kernels.fingerprint import hash_of, version_of
from torchtpu.stored import Stored

FORMAT = 3
# A text has a few kilobytes.
TEXTS = Stored(".kernels", 32 * 2**20)

counters = {"traced": 0, "read": 0}
_known: dict[tuple[str, tuple[Spec, ...], str], Text] = {}
_plans: dict[tuple[str, tuple[Spec, ...]], Any] = {}
_loaded: dict[str, str] = {}
_lock = threading.RLock()


class Text(NamedTuple):
    """A program of a call for tensors of certain dtypes and shapes."""

    # The functions of the module; the name of the one to call.
    functions: str
    entry: str
    results: tuple[Spec, ...]
    # How the results are nested: None, "t" for a tensor, ["list"|"tuple", …], ["dict", [key, …], …].
    structure: Any
    # The dtypes that it takes, if they do not follow from the tensors of a call.
    takes: tuple[torch.dtype, ...] | None = None

    def as_json(self) -> str:
        results = [[_name(spec.dtype), list(spec.shape)] for spec in self.results]
        return json.dumps([self.functions, self.entry, results, self.structure])

    @classmethod
    def from_json(cls, text: str) -> Text:
        functions, entry, results, structure = json.loads(text)
        return cls(
            functions, entry, tuple(Spec(getattr(torch, name), tuple(shape)) for name, shape in results), structure
        )


def text_of(call: Call, specs: Sequence[Spec], platform: str | None = None) -> Text:
    """The program of a call for tensors like `specs`. Traced with JAX if it is not known yet.

    `platform` is "tpu" for Mosaic kernels and "cpu" for kernels as plain StableHLO; by default that of this machine.
    Raises the errors of the kernel's function, TypeError for tensors that JAX does not take, and ImportError if JAX is
    needed and not installed.
    """
    if call.text is not None:
        given: Text = call.text
        return given
    platform = platform or target()[0]
    key = (call.name, tuple(specs), platform)
    with _lock:
        found = _known.get(key)
        if found is None:
            found = _known[key] = _find(call, tuple(specs), platform)
            remember_structure(call, found.structure)
        return found


def plan_of(call: Call, specs: tuple[Spec, ...], make: Any) -> Any:
    """The result of `make` for a call with such tensors. It consists of JSON values, and is stored like a text."""
    key = (call.name, specs)
    if key not in _plans:
        _plans[key] = _find_plan(call, specs, make)
    return _plans[key]


def _find_plan(call: Call, specs: tuple[Spec, ...], make: Any) -> Any:
    if (loaded := _load(call, specs, "plan")) is not None:
        return json.loads(loaded)
    key = _key(call, specs, "plan")
    if key is not None and (found := TEXTS.read(key)) is not None:
        return json.loads(found)
    made = make()
    if key is not None:
        TEXTS.write(key, json.dumps(made).encode())
    return made


def add(texts: dict[str, str]) -> None:
    """Adds what was saved elsewhere, by the keys that `portable_key` gives."""
    _loaded.update(texts)


def portable_key(call: Call, specs: Sequence[Spec], what: str) -> str:
    """The key of a saved text or plan. It does not depend on the versions that wrote it.

    Raises ValueError for a kernel that another process cannot know again.
    """
    if call.identity is None:
        raise ValueError(
            f"{call.kernel.name} refers to a value that means nothing in another process: pass version='…' to name it"
        )
    return hash_of(call.identity, [str(spec) for spec in specs], what)


def _load(call: Call, specs: Sequence[Spec], what: str) -> str | None:
    if not _loaded or call.identity is None:
        return None
    return _loaded.get(portable_key(call, specs, what))


def target() -> tuple[str, str]:
    """The target of the programs of this process: the platform and the kind of the device."""
    chosen = os.environ.get("TORCHTPU_TARGET", "")
    info = _C.platform_info()
    kind = info["devices"][0]["kind"] if info["devices"] else ""
    platform = "tpu" if (chosen or info["platform"]) == "tpu" else "cpu"
    return platform, kind if info["platform"] == "tpu" else ""


def _find(call: Call, specs: tuple[Spec, ...], platform: str) -> Text:
    if (loaded := _load(call, specs, platform)) is not None:
        return Text.from_json(loaded)
    key = _key(call, specs, platform)
    if key is not None and (found := TEXTS.read(key)) is not None:
        counters["read"] += 1
        return Text.from_json(found.decode())
    from torchtpu.kernels.imports import import_jax

    import_jax(str(call))
    from torchtpu.kernels.chips import tracing_for
    from torchtpu.kernels.tracing import trace

    with tracing_for(target()[1]):
        text = trace(call, specs, platform)
    counters["traced"] += 1
    if key is not None:
        TEXTS.write(key, text.as_json().encode())
    return text


def remember_structure(call: Call, structure: Any) -> None:
    """Stores how the results of a call are nested, and those of the call that it is derived from.

    Raises TypeError if they were nested in another way before.
    """
    if call.structure is not None and call.structure != structure:
        raise TypeError(
            f"{call.kernel.name} returned {call.structure} before and returns {structure} for these shapes: how "
            f"results are nested must not depend on them"
        )
    call.structure = structure
    if call.of is not None and call.change[0] == "batched":
        remember_structure(call.of, structure)
    elif call.of is not None and call.change[0] == "saving":
        remember_structure(call.of, structure[1])


def _key(call: Call, specs: tuple[Spec, ...], what: str) -> str | None:
    if call.identity is None:
        return None
    versions = (version_of("jax"), is_64_bit(), FORMAT)
    return hash_of(call.identity, [str(spec) for spec in specs], what, target()[1], versions)


def is_64_bit() -> bool:
    """Whether JAX computes with 64-bit numbers, which its user decides."""
    if "jax" in sys.modules:
        return bool(sys.modules["jax"].config.jax_enable_x64)
    return os.environ.get("JAX_ENABLE_X64", "").lower() in ("1", "true", "t", "yes", "y", "on")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
