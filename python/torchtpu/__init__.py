"""torchtpu makes `torch.device("tpu")` an ordinary PyTorch device.

An import of this package registers the device. If the package is installed, `import torch` does this too, unless
TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set. The plugin is opened at the first use of the device.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__version__ = "0.1.0"
__all__ = ["__version__", "tpu"]

import torch  # noqa: F401

from torchtpu._register import register

register()

from torchtpu import tpu


def __getattr__(name: str) -> ModuleType:
    """`torchtpu.pallas` and `torchtpu.preflight` are imported at their first use."""
    if name in ("pallas", "preflight"):
        return importlib.import_module(f"torchtpu.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
