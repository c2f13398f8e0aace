"""The Python code in the documents runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers import check_python

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", ["README.md", "docs/guide.md", "docs/debugging.md"])
def test_documents(document: str, tmp_path: Path) -> None:
    """All code blocks of a document are one script, which runs in an empty folder."""
    blocks = BLOCK.findall((ROOT / document).read_text())
    assert blocks
    check_python("\n".join([f"import os\nos.chdir({str(tmp_path)!r})", *blocks]))
