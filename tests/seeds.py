"""Seeds of all generators."""

from __future__ import annotations

import random

import torch


def seed_everything(seed: int) -> None:
    """Seeds Python, NumPy, the CPU and the device."""
    random.seed(seed)
    # torch.manual_seed stores a traceback for each accelerator that this torch could have.
    torch.default_generator.manual_seed(seed)
    torch.tpu.manual_seed_all(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed)
