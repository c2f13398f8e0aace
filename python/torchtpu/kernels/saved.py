"""Kernels in files, for machines without JAX: the texts of calls with given dtypes and shapes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

from torchtpu.kernels import store
from torchtpu.kernels.calls import Call, Spec
from torchtpu.kernels.store import Text, plan_of, portable_key, text_of

FORMAT = 1


def save(
    path: str | os.PathLike[str], calls: Iterable[tuple[Call, Sequence[Spec]]], platforms: Sequence[str], gradient: bool
) -> int:
    """Writes the texts of calls into a file; returns their number. With `gradient`, also those of their gradients.

    Raises ValueError for a kernel that another process cannot identify.
    """
    texts: dict[str, str] = {}
    for call, specs in calls:
        for platform in platforms:
            _take(texts, call, specs, platform)
            if gradient:
                _take_gradient(texts, call, specs, platform)
    with open(path, "w") as file:
        json.dump({"format": FORMAT, "texts": texts}, file)
    return len(texts)


def load(path: str | os.PathLike[str]) -> int:
    """Reads a file that `save` wrote; returns the number of texts.

    Raises ValueError if the file was not written by `save`.
    """
    with open(path) as file:
        try:
            held = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is no file of saved kernels") from error
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        raise ValueError(f"{path} is no file of saved kernels, or of another version of torchtpu")
    store.add(held["texts"])
    return len(held["texts"])


def _take(texts: dict[str, str], call: Call, specs: Sequence[Spec], platform: str) -> Text:
    text = text_of(call, specs, platform)
    texts[portable_key(call, specs, platform)] = text.as_json()
    return text


def _take_gradient(texts: dict[str, str], call: Call, specs: Sequence[Spec], platform: str) -> None:
    """Adds the texts of the gradients of all tensors, given the gradients of all results."""
    made = plan_for(call, specs)
    texts[portable_key(call, specs, "plan")] = json.dumps(made)
    for derived, inputs in gradient_calls(call, specs, made, platform):
        _take(texts, derived, inputs, platform)


def plan_for(call: Call, specs: Sequence[Spec]) -> object:
    """The values that the forward pass saves for the gradient: see `torchtpu.kernels.derived.plan`."""

    def make() -> object:
        from torchtpu.kernels.imports import import_jax

        import_jax(f"the gradient of {call}")
        from torchtpu.kernels.derived import plan

        return plan(call, specs)

    return plan_of(call, tuple(specs), make)


def gradient_calls(call: Call, specs: Sequence[Spec], plan: Any, platform: str) -> list[tuple[Call, tuple[Spec, ...]]]:
    """The calls that compute the gradients of all tensors, and the dtypes and shapes of their arguments."""
    results = text_of(call, specs, platform).results
    needs = tuple(each.dtype.is_floating_point or each.dtype.is_complex for each in specs)
    given = tuple(each.dtype.is_floating_point or each.dtype.is_complex for each in results)
    gradients = [each for each, is_given in zip(results, given, strict=True) if is_given]
    if plan is None:
        return [(call.derive("gradient", needs, given), (*specs, *gradients))]
    sources, more = plan
    saving = call.derive("saving", tuple(specs))
    every = text_of(saving, specs, platform).results
    kept = {"input": specs, "result": results, "more": every[len(every) - more :]}
    saved = [kept[kind][place] for kind, place in sources]
    return [
        (saving, tuple(specs)),
        (call.derive("gradient saved", needs, given, tuple(specs)), (*saved, *gradients)),
    ]
