"""PyTorch's own tests of torch.distributed, as a judge from outside: `make judge-distributed`.

    python -m tests.distributed.judge FOLDER [--files '_tensor/*'] [--tests REGEX]

FOLDER holds PyTorch's `test` folder; none of it is part of this repository. Each file runs twice: with CPU and Gloo,
where torchtpu is not loaded, and with torchtpu, where the harness takes "tpu" as the device. The installed torch may
be newer than the tests, so what counts is how much of what passes on the CPU passes on "tpu". `judge.toml` has a
reason for each test that does not; one without a reason fails the command.
"""

from __future__ import annotations

import argparse
import fnmatch
import multiprocessing
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from multiprocessing import context
from pathlib import Path
from typing import Any

import tomllib

# Files whose tests ask the harness for the device instead of naming CUDA.
FILES = (
    "_tensor/debug/test_comm_mode.py",
    "_tensor/debug/test_op_coverage.py",
    "_tensor/test_api.py",
    "_tensor/test_common_rules.py",
    "_tensor/test_convolution_ops.py",
    "_tensor/test_dtensor.py",
    "_tensor/test_embedding_ops.py",
    "_tensor/test_experimental_ops.py",
    "_tensor/test_init.py",
    "_tensor/test_math_ops.py",
    "_tensor/test_matrix_ops.py",
    "_tensor/test_op_strategy.py",
    "_tensor/test_optimizers.py",
    "_tensor/test_pointwise_ops.py",
    "_tensor/test_random_ops.py",
    "_tensor/test_redistribute.py",
    "_tensor/test_tensor_ops.py",
    "_tensor/test_utils.py",
    "_tensor/test_view_ops.py",
    "_composable/fsdp/test_fully_shard_init.py",
    "_composable/fsdp/test_fully_shard_state_dict.py",
    "_composable/fsdp/test_fully_shard_training.py",
    "_composable/test_checkpoint.py",
    "_composable/test_contract.py",
    "_composable/test_replicate.py",
    "checkpoint/test_checkpoint.py",
    "checkpoint/test_dedup_tensors.py",
    "checkpoint/test_dtensor_checkpoint.py",
    "checkpoint/test_dtensor_resharding.py",
    "checkpoint/test_file_system_checkpoint_cpu.py",
    "checkpoint/test_format_utils.py",
    "checkpoint/test_nested_dict.py",
    "checkpoint/test_planner.py",
    "checkpoint/test_save_load_api.py",
    "checkpoint/test_state_dict.py",
    "checkpoint/test_state_dict_utils.py",
    "checkpoint/test_tp_checkpoint.py",
    "checkpoint/test_traverse.py",
    "checkpoint/test_utils.py",
    "pipelining/test_backward.py",
    "pipelining/test_microbatch.py",
    "pipelining/test_pipe.py",
    "pipelining/test_schedule.py",
    "pipelining/test_stage.py",
    "pipelining/test_transformer.py",
    "pipelining/test_unflatten.py",
    "tensor/parallel/test_parallelize_api.py",
    "tensor/parallel/test_tp_examples.py",
    "tensor/parallel/test_tp_random_state.py",
    "tensor/parallel/test_tp_style.py",
    "test_c10d_common.py",
    "test_c10d_functional_native.py",
    "test_c10d_object_collectives.py",
    "test_collective_utils.py",
    "test_device_mesh.py",
    "test_functional_api.py",
)
DEVICES = {
    "cpu": {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    # The harness asks whether there are as many devices as ranks.
    "tpu": {"TORCHTPU_NUM_DEVICES": "4", "PYTORCH_TESTING_DEVICE_ONLY_FOR": "privateuse1"},
}
ROOT = Path(__file__).parents[2]
REASONS = Path(__file__).with_name("judge.toml")


class Harness(MetaPathFinder, Loader):
    """Imports the harness of PyTorch's DTensor tests, and lets them ask for this device's backend by its name in full:
    of other backends the harness only knows some by name."""

    NAME = "torch.testing._internal.distributed._tensor.common_dtensor"

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.NAME:
            return None
        found = PathFinder.find_spec(name, path)
        assert found is not None
        assert found.loader is not None
        self.loader = found.loader
        found.loader = self
        return found

    def create_module(self, spec: ModuleSpec) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.loader.exec_module(module)
        module.DTensorTestBase.backend = property(
            lambda test: "gloo" if test.device_type == "cpu" else f"cpu:gloo,{test.device_type}:tpu"
        )


if "TORCHTPU_NUM_DEVICES" in os.environ and "PYTORCH_TESTING_DEVICE_ONLY_FOR" in os.environ:
    sys.meta_path.insert(0, Harness())


def pytest_configure() -> None:
    """The tests start each rank as a process that imports torch anew. Here they are forks of one that has imported it,
    which takes a tenth of the time. (This module is a plugin of the pytest that runs them.)"""
    multiprocessing.set_forkserver_preload(
        [__name__, "torch", "torch.distributed.tensor", "torch.distributed.fsdp", "numpy"]
    )
    context.SpawnProcess._Popen = staticmethod(context.ForkServerProcess._Popen)  # type: ignore[attr-defined]


def outcomes(folder: Path, file: str, device: str, only: str, seconds: float) -> dict[str, str]:
    """What came of each test of a file: "passed", "skipped", or the message of its failure."""
    tests = folder / "distributed"
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        pytest = [
            "-m",
            "pytest",
            "-q",
            "--noconftest",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.distributed.judge",
            "-o",
            "addopts=",
        ]
        command = [sys.executable, *pytest, f"--junitxml={report}", "-k", only, str(tests / file)]
        path = os.pathsep.join(filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **DEVICES[device]}
        try:
            finished = subprocess.run(
                command, env=environment, cwd=place, capture_output=True, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return {f"{file}::": f"not done in {seconds:.0f} s"}
        if not report.exists():
            return {f"{file}::": "\n".join(finished.stdout.splitlines()[-3:]) or f"status {finished.returncode}"}
        found = {}
        for case in ElementTree.parse(report).iter("testcase"):
            name = f"{file}::{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
            bad = next((each for each in case if each.tag in ("failure", "error")), None)
            if bad is not None:
                found[name] = (bad.get("message") or "failed") + "\n" + (bad.text or "")
            else:
                found[name] = "skipped" if case.find("skipped") is not None else "passed"
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", default="*", help="a pattern of files")
    parser.add_argument("--tests", default="", help="pytest's -k")
    parser.add_argument("--seconds", type=float, default=1800, help="the most that a file may take on one device")
    parser.add_argument("--verbose", action="store_true", help="print the messages of failures")
    options = parser.parse_args()
    reasons: dict[str, list[str]] = tomllib.loads(REASONS.read_text())
    whole = passes = unexplained = 0
    for file in (file for file in FILES if fnmatch.fnmatch(file, options.files)):
        cpu, tpu = (outcomes(options.folder, file, device, options.tests, options.seconds) for device in DEVICES)
        expected = [name for name, outcome in cpu.items() if outcome == "passed"]
        # The classes of some tests have the device in their names.
        found = {name.replace("PRIVATEUSE1", "CPU").replace("_privateuse1", "_cpu"): each for name, each in tpu.items()}
        differing = [name for name in expected if found.get(name) != "passed"]
        whole, passes = whole + len(expected), passes + len(expected) - len(differing)
        print(f"{file}: {len(expected) - len(differing)} of {len(expected)}", flush=True)
        for name in differing:
            outcome = found.get(name) or found.get(f"{file}::") or "not there"
            why = [reason for reason, names in reasons.items() if any(fnmatch.fnmatch(name, each) for each in names)]
            unexplained += not why
            print(f"  {name}: {why[0] if why else outcome.strip().splitlines()[0]}")
            if options.verbose and not why:
                print(outcome)
    print(f"{passes} of {whole} that pass with CPU and Gloo pass on tpu ({passes / max(whole, 1):.1%})")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
