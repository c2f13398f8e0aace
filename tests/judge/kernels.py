"""Runs the tests of helion's Pallas backend, and of inductor's, on "tpu". `make judge-kernels` runs them.

They are those of helion and PyTorch as published, in folders that are given. None of them is part of this repository.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.judge import alone
from tests.judge.report import Comparison
from tests.judge.suites import ROOT

CLIENT = {
    "HELION_BACKEND": "pallas",
    "HELION_AUTOTUNE_EFFORT": "none",
    "JAX_PLATFORMS": "cpu",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "PYTORCH_TESTING_DEVICE_ONLY_FOR": "privateuse1",
}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.judge.kernels",
        description="Runs test_pallas.py of helion and of PyTorch on 'tpu'. Writes a page with the failures.",
        epilog="Fails if a test fails that known.toml does not list.",
    )
    parser.add_argument("--helion", type=Path, help="a checkout of helion")
    parser.add_argument("--pytorch", type=Path, help="a checkout of PyTorch; its folder test/inductor is enough")
    alone.add_options(parser, seconds=300)
    return parser


def judge(name: str, checkout: Path, file: str, options: argparse.Namespace) -> Comparison:
    """Runs a file of a checkout."""
    called = f"{name}/{Path(file).name}"
    return alone.judge(called, checkout / file, options, (checkout, ROOT), CLIENT, ("tests.judge.clients",))


def main() -> int:
    options = parser().parse_args()
    suites = [("helion", options.helion, "test/test_pallas.py")]
    suites.append(("inductor", options.pytorch, "test/inductor/test_pallas.py"))
    given = [(name, checkout.resolve(), file) for name, checkout, file in suites if checkout is not None]
    if not given:
        parser().error("name a checkout: --helion FOLDER, --pytorch FOLDER")
    return alone.show(f"kernels-{options.mode}", options.mode, (judge(*each, options) for each in given), options)


if __name__ == "__main__":
    sys.exit(main())
