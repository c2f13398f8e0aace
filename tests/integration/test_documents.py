"""The Python code in the documents runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers import check_python

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


DOCUMENTS = ["README.md", "docs/guide.md", "docs/debugging.md"]
# The other tutorials have tests of their own, beside those of their subjects.
TUTORIALS = [
    "port_a_script",
    "slow_script",
    "changing_sizes",
    "mixed_precision",
    "export_and_serve",
    "from_cuda",
    "from_torch_xla",
]


@pytest.mark.parametrize("document", [*DOCUMENTS, *(f"docs/tutorials/{name}.md" for name in TUTORIALS)])
def test_documents(document: str, tmp_path: Path) -> None:
    """All code blocks of a document are one script, which runs in an empty folder."""
    blocks = BLOCK.findall((ROOT / document).read_text())
    assert blocks
    check_python("\n".join([f"import os\nos.chdir({str(tmp_path)!r})", *blocks]))
