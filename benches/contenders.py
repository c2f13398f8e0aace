"""The contenders: each is a process with its own environment, which does a round on request.

Rounds of different contenders alternate in one run, so that changes of the machine's speed affect all of them.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venv-peers"
ANSWER = "ANSWER "

Answer = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Contender:
    """A system in one of its modes."""

    name: str
    system: str  # "torchtpu", "torch_tpu", "torch_xla", "jax", "cpu" or "cuda"
    mode: str = ""
    checkout: Path = ROOT
    """The folder that torchtpu is taken from."""
    platform: str = "cpu"
    """What it runs on: "cpu" or "cuda"."""


CONTENDERS = [
    Contender("torchtpu strict", "torchtpu", "strict"),
    Contender("torchtpu fused", "torchtpu", "fused"),
    Contender("torchtpu debug", "torchtpu", "debug"),
    Contender("torchtpu compile", "torchtpu", "compile"),
    Contender("torch CPU", "cpu"),
    Contender("torch_tpu strict", "torch_tpu", "DEFER_NEVER"),
    Contender("torch_tpu fused", "torch_tpu", "DEFER_AND_FUSE"),
    Contender("torch_xla", "torch_xla"),
    Contender("JAX jit", "jax"),
]

# On a CUDA GPU, all with the packages of this environment.
ON_CUDA = [
    *(dataclasses.replace(each, platform="cuda") for each in CONTENDERS if each.system in ("torchtpu", "jax")),
    Contender("torch CUDA", "cuda", platform="cuda"),
    Contender("torch CUDA compile", "cuda", "compile", platform="cuda"),
]

# The packages of each peer's environment. torch_tpu uses the torch of .venv; torch_xla needs its own.
REQUIREMENTS = {
    "torch_tpu": ["torch_tpu==0.2.0", "xla_cpu_pjrt"],
    "torch_xla": ["torch==2.9.0", "torch_xla==2.9.0", "numpy"],
    "jax": ["jax", "jaxlib", "xla_cpu_pjrt"],
}


def set_up(system: str, platform: str = "cpu") -> Path:
    """The interpreter of a system's environment. The first call creates it."""
    if system in ("torchtpu", "cpu") or platform == "cuda":
        return Path(sys.executable)
    folder = ENVIRONMENTS / system
    python, ready = folder / "bin" / "python", folder / ".ready"
    requirements = "\n".join(REQUIREMENTS[system])
    if ready.exists() and ready.read_text() == requirements:
        return python
    print(f"setting up {system} in {folder.relative_to(ROOT)} ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    if system == "torch_tpu":
        import torch

        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        shared = folder / "lib" / version / "site-packages" / "_shared_torch.pth"
        shared.write_text(f"{Path(torch.__file__).parent.parent}\n")
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS[system]], check=True)
    ready.write_text(requirements)
    return python


def cpu_plugin() -> str:
    """The path of XLA's CPU plugin."""
    import xla_plugins.xla_cpu_pjrt as package

    return str(Path(next(iter(package.__path__))) / "xla_cpu_pjrt.so")


def environment_of(
    system: str, threads: int, cache: Path, checkout: Path = ROOT, platform: str = "cpu"
) -> dict[str, str]:
    """The variables of a contender's process. `cache` is its folder for compiled programs, if it has one."""
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        # The peers share our site-packages: only our own process may load our backend.
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "PYTHONPATH": str(ROOT / "benches"),
    }
    if system == "torchtpu":
        variables["PYTHONPATH"] = os.pathsep.join([str(checkout / "python"), variables["PYTHONPATH"]])
        variables["TORCHTPU_CACHE_DIR"] = str(cache)
    if platform == "cuda":
        # PyTorch's products of float32 are exact by default, JAX's are not.
        jax = {
            "JAX_PLATFORMS": "cuda",
            "JAX_DEFAULT_MATMUL_PRECISION": "highest",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        return variables | jax | {"TORCHTPU_PLATFORM": "cuda"}
    plugin = cpu_plugin()
    if system == "torchtpu":
        variables["TORCHTPU_PLUGIN"] = plugin
        variables["TORCHTPU_NUM_DEVICES"] = "1"
    elif system == "torch_tpu":
        variables["TPU_LIBRARY_PATH"] = plugin
        # It asks for tcmalloc, and gets it if the machine has it.
        library = ctypes.util.find_library("tcmalloc_minimal") or ctypes.util.find_library("tcmalloc")
        if library:
            variables["LD_PRELOAD"] = library
    elif system == "torch_xla":
        variables["PJRT_DEVICE"] = "CPU"
    elif system == "jax":
        variables["PJRT_NAMES_AND_LIBRARY_PATHS"] = f"bench:{plugin}"
        variables["JAX_PLATFORMS"] = "bench"
    return variables


class Process:
    """A running contender. `ask` makes it do one round."""

    def __init__(self, contender: Contender, script: Path, work: str, threads: int, cache: Path) -> None:
        self.contender = contender
        self.errors: list[str] = []
        self._process = subprocess.Popen(
            [
                str(set_up(contender.system, contender.platform)),
                *(str(script), "--serve", contender.system, contender.mode, work),
            ],
            env=environment_of(contender.system, threads, cache, contender.checkout, contender.platform),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self) -> Answer:
        """One round. Raises RuntimeError with the end of the process's output if it has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        assert self._process.stderr is not None
        last = self._process.stderr.read().strip().splitlines()[-1:] or ["it ended without a word"]
        raise RuntimeError(last[0])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def serve(round_of_work: Callable[[], Answer]) -> None:
    """The other side of `Process.ask`: writes one answer per line of input."""
    for _ in sys.stdin:
        print(ANSWER + json.dumps(round_of_work()), flush=True)


def alternate(contenders: list[Contender], script: Path, work: str, rounds: int, threads: int) -> dict[str, Answer]:
    """Several rounds of every contender, in turn. Returns the median of each figure. Failures are reported and
    left out.

    The cache is empty at first. "first_ms", if a round has it, is measured again in further processes of
    contenders that keep programs, as "warm_ms".
    """
    with tempfile.TemporaryDirectory(prefix="torchtpu-bench-") as folder:
        caches = {contender.name: Path(folder) / contender.name.replace(" ", "-") for contender in contenders}
        answers = _alternate(contenders, script, work, rounds, threads, caches)
        for contender in contenders:
            answer = answers.get(contender.name, {})
            if contender.system != "torchtpu" or "first_ms" not in answer:
                continue
            firsts = []
            for _ in range(rounds):
                process = Process(contender, script, work, threads, caches[contender.name])
                firsts.append(process.ask()["first_ms"])
                process.close()
            answer["warm_ms"] = statistics.median(firsts)
    return answers


def _alternate(
    contenders: list[Contender], script: Path, work: str, rounds: int, threads: int, caches: dict[str, Path]
) -> dict[str, Answer]:
    processes: list[Process] = []
    answers: dict[str, list[Answer]] = {}
    try:
        for contender in contenders:
            try:
                process = Process(contender, script, work, threads, caches[contender.name])
                process.ask()  # warms up
                processes.append(process)
                answers[contender.name] = []
            except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                print(f"{contender.name} is left out: {error}", file=sys.stderr)
        for _ in range(rounds):
            for process in list(processes):
                try:
                    answers[process.contender.name].append(process.ask())
                except RuntimeError as error:
                    print(f"{process.contender.name} stopped: {error}", file=sys.stderr)
                    processes.remove(process)
    finally:
        for process in processes:
            process.close()
    return {name: _medians(each) for name, each in answers.items() if each}


def _medians(answers: list[Answer]) -> Answer:
    return {
        key: None if value is None else statistics.median(answer[key] for answer in answers)
        for key, value in answers[0].items()
    }


def chosen(peers: str, against: Path | None = None, platform: str = "cpu") -> list[Contender]:
    """Our contenders and, unless `peers` is "none", those of "all" or of a comma-separated list of systems.

    `against` is a checkout of another commit, built there by `make build PROFILE=release`. Its contenders are called
    "before".
    """
    everyone = ON_CUDA if platform == "cuda" else CONTENDERS
    ours = ("torchtpu", "cpu")
    known = {each.system for each in everyone if each.system not in ours}
    wanted = {"none": set(), "all": known}.get(peers, set(peers.split(",")))
    if unknown := wanted - known:
        raise SystemExit(f"unknown peers: {', '.join(sorted(unknown))} (there are {', '.join(sorted(known))})")
    found = []
    for each in everyone:
        if each.system in ours or each.system in wanted:
            found.append(each)
        if against and each.system == "torchtpu":
            name = each.name.replace("torchtpu", "before")
            found.append(dataclasses.replace(each, name=name, checkout=against.resolve()))
    return found


def open_torch(system: str, mode: str) -> tuple[Any, Callable[[], None]]:
    """In a contender's process: the device, and a function that waits for it."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if system == "cpu":
        return torch.device("cpu"), lambda: None
    if system == "cuda":
        return torch.device("cuda"), torch.cuda.synchronize
    if system == "torchtpu":
        import torchtpu  # noqa: F401

        torch.tpu.eager_mode = "strict" if mode == "compile" else mode
        return torch.device("tpu"), torch.tpu.synchronize
    if system == "torch_tpu":
        import torch_tpu
        import torch_tpu._internal.utils.hardware as hardware
        import torch_tpu._loader
        from torch_tpu._internal.execution_mode import EagerMode

        # It refuses to start without a TPU, so it is told that it has one.
        hardware.get_tpu_device_count = lambda: 1
        torch_tpu._loader.load()
        torch.tpu.eager_mode = getattr(EagerMode, mode)
        return torch.device("tpu"), torch.accelerator.synchronize
    if system == "torch_xla":
        import torch_xla

        def wait() -> None:
            torch_xla.sync(wait=True)

        return torch_xla.device(), wait
    raise ValueError(system)


@contextlib.contextmanager
def quiet_collector() -> Iterator[None]:
    """Disables Python's garbage collector during a measurement."""
    import gc

    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
