"""Masks over sizes that change: reads and writes have one program for all sizes and all numbers of elements."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.engine import masks
from tests.engine.settling import SIZES
from tests.helpers import check_module


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("name", masks.PROGRAMS)
def test_masks(name: str, mode: str) -> None:
    check_module("tests.engine.masks", name, mode)


def add(x: Tensor, mask: Tensor, values: Tensor) -> None:
    x.index_put_((mask,), values, accumulate=True)


# Given: a matrix, a mask of its rows, and values for one more row than the mask selects.
WRONG: dict[str, Callable[[Tensor, Tensor, Tensor], None]] = {
    "rows": lambda x, mask, values: masks.put(x, (mask,), values),
    "elements": lambda x, mask, values: masks.put(x[:, 0], (mask,), values[:, 0]),
    "accumulated": lambda x, mask, values: add(x, mask, values),
    "with an index": lambda x, mask, values: masks.put(x, (mask, torch.zeros(len(values)).long().to(x.device)), 1.0),
    "two masks": lambda x, mask, values: masks.put(x, (mask, x[0] < 9), 1.0),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.usefixtures("changing_sizes")
def test_other_numbers_of_elements_are_refused(name: str, device: torch.device, mode: str) -> None:
    for size in SIZES:
        x, mask = torch.randn(size, 4), torch.arange(size) % 3 == 0
        values = torch.randn(int(mask.sum()) + 1, 4)
        with pytest.raises((IndexError, RuntimeError)) as expected:
            WRONG[name](x.clone() * 2, mask, values)
        y = x.to(device) * 2
        with pytest.raises((IndexError, RuntimeError)) as actual:  # noqa: PT012 (the read raises)
            WRONG[name](y, mask.to(device), values.to(device))
            y.cpu()
        assert actual.type is expected.type
        # The shapes of masks and indices that do not fit together are not all known on the host.
        words = str(expected.value).partition(" with shapes ")[0]
        assert str(actual.value).startswith(words), actual.value
        assert torch.equal(y.cpu(), x * 2)
