"""What `import torch` calls where torchtpu is installed: the `torch.backends` entry point.

It stands outside the package torchtpu, so that it can be reached when the import of torchtpu fails: torch turns an
exception from here into a failure of `import torch`.
"""

from __future__ import annotations

import warnings


def autoload() -> None:
    """Imports torchtpu, which registers the device. Where that cannot be, says why, and leaves torch usable."""
    try:
        # After `import torchtpu`, which imports torch first, this finds it half imported and leaves it to go on.
        import torchtpu  # noqa: F401
    except ImportError as error:
        warnings.warn(f'torch.device("tpu") is not available: {error}', RuntimeWarning, stacklevel=2)
