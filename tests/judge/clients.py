"""A plugin of pytest for tests of libraries that use Google's torch_tpu: its names are torchtpu's.

PyTorch's tests of inductor's Pallas kernels ask JAX for a TPU, and import the tests of inductor itself, which are not
run here.
"""

from __future__ import annotations

import sys
from types import ModuleType

import torch
import torchtpu.compat
from torch.testing._internal.common_utils import TestCase
from torch.utils import _pallas


def _true() -> bool:
    return True


class SweepInputsTpuTest(TestCase):
    """Has no tests."""


torchtpu.compat.install()
_pallas.has_tpu_pallas = _true  # type: ignore[assignment]

inductor = ModuleType("test_torchinductor", "Which devices inductor's tests run on.")
vars(inductor).update(RUN_CPU=False, RUN_GPU=False, RUN_TPU=True, SweepInputsTpuTest=SweepInputsTpuTest)
sys.modules["test_torchinductor"] = inductor
api = ModuleType("torch_tpu.api")
vars(api).update(tpu_device=lambda: torch.device("tpu"))
sys.modules["torch_tpu.api"] = api
vars(sys.modules["torch_tpu"])["api"] = api
