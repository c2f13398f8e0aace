"""torchtpu makes `torch.device("tpu")` an ordinary PyTorch device.

An import of this package registers the device. If the package is installed, `import torch` does this too, unless
TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set. The plugin is opened at the first use of the device.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__", "tpu"]

import torch  # noqa: F401

from torchtpu._register import register

register()

from torchtpu import tpu
