"""The judge itself, on a file with tests that pass, fail, crash and hang where the device is "tpu"."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.judge import inductor, kernels
from tests.judge.child import drawn, on_cpu
from tests.judge.files import Outcome, Request, run_file
from tests.judge.report import Comparison, Report
from tests.judge.suites import CPU, DEVICE, ROOT, TPU

FILE = """
import os, signal, time, unittest
DEVICE = os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"]

class Test(unittest.TestCase):
    def test_a_passes(self):
        pass

    def test_b_crashes(self):
        if DEVICE != "cpu":
            os.kill(os.getpid(), signal.SIGSEGV)

    def test_c_fails_on_both(self):
        raise ValueError("both")

    def test_d_fails(self):
        if DEVICE != "cpu":
            raise ValueError("only on tpu")

    def test_e_hangs(self):
        if DEVICE != "cpu":
            time.sleep(1000)

    def test_f_is_skipped(self):
        self.skipTest("not here")

    def test_g_passes(self):
        pass
"""


def run(folder: Path, environment: dict[str, str], **asked: object) -> dict[str, Outcome]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environment}
    return run_file(Request(folder / "test_file.py", **asked), variables, seconds=3)


def test_the_outcomes_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "test_file.py"
    file.write_text(FILE)
    cpu = run(tmp_path, CPU)
    assert {name: each.outcome for name, each in cpu.items() if each.outcome != "passed"} == {
        "Test::test_c_fails_on_both": "failed",
        "Test::test_f_is_skipped": "skipped",
    }
    expected = tuple(name for name, outcome in cpu.items() if outcome.outcome == "passed")
    file.write_text(f"{FILE}\ndel Test.test_a_passes\n")
    comparison = Comparison("test_file.py", cpu, run(tmp_path, TPU, only=expected))
    assert {outcome.name: outcome.outcome for outcome in comparison.expected} == {
        "Test::test_a_passes": "missing",
        "Test::test_b_crashes": "crash",
        "Test::test_d_fails": "failed",
        "Test::test_e_hangs": "hang",
        "Test::test_g_passes": "passed",
    }
    report = Report("strict", {"*::*_d_*": "known", "*::*_g_*": "stale"}, is_whole=True)
    report.add(comparison)
    assert [outcome.name for outcome in report.unexplained(comparison)] == [
        "Test::test_b_crashes",
        "Test::test_e_hangs",
    ]
    assert report.stale == ["*::*_g_*"]
    assert "ValueError: only on tpu" in report.page(["test_file.py"])


def test_a_file_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "test_file.py").write_text("import no_such_module")
    (outcome,) = run(tmp_path, CPU).values()
    assert "no_such_module" in outcome.message


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TestTorchPRIVATEUSE1::test_add_privateuse1_float32", "TestTorchCPU::test_add_cpu_float32"),
        ("TestTorchTPU::test_add_tpu", "TestTorchCPU::test_add_cpu"),
        ("TestTorch::test_tpu_names", "TestTorch::test_cpu_names"),
        ("TestTorch::test_output", "TestTorch::test_output"),
    ],
)
def test_names_on_the_cpu(name: str, expected: str) -> None:
    assert on_cpu(name) == expected


def test_a_draw_is_the_same_everywhere() -> None:
    names = [f"test_{number}" for number in range(100)]
    assert drawn(names, 5, seed=1) == drawn(names[::-1], 5, seed=1)
    assert drawn(names, 5, seed=1) != drawn(names, 5, seed=2)


def test_files_are_listed_once() -> None:
    assert len(set(DEVICE.files)) == len(DEVICE.files)


CLIENT = """
import unittest
import torch
import test_torchinductor
from torch.utils._pallas import has_tpu_pallas

if test_torchinductor.RUN_TPU and has_tpu_pallas():
    from torch_tpu import api
    from torch_tpu._internal.pallas import tpu_torch_pallas

    class Tests(unittest.TestCase):
        def test_passes(self):
            self.assertEqual(api.tpu_device(), torch.device("tpu"))
            self.assertFalse(tpu_torch_pallas.lookup_custom_kernel("none", "none"))

        def test_fails(self):
            raise ValueError("not listed")

        @unittest.skip("by the file")
        def test_is_skipped(self):
            pass
"""


def test_a_client_of_kernels(tmp_path: Path) -> None:
    """A checkout with a file of the form of PyTorch's: what it skips is not expected to pass."""
    pytest.importorskip("jax")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_pallas.py").write_text(CLIENT)
    options = kernels.parser().parse_args(["--folder", str(tmp_path / "results")])
    comparison = kernels.judge("client", tmp_path, "test/test_pallas.py", options)
    assert comparison.counts["passed"] == 1
    assert [(outcome.name, outcome.outcome) for outcome in comparison.bad] == [("Tests::test_fails", "failed")]
    assert "not listed" in comparison.bad[0].message


COMPILED = """
import unittest
import torch
from torch._inductor.compile_fx import complex_memory_overlap
from torch.testing._internal.inductor_utils import GPU_TYPE, HAS_CPU, HAS_GPU

class GPUTests(unittest.TestCase):
    def test_passes_tpu(self):
        self.assertEqual((GPU_TYPE, HAS_CPU, HAS_GPU), ("tpu", False, True))
        x = torch.ones(3, device=GPU_TYPE)
        self.assertEqual(torch.compile(torch.neg, backend="inductor")(x).tolist(), [-1.0] * 3)

    def test_fails_tpu(self):
        raise ValueError("not listed")

class TestsOfGeneratedCode(unittest.TestCase):
    def test_code(self):
        raise ValueError("not run")
"""


def test_a_file_of_inductors(tmp_path: Path) -> None:
    """The tests of its generated code are left out."""
    (tmp_path / "test_compiled.py").write_text(COMPILED)
    options = inductor.parser().parse_args(["--folder", str(tmp_path / "results")])
    comparison = inductor.judge(tmp_path, "test_compiled.py", options)
    assert comparison.counts["passed"] == 1
    assert [(outcome.name, outcome.outcome) for outcome in comparison.bad] == [("GPUTests::test_fails_cpu", "failed")]
