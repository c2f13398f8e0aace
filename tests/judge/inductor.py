"""Runs inductor's tests of `torch.compile` on "tpu". `make judge-compile` runs them.

As a plugin of pytest, it offers "tpu" to these tests, which know the CPU and one kind of GPU. They compile each
function under the name "inductor", and compare it with eager.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.judge import alone
from tests.judge.imports import when_imported
from tests.judge.report import Comparison
from tests.judge.source import pytorch_tests
from tests.judge.suites import ROOT

PLUGIN = "tests.judge.inductor"
FILES = (
    "inductor/test_torchinductor.py",
    "inductor/test_torchinductor_dynamic_shapes.py",
    "inductor/test_control_flow.py",
)
ONLY_TPU = {"PYTORCH_TESTING_DEVICE_ONLY_FOR": "privateuse1"}
# The classes of the tests that any device runs. The others are about the code that inductor generates.
CLASSES = re.compile(
    r"::(DynamicShapes)?GPUTests::|::TestInductorDynamicPRIVATEUSE1::|::(Cond|WhileLoop)Tests::(?!.*_cpu)"
)


def _device_of_inductor(module: Any) -> None:
    vars(module).update(GPU_TYPE="tpu", HAS_GPU=True, HAS_CPU=False)


def pytest_configure() -> None:
    when_imported({"torch.testing._internal.inductor_utils": _device_of_inductor})
    # A name that it had in PyTorch 2.6.
    vars(importlib.import_module("torch._inductor.compile_fx")).setdefault("complex_memory_overlap", None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if CLASSES.search(item.nodeid)]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.judge.inductor",
        description="Runs inductor's tests of torch.compile on 'tpu'. Writes a page with the failures.",
        epilog="Fails if a test fails that known.toml does not list.",
    )
    parser.add_argument("--files", default="*", metavar="PATTERN", help="only files whose names match this")
    alone.add_options(parser, seconds=300)
    return parser


def judge(folder: Path, file: str, options: argparse.Namespace) -> Comparison:
    """Runs a file of PyTorch's `test` folder."""
    return alone.judge(file, folder / file, options, (folder, ROOT), ONLY_TPU, (PLUGIN,))


def main() -> int:
    options = parser().parse_args()
    folder = pytorch_tests(None)
    files = fnmatch.filter(FILES, options.files)
    if not files:
        parser().error(f"argument --files: no file matches {options.files!r}; there are {', '.join(FILES)}")
    comparisons = (judge(folder, file, options) for file in files)
    return alone.show(f"compile-{options.mode}", options.mode, comparisons, options)


if __name__ == "__main__":
    sys.exit(main())
