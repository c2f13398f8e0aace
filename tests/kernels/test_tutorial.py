"""Runs the code of docs/tutorials/kernels.md from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("jax")

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "kernels.md"


def test_the_tutorial_runs() -> None:
    text = PAGE.read_text()
    # Each block keeps its line numbers, so that errors show them.
    parts = re.split(r"^```(?:python)?$", text, flags=re.MULTILINE)
    code = "".join("\n" * part.count("\n") if i % 2 == 0 else part for i, part in enumerate(parts))
    assert len(parts) > 10
    exec(compile(code, str(PAGE), "exec"), {"__name__": "tutorial"})
