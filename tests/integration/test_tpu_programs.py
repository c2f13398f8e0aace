"""The programs of the demo and of compiled models are valid TPU programs: libtpu compiles each, without a TPU."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torchtpu.export

from tests import small_models
from tests.settings import SEED, without_quick_compiles

ROOT = Path(__file__).parents[2]
# Dynamo and libtpu take seconds for each; the others are slow tests.
QUICK = ("mlp", "gpt")
TOPOLOGIES = ("v5e:1x1", "v6e:1x1")

# An epoch of the demo, with evaluation. Arguments: the mode and the folder for the programs.
TRAIN = """
import sys, torch, digits
from torchtpu import _C
torch.tpu.eager_mode = sys.argv[1]
_C.dump_programs(sys.argv[2])
digits.train(sys.argv[1], torch.device("tpu"), epochs=1, batch_size=64, seed=0)
"""

# Compiled training steps of a model. Arguments: the model, the dtype of its parameters, the folder for the programs.
STEP = """
import os, sys
os.environ["TORCHTPU_TARGET"] = "tpu"
import torch
from tests.small_models import TASKS
from torchtpu import _C
_C.dump_programs(sys.argv[3])
task = TASKS[sys.argv[1]]
dtype = getattr(torch, sys.argv[2])
model = task.model().to("tpu", dtype)
optimizer = torch.optim.AdamW(model.parameters())
model = torch.compile(model)

@torch.tpu.compile_step
def step(inputs, target):
    optimizer.zero_grad()
    loss = task.loss(model(*inputs).float(), target)
    loss.backward()
    optimizer.step()
    return loss.detach()

for _ in range(2):
    inputs, target = task.batch()
    step([each.to("tpu", dtype if each.is_floating_point() else None) for each in inputs], target.to("tpu"))
torch.tpu.synchronize()
"""

# Compiles each program of a folder for each topology. Prints one line of JSON for each.
COMPILE = """
import json, pathlib, sys, time
from concurrent.futures import ThreadPoolExecutor
from torchtpu import _C

def compile(job):
    path, topology = job
    start = time.perf_counter()
    try:
        report = _C.compile_ahead(path.read_text(), topology)
    except RuntimeError as error:
        report = {"error": f"{type(error).__name__}: {error}"}
    report["seconds"] = time.perf_counter() - start
    return {"program": path.name, "topology": topology, **report}

paths = sorted(pathlib.Path(sys.argv[1]).iterdir(), key=lambda path: -path.stat().st_size)
with ThreadPoolExecutor(2) as threads:
    for report in threads.map(compile, [(path, topology) for path in paths for topology in sys.argv[2:]]):
        print(json.dumps(report), flush=True)
"""

# The number of conformance cases, which are drawn, and the cases on which the compiler has crashed before.
SAMPLE = 12
DIED = ("logcumsumexp/bfloat16/forward/v6e",)

pytestmark = [
    pytest.mark.tpu_compiler,
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ,
        reason="libtpu is not installed: pip install libtpu",
    ),
]


def run_python(
    code: str, *arguments: str | Path, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Runs code in another process with empty caches, so that a crash of the compiler affects nothing else."""
    paths = [ROOT, ROOT / "examples", *filter(None, [environment.get("PYTHONPATH")])]
    environment = {**environment, "PYTHONPATH": os.pathsep.join(map(str, paths)), "TPU_LOG_DIR": "disabled"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def compile_ahead(folder: Path, *topologies: str) -> tuple[dict[tuple[str, str], dict[str, Any]], str]:
    """libtpu's report on each program for each topology, and its stderr."""
    finished = run_python(COMPILE, folder, *topologies, environment=without_quick_compiles(os.environ))
    reports = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    return {(report["program"], report["topology"]): report for report in reports}, finished.stderr


def check_programs(folder: Path) -> None:
    """Compiles each program of a folder with libtpu and prints the estimates."""
    programs = sorted(folder.iterdir())
    assert programs

    reports, stderr = compile_ahead(folder, *TOPOLOGIES)
    refused = []
    print(f"\n{'for':<9}{'flops':>12}{'bytes':>12}{'peak bytes':>12}{'seconds':>9}  operators")
    for topology in TOPOLOGIES:
        for path in programs:
            report = reports.get((path.name, topology), {"error": f"libtpu died before it was done:\n{stderr[-2000:]}"})
            if "error" in report:
                refused.append(f"{topology} refuses {path} ({first_line(path)}): {report['error']}")
                continue
            flops, traffic = report["flops"] or 0, report["bytes_accessed"] or 0
            numbers = f"{flops:>12.4g}{traffic:>12.4g}{report['peak_bytes']:>12}{report['seconds']:>9.2f}"
            print(f"{topology:<9}{numbers}  {first_line(path)}")
            assert report["peak_bytes"] > 0
    assert not refused, "\n".join(refused)


def first_line(path: Path) -> str:
    """The operators in a program."""
    return path.read_text().partition("\n")[0].removeprefix("// ")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_the_demo_compiles_for_tpus(mode: str, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the demo trains on scikit-learn's digits")
    pytest.importorskip("tqdm", reason="the demo shows its progress with tqdm")
    finished = run_python(TRAIN, mode, tmp_path)
    assert finished.returncode == 0, finished.stderr
    check_programs(tmp_path)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=() if task in QUICK else pytest.mark.slow) for task in small_models.TASKS]
)
def test_compiled_models_compile_for_tpus(task: str, tmp_path: Path) -> None:
    finished = run_python(STEP, task, "float32", tmp_path)
    assert finished.returncode == 0, finished.stderr
    check_programs(tmp_path)


@pytest.mark.timeout(900)
def test_a_step_in_bfloat16_compiles_for_tpus(tmp_path: Path) -> None:
    """The compiler for v5e takes no product of bfloat16 in the highest precision if it fuses it in some ways."""
    finished = run_python(STEP, "gpt", "bfloat16", tmp_path)
    assert finished.returncode == 0, finished.stderr
    check_programs(tmp_path)


def test_what_a_tpu_cannot_run_is_refused(tmp_path: Path) -> None:
    """The compiler is real: it knows the memory and the features of the chips."""

    def write(name: str, dims: str, operation: str) -> None:
        ty = f"tensor<{dims}xf32>"
        text = f"func.func @main(%a: {ty}) -> {ty} {{\n%b = {operation}(%a) : ({ty}) -> {ty}\nreturn %b : {ty}\n}}\n"
        (tmp_path / name).write_text(text)

    write("fits", "8x128", '"stablehlo.negate"')
    write("too large", "1048576x16384", '"stablehlo.negate"')
    write("unknown", "8x128", "stablehlo.custom_call @no_such_kernel")

    reports, stderr = compile_ahead(tmp_path, "v6e:1x1", "v6e")
    assert len(reports) == 6, stderr
    fits = reports["fits", "v6e:1x1"]
    assert (fits["device"], fits["flops"]) == ("TPU v6 lite", 1024)
    assert (fits["argument_bytes"], fits["output_bytes"], fits["peak_bytes"]) == (4096, 4096, 8192)
    assert "OutOfMemoryError" in reports["too large", "v6e:1x1"]["error"]
    assert "no_such_kernel" in reports["unknown", "v6e:1x1"]["error"]
    assert "topology name v6e is invalid" in reports["fits", "v6e"]["error"]


def test_a_sample_of_the_conformance_cases_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make conformance-tpu` compiles them all."""
    from tests.conformance import ahead
    from tests.conformance.cases import Case, cases
    from tests.conformance.exceptions import expected_failure
    from tests.conformance.workers import Settings, run_all

    # For the worker's process. The device of this process may be open.
    monkeypatch.setenv("TORCHTPU_TARGET", "tpu")
    dtypes = ("float32", "bfloat16", "int64", "int32")
    everything = [*cases(dtypes=dtypes, directions=ahead.DIRECTIONS, modes=("v5e", "v6e"))]
    drawn = [*random.Random(SEED).sample(everything, SAMPLE), *map(Case.parse, DIED)]
    verdicts = run_all(drawn, 1, 300, Settings(ahead.INPUTS, 0))
    refused = [verdict for verdict in verdicts if verdict.is_failure and not expected_failure(verdict.case)]
    assert not refused, f"TORCHTPU_TEST_SEED={SEED} repeats this: {refused}"


@pytest.mark.timeout(300)
def test_exported_programs(tmp_path: Path) -> None:
    """Written for a TPU: products of int64 matrices, and sizes that change up to a bound."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ((x @ x.t()).float() / x.shape[0]).softmax(0)

    dims = ({0: torch.export.Dim("batch", min=2, max=16)},)
    program = torch.export.export(Model(), (torch.randint(0, 9, (4, 3)),), dynamic_shapes=dims)
    (tmp_path / "program").write_text(torchtpu.export.to_stablehlo(program, platform="tpu").text)
    check_programs(tmp_path)
