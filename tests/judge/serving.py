"""Runs vLLM's own tests on "tpu", with small random models. `make judge-serving` runs them.

The tests are those of vLLM's source package on PyPI, which is downloaded once. None of them is part of this repository.
They ask for models by name: Hugging Face's cache has random ones under these names, and nothing else is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version
from pathlib import Path

from tests.judge import alone, hub
from tests.judge.files import Outcome
from tests.judge.report import Comparison
from tests.judge.source import cache_folder

PACKAGES = "https://pypi.org/simple/vllm/"
# Files that start an engine and ask it, or its parts that a platform has a say in.
FILES = (
    "basic_correctness/models/test_basic_correctness.py",
    "plugins_tests/test_scheduler_plugins.py",
    "entrypoints/llm/test_chat.py",
    "entrypoints/llm/test_collective_rpc.py",
    "entrypoints/llm/test_generate.py",
    "entrypoints/llm/test_prompt_validation.py",
    "samplers/test_beam_search.py",
    "samplers/test_ignore_eos.py",
    "samplers/test_logprobs.py",
    "samplers/test_no_bad_words.py",
    "samplers/test_non_finite_params.py",
    "v1/core/test_reset_prefix_cache_e2e.py",
    "v1/core/test_scheduler_e2e.py",
    "v1/e2e/general/test_context_length.py",
    "v1/e2e/general/test_min_tokens.py",
    "v1/e2e/general/test_streaming_input.py",
    "v1/engine/test_async_llm.py",
    "v1/engine/test_engine_core.py",
    "v1/engine/test_engine_core_client.py",
    "v1/engine/test_llm_engine.py",
    "v1/sample/test_logprobs.py",
    "v1/sample/test_sampling_params_e2e.py",
)
# A file that starts an engine for each of its tests, on a busy machine.
FILE_SECONDS = 3600


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.judge.serving",
        description="Runs vLLM's tests on 'tpu'. Writes a page with the failures.",
        epilog="Fails if a test fails that known.toml does not list.",
    )
    parser.add_argument("--files", default=",".join(FILES), help="files of vLLM's folder `tests`, with commas between")
    parser.add_argument("--tests", default="", metavar="WORDS", help="only tests that pytest's -k finds by this")
    parser.add_argument("--vllm", type=Path, help="a checkout of vLLM, instead of the source package")
    parser.add_argument("--seconds", type=int, default=300, help="what a test may take (300)")
    parser.add_argument("--verbose", action="store_true", help="print the whole messages of failures")
    parser.add_argument("--folder", type=Path, default=alone.FOLDER, help=f"where the results go ({alone.FOLDER})")
    return parser


def source() -> Path:
    """The folder of the source package of the installed vLLM, with its tests only.

    Raises:
        OSError: the package could not be downloaded.
    """
    name = f"vllm-{version('vllm')}"
    folder = cache_folder().parent / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        asked = urllib.request.Request(PACKAGES, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            files = {each["filename"]: each["url"] for each in json.load(answer)["files"]}
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            archive = Path(place) / f"{name}.tar.gz"
            with urllib.request.urlopen(files[archive.name], timeout=60) as answer, archive.open("wb") as file:
                shutil.copyfileobj(answer, file)
            with tarfile.open(archive) as tar:
                wanted = [each for each in tar if each.name.split("/")[1:2] in (["tests"], ["pyproject.toml"])]
                tar.extractall(place, members=wanted, filter="data")
            (Path(place) / name).rename(folder)
    return folder


def judge(checkout: Path, file: str, options: argparse.Namespace) -> Comparison:
    """Runs a file. All tests that it does not skip are expected to pass."""
    results = options.folder.resolve() / "vllm.xml"
    results.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "TORCHTPU_VLLM": "1",
        "TORCHTPU_CACHE_DIR": str(options.folder.resolve() / "programs"),
        "HF_HOME": str(options.folder.resolve() / "models"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    command = [sys.executable, "-m", "pytest", f"tests/{file}", "-q", "-W", "ignore", "--tb=short"]
    command += ["-p", "no:cacheprovider", "--timeout", str(options.seconds), "--junitxml", str(results)]
    try:
        run = subprocess.run(
            [*command, "-k", options.tests],
            cwd=checkout, env=environment, capture_output=True, text=True, timeout=FILE_SECONDS, check=False,
        )  # fmt: skip
        said = run.stdout[-3000:] + run.stderr[-1000:]
    except subprocess.TimeoutExpired:
        said = f"no end after {FILE_SECONDS} s"
    outcomes = (
        outcomes_of(results) if results.exists() else {"": Outcome("", "failed", f"the file cannot be run: {said}")}
    )
    expected = {
        test or "the file": Outcome(test, "passed") for test, each in outcomes.items() if each.outcome != "skipped"
    }
    return Comparison(f"vllm/{file}", expected, outcomes)


def outcomes_of(results: Path) -> dict[str, Outcome]:
    """What pytest has written to a file of JUnit's format."""
    outcomes = {}
    for case in ElementTree.parse(results).iter("testcase"):
        name, seconds = case.get("name", ""), float(case.get("time", 0))
        bad = next((each for each in case if each.tag in ("failure", "error")), None)
        kind = "skipped" if case.find("skipped") is not None else "passed"
        message = "" if bad is None else f"{bad.get('message', '')}\n{bad.text or ''}"
        outcomes[name] = Outcome(name, kind if bad is None else "failed", message, seconds)
    return outcomes


def main() -> int:
    options = parser().parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    checkout = options.vllm.resolve() if options.vllm else source()
    texts = sorted((checkout / "tests" / "prompts").glob("*.txt"))
    hub.write(options.folder / "models", [text.read_text() for text in texts])
    comparisons = (judge(checkout, file, options) for file in options.files.split(","))
    return alone.show("vllm", "strict", comparisons, options)


if __name__ == "__main__":
    sys.exit(main())
