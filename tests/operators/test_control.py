"""Rows of crates/aten/src/ops/control.rs."""

from __future__ import annotations

import pytest
import torch

from tests.operators.test_checks import wait_for

pytestmark = [pytest.mark.each_mode, pytest.mark.usefixtures("mode")]


def test_assert_async(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    torch._assert_async((x > 0).all(), "all positive")
    torch._assert_async(x[1])
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        torch._assert_async(x)
    torch.tpu.synchronize()
    with pytest.raises(RuntimeError, match="all negative"):
        wait_for(lambda: torch._assert_async((x < 0).all(), "all negative"))
