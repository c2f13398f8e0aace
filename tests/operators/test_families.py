"""Each family of rows has a test file of its name here."""

from __future__ import annotations

from pathlib import Path

import pytest

FAMILIES = Path(__file__).parents[2] / "crates" / "aten" / "src" / "ops"


@pytest.mark.parametrize(
    "family",
    sorted(str(path.relative_to(FAMILIES)) for path in FAMILIES.rglob("*.rs") if "const ROWS" in path.read_text()),
)
def test_a_family_has_its_test_file(family: str) -> None:
    assert Path(__file__).with_name(f"test_{Path(family).stem}.py").is_file()
