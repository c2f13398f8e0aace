"""The `torch.backends` entry point, which `import torch` calls if torchtpu is installed.

It is outside of the package torchtpu, so that it can be loaded if the import of torchtpu fails: torch turns an
exception from here into a failure of `import torch`.
"""

from __future__ import annotations

import warnings


def autoload() -> None:
    """Imports torchtpu, which registers the device. If this fails, warns with the reason and leaves torch usable."""
    try:
        # After `import torchtpu`, which imports torch first, torchtpu is half imported here. That import then
        # continues.
        import torchtpu  # noqa: F401
    except ImportError as error:
        warnings.warn(f'torch.device("tpu") is not available: {error}', RuntimeWarning, stacklevel=2)
