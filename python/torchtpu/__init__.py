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
    """`torchtpu.pallas` is imported at its first use."""
    if name == "pallas":
        return importlib.import_module("torchtpu.pallas")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
