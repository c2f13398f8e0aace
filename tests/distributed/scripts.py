"""A script as torchrun runs it, on ranks that are forks: none takes the seconds of an import."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys

# The scripts import these modules. An import before the fork saves each rank about a second for each module.
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.parallel  # noqa: F401


def printed(path: str, *arguments: str) -> str:
    """What a script prints on this rank."""
    os.environ["LOCAL_WORLD_SIZE"] = os.environ["WORLD_SIZE"]
    sys.argv = [path, *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as text:
        runpy.run_path(path, run_name="__main__")
    return text.getvalue()
