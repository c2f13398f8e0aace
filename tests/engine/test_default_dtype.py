"""torch.set_default_dtype, after calls that were made before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def double() -> Iterator[None]:
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("double", "mode")
def test_integers_become_the_new_default(device: torch.device) -> None:
    def results() -> list[torch.Tensor]:
        x = torch.arange(1, 6, device=device)
        return [x / 3, x.sqrt(), x * 1.5, x.float() * 1.5, torch.full((2,), 0.1, device=device), x.float().mean()]

    assert {result.dtype for result in results()} == {torch.float32}
    torch.set_default_dtype(torch.float64)
    quotient, root, product, *others = results()
    assert quotient.dtype == root.dtype == product.dtype == torch.float64
    assert [result.dtype for result in others] == [torch.float32, torch.float64, torch.float32]
    assert torch.equal(quotient.cpu(), torch.arange(1, 6) / 3)
    assert torch.equal(product.cpu(), torch.arange(1, 6) * 1.5)
    torch.set_default_dtype(torch.float32)
    assert {result.dtype for result in results()} == {torch.float32}
