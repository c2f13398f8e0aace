"""torchtpu makes `torch.device("tpu")` an ordinary PyTorch device.

Importing it registers the device; where the package is installed, `import torch` does that by itself (set
TORCH_DEVICE_BACKEND_AUTOLOAD=0 to switch that off). Nothing is opened until the device is first used.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__", "tpu"]

import torch  # noqa: F401

from torchtpu._register import register

register()

from torchtpu import tpu
