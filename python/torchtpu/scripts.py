"""Runs a user's script as `python script.py` does."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Runs a script as the main module, with its own arguments and with its folder first in `sys.path`. What it raises
    is raised."""
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    runpy.run_path(path, run_name="__main__")
