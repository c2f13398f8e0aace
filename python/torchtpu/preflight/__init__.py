"""What a TPU's compiler says of a training script, on a machine without a TPU.

    record      a script runs on a device that computes nothing: recording.py, modules.py
    compile     libtpu's compiler takes the programs of a step, in a process of its own: compiler.py
    read        what the compiler wrote down becomes figures: hlo.py, analysis.py
    report      text, JSON and one page of HTML: report.py, page.py

`python -m torchtpu preflight script.py` does all of it; `preflight` takes a function instead.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from torchtpu.preflight.run import Report, preflight

__all__ = ["Report", "preflight"]


class _Callable(ModuleType):
    """`torchtpu.preflight(train)` is `torchtpu.preflight.preflight(train)`."""

    def __call__(self, *args: Any, **options: Any) -> Report:
        return preflight(*args, **options)


sys.modules[__name__].__class__ = _Callable
