"""A sample of the conformance cases, and every case that failed once.

TORCHTPU_TEST_SEED draws another sample. TORCHTPU_CONFORMANCE_CASES sets the number of drawn cases. `make
conformance` runs all cases.
"""

from __future__ import annotations

import functools
import os
import random
from pathlib import Path

import pytest
import torch

from tests.conformance.exceptions import expected_failure, regressions
from tests.settings import SEED

DRAWN = int(os.environ.get("TORCHTPU_CONFORMANCE_CASES", "60"))
# Dtypes that were swept completely, so that each failure is known with its reason.
DTYPES = ("float32", "int64", "bool", "bfloat16")
DIRECTIONS = ("forward", "backward", "step", "errors", "refused")
# PyTorch's lists take seconds to load, so a test draws its cases when it runs, not during collection.
SHARDS = 20
# Dynamo is slow for each of them.
COMPILED = max(1, DRAWN // 6)
COMPILED_INPUTS = 2
COMPILED_SHARDS = 5
PAGE_SHARDS = 8


# Operators whose gradients have handwritten rows: gradients against finite differences.
GRADIENTS = (
    "cdist",
    "cumprod",
    "nn.functional.embedding",
    "linalg.eigh",
    "log_softmax",
    "masked_scatter",
    "nn.functional.adaptive_max_pool2d",
    "nn.functional.avg_pool2d",
    "nn.functional.batch_norm",
    "nn.functional.conv1d",
    "nn.functional.conv_transpose1d",
    "nn.functional.cross_entropy",
    "nn.functional.ctc_loss",
    "nn.functional.gelu",
    "nn.functional.glu",
    "nn.functional.grid_sample",
    "nn.functional.group_norm",
    "nn.functional.huber_loss",
    "nn.functional.interpolate.bilinear",
    "nn.functional.layer_norm",
    "nn.functional.logsigmoid",
    "nn.functional.max_pool1d",
    "nn.functional.pad.reflect",
    "nn.functional.prelu",
    "nn.functional.silu",
    "nn.functional.softplus",
    "nn.functional.unfold",
)


@functools.cache
def drawn() -> list[str]:
    from tests.conformance.cases import EAGER_MODES, cases

    everything = [
        str(case) for case in cases(modes=EAGER_MODES) if case.dtype in DTYPES and case.direction in DIRECTIONS
    ]
    return random.Random(SEED).sample(everything, min(DRAWN, len(everything)))


@functools.cache
def drawn_for_compile() -> list[str]:
    from tests.conformance.cases import cases

    # Optimizers have many settings, each of which is compiled; test_compile.py has some.
    everything = [str(case) for case in cases(dtypes=DTYPES, modes=("compile",)) if case.direction != "step"]
    return random.Random(SEED).sample(everything, COMPILED)


def check(names: list[str], inputs: int | None = None) -> None:
    from tests.conformance.cases import Case
    from tests.conformance.judge import INPUTS, run

    verdicts = [run(Case.parse(name), inputs or INPUTS) for name in names if not expected_failure(name)]
    failures = [f"{verdict.case}\n  on {verdict.inputs}\n  {verdict.why}" for verdict in verdicts if verdict.is_failure]
    if failures:
        repeat = f"TORCHTPU_TEST_SEED={SEED} repeats this, and so does python -m tests.conformance CASE"
        pytest.fail("\n".join([repeat, *failures]), pytrace=False)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_drawn_cases(shard: int) -> None:
    check(drawn()[shard::SHARDS])


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_by_differences(name: str) -> None:
    check([f"{name}/float64/gradcheck/strict"], inputs=1)


@pytest.mark.parametrize("shard", range(COMPILED_SHARDS))
def test_drawn_cases_compiled(shard: int) -> None:
    check(drawn_for_compile()[shard::COMPILED_SHARDS], COMPILED_INPUTS)


@pytest.fixture
def page() -> str:
    """The text of docs/operators.md. Another torch has other operators and dtypes, so the page would differ with it."""
    from tests.conformance import matrix

    written = matrix.PAGE.read_text()
    if f"Torch is {matrix.VERSION}." not in written:
        pytest.skip("docs/operators.md is written for another torch")
    return written


@pytest.mark.parametrize("shard", range(PAGE_SHARDS))
def test_the_page_of_operators_is_not_stale(page: str, shard: int) -> None:
    """Checks two columns of each line, and all columns of a few. `make docs` checks all."""
    from tests.conformance import matrix

    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    names = matrix.operators()
    assert listed == names, "`make docs` writes docs/operators.md"
    stale = matrix.stale(names[shard::PAGE_SHARDS], ("float32", "bool"))
    stale += matrix.stale(random.Random(f"{SEED} {shard}").sample(names, 2), matrix.COLUMNS)
    if stale:
        pytest.fail("\n".join(["`make docs` writes docs/operators.md anew:", *stale]), pytrace=False)


def test_some_lines_of_the_page_are_written(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.conformance import matrix

    line = next(line for line in page.splitlines() if line.startswith("| `abs` |"))
    stale = page.replace(line, "| `abs` | another line |")
    monkeypatch.setattr(matrix, "PAGE", tmp_path / "operators.md")
    matrix.PAGE.write_text(stale)
    assert matrix.page(["acos"]) == stale
    assert matrix.page(["abs"]) == page


@pytest.mark.nightly
def test_a_crash_or_a_hang_costs_one_case() -> None:
    from tests.conformance.cases import Case
    from tests.conformance.workers import Settings, run_all

    crash, case = Case.parse("no such operator/float32/forward/strict"), Case.parse("abs/float32/forward/strict")
    assert [verdict.status for verdict in run_all([crash, case], 1, 240, Settings(1, 0))] == ["crash", "pass"]
    assert [verdict.status for verdict in run_all([case], 1, 1e-6, Settings(1, 0))] == ["hang"]


@pytest.mark.parametrize("shard", range(SHARDS))
def test_cases_that_failed_once(shard: int) -> None:
    check(regressions()[shard::SHARDS])


def test_cases_that_cuda_has_and_the_cpu_lacks() -> None:
    from tests.conformance.__main__ import parser, select, settle
    from tests.conformance.cases import is_for_cuda_only

    options = parser().parse_args(["--cuda-only", "--modes", "strict", "--directions", "forward"])
    settle(options)
    chosen = select(options)
    names = {str(case) for case in chosen}
    assert {"fft.fft/complex32/forward/strict", "nansum/complex64/forward/strict"} <= names
    assert "abs/float32/forward/strict" not in names
    assert all(is_for_cuda_only(case) for case in chosen)


def test_a_new_operator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an upgrade of torch would bring it: a kernel for the CPU, and nothing else."""
    from tests.conformance import dispatcher

    with torch.library._scoped_library("torchtpu_test", "FRAGMENT") as library:
        for name in ("kernel", "composite"):
            library.define(f"{name}(Tensor x) -> Tensor")
        library.impl("kernel", torch.clone, "CPU")
        library.impl("composite", torch.clone, "CompositeExplicitAutograd")
        names = ["aten::add.Tensor", "torchtpu_test::kernel", "torchtpu_test::composite"]
        monkeypatch.setattr(dispatcher, "_known_at_first", lambda: names)
        dispatcher._without_kernel.cache_clear()
        try:
            assert dispatcher.forgotten() == ["torchtpu_test::kernel"]
        finally:
            dispatcher._without_kernel.cache_clear()


def test_no_operator_is_forgotten() -> None:
    """Including operators that are not in PyTorch's lists."""
    from tests.conformance import dispatcher, matrix

    assert not dispatcher.forgotten(), f"they need a row, a decomposition, or a reason in {dispatcher.WITHOUT_KERNEL}"
    page = matrix.PAGE.read_text()
    if f"Torch is {matrix.VERSION}." in page:
        assert not dispatcher.unused()
        assert page.endswith(dispatcher.section())
