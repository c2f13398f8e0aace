"""Prevents JAX from looking for a TPU."""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
