"""Imports JAX when a kernel is traced for the first time. JAX is used for tracing only."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

MISSING = (
    "{needs} needs JAX, to be traced for arguments that are new. `pip install torchtpu[kernels]` installs it; "
    "`torchtpu.pallas.load` takes kernels that were saved where JAX is installed"
)


def import_jax(needs: str) -> Any:
    """The module jax. If it was not imported before, it is set to the CPU, because the devices belong to torch.

    Raises ImportError with `needs` if JAX is not installed.
    """
    if "jax" in sys.modules:
        return sys.modules["jax"]
    try:
        jax = importlib.import_module("jax")
    except ImportError as error:
        raise ImportError(MISSING.format(needs=needs)) from error
    if "JAX_PLATFORMS" not in os.environ:
        jax.config.update("jax_platforms", "cpu")
    return jax
