"""Changes to how a script runs, so that preflight can tell what they would gain. The script itself stays as it is.

batch=8           DataLoaders have batches of 8, unless `{batch}` stands in the script's arguments
head_dim=128      scaled_dot_product_attention joins neighbouring heads until each has 128 places
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

PLACE = "{batch}"


class ChangeError(ValueError):
    """A change that does not exist, or that does not apply to the script."""


Check = Callable[[], None]


def apply(changes: str, arguments: Sequence[str]) -> tuple[list[str], Check]:
    """Makes changes, separated by commas, to this process. Returns the script's arguments, and a check for after the
    script: it raises ChangeError if a change has changed nothing.

    ChangeError for a change that there is not.
    """
    taken, checks = list(arguments), []
    for change in filter(None, changes.split(",")):
        name, _, number = change.partition("=")
        if name not in ("batch", "head_dim") or not number.isdecimal() or int(number) < 1:
            raise ChangeError(f"there is no change {change!r}: it must be batch=N or head_dim=N, with N of at least 1")
        if name == "head_dim":
            checks.append(_join_heads(int(number)))
        elif has_place(taken):
            taken = [argument.replace(PLACE, number) for argument in taken]
        else:
            checks.append(_set_batches(int(number)))

    def check() -> None:
        for each in checks:
            each()

    return taken, check


def has_place(arguments: Sequence[str]) -> bool:
    """Whether the arguments say where the size of the batch stands."""
    return any(PLACE in argument for argument in arguments)


def _set_batches(size: int) -> Check:
    loaders = torch.utils.data.DataLoader
    made = 0
    original = loaders.__init__

    @functools.wraps(original)
    def init(self: Any, dataset: Any, batch_size: Any = 1, *rest: Any, **named: Any) -> None:
        nonlocal made
        # A sampler of batches decides by itself, and None gives single examples.
        if batch_size is not None and named.get("batch_sampler") is None and len(rest) < 3:
            made += 1
            batch_size = size
        original(self, dataset, batch_size, *rest, **named)

    loaders.__init__ = init  # type: ignore[method-assign]

    def check() -> None:
        if not made:
            raise ChangeError(
                f"the script makes no DataLoader with a batch size: write {PLACE} where its arguments name the batch"
            )

    return check


def _join_heads(width: int) -> Check:
    original = torch.nn.functional.scaled_dot_product_attention
    joined = 0

    @functools.wraps(original)
    def attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> Tensor:
        nonlocal joined
        count = width // query.shape[-1]
        same = query.shape[-1] == key.shape[-1] == value.shape[-1]
        heads = [each.shape[-3] if each.dim() == 4 else 0 for each in (query, key, value)]
        if count < 2 or not same or width % query.shape[-1] or any(not each or each % count for each in heads):
            return original(query, key, value, *rest, **named)
        joined += 1
        query, key, value = (_wide(each, count) for each in (query, key, value))
        return _narrow(original(query, key, value, *rest, **named), count)

    torch.nn.functional.scaled_dot_product_attention = attention

    def check() -> None:
        if not joined:
            raise ChangeError("no call of scaled_dot_product_attention has heads that can be joined")

    return check


def _wide(x: Tensor, count: int) -> Tensor:
    """[batch, heads, places, width] as fewer heads, each of `count` neighbours."""
    batch, heads, places, width = x.shape
    return x.transpose(1, 2).reshape(batch, places, heads // count, count * width).transpose(1, 2)


def _narrow(x: Tensor, count: int) -> Tensor:
    batch, heads, places, width = x.shape
    return x.transpose(1, 2).reshape(batch, places, heads * count, width // count).transpose(1, 2)
