"""torchtpu makes `torch.device("tpu")` an ordinary PyTorch device.

Importing it registers the device; where the package is installed, `import torch` does that by itself (set
TORCH_DEVICE_BACKEND_AUTOLOAD=0 to switch that off). Nothing is opened until the device is first used.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__", "tpu"]


def _autoload() -> None:
    """The `torch.backends` entry point. Loading it imports this package, and importing it does all the work."""


# `import torchtpu` before `import torch` comes through here twice: torch, while it is being imported, loads the entry
# point above, finds this package half imported and `_autoload` in place, and goes on.
import torch  # noqa: F401

from torchtpu._register import register

register()

from torchtpu import tpu
