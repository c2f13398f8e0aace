"""A plugin of pytest: tests that PyTorch offers to the CPU and to CUDA by name are offered to "tpu" too."""

from __future__ import annotations

import os
from typing import Any


def _offer_to_this_device() -> None:
    from torch.testing._internal import common_device_type

    filter_types = common_device_type.filter_desired_device_types

    def wider(bases: Any, except_for: Any = None, only_for: Any = None) -> Any:
        if only_for is not None and not isinstance(only_for, str) and {"cpu", "cuda"} <= set(only_for):
            only_for = [*only_for, "privateuse1"]
        return filter_types(bases, except_for, only_for)

    common_device_type.filter_desired_device_types = wider


if os.environ.get("PYTORCH_TESTING_DEVICE_ONLY_FOR") == "privateuse1":
    _offer_to_this_device()
