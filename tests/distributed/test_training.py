"""DDP, FSDP, tensor parallel, pipelines and checkpoints on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.launch import check_cases


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_training_on_two_ranks(mode: str, tmp_path: Path) -> None:
    check_cases("training", mode, tmp_path)
