"""Trains each architecture of transformers on "tpu" for a step, beside the CPU. `make judge-architectures` runs it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.judge import alone
from tests.judge.suites import ROOT

FILE = Path(__file__).with_name("tiny_models.py")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.judge.architectures",
        description="Compares outputs and gradients of small random models, one of each architecture of transformers, "
        "with the CPU's. Writes a page with the failures.",
        epilog="Fails if a model differs that known.toml does not list.",
    )
    alone.add_options(parser, seconds=300)
    options = parser.parse_args()
    variables = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    comparison = alone.judge(FILE.name, FILE, options, (ROOT,), variables)
    return alone.show(f"architectures-{options.mode}", options.mode, [comparison], options)


if __name__ == "__main__":
    sys.exit(main())
