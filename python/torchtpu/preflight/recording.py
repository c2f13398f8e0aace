"""Runs a script, or a function, on a device that computes nothing, and keeps the programs of its steps."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtpu import _C, tpu
from torchtpu.preflight.mesh import Mesh, Sent, ranks
from torchtpu.preflight.modules import ModuleNames, Storage
from torchtpu.preflight.storages import Makers, calls_of
from torchtpu.preflight.weights import UntouchedWeights
from torchtpu.scripts import run_script
from torchtpu.tpu.explanation import Explanation

DRY = "TORCHTPU_DRY"
READS = ("the host reads a tensor", "the data decide the size of a result")

# A program with fewer calls beside the largest is a read or an upload: it is not judged.
_SMALL = 0.02


class _EnoughError(BaseException):
    """Ends the script: enough steps were seen."""


@dataclasses.dataclass
class Program:
    """A program of a step, and what is known of its operators, inputs and results."""

    text: str
    calls: list[tuple[str, str, str]]
    """For each call in `@main`: operator, line and module; of the last run in a step."""
    inputs: list[Storage]
    results: list[Storage]
    others: list[tuple[Storage, int]]
    """The storages that live on beside a run of it, with their bytes: of the run in a step with the most."""
    runs: int = 1
    """How often it runs in a step."""
    each_run: list[list[tuple[str, str, str]]] = dataclasses.field(default_factory=list)
    """The calls as those runs made them: alike layers run one program. Empty if all are like the last."""

    @property
    def calls_of_runs(self) -> list[list[tuple[str, str, str]]]:
        """For each run in a step its calls."""
        return self.each_run or [self.calls] * self.runs


@dataclasses.dataclass
class Recording:
    """What a script did."""

    programs: list[Program]
    """Those of one step, the most operators first."""
    steps: int
    """How many steps were seen: those of optimizers, or forward passes in a script that makes no optimizer."""
    reads: list[tuple[str, int]]
    """The lines that read invented values, with the number of reads."""
    recompiles: list[tuple[str, list[str]]]
    """After the first step: lines at which programs were new, with the reasons."""
    failure: str = ""
    """What the script failed with."""
    stopped: bool = False
    """Whether it was ended after its steps."""
    taken: tuple[str, float] = ("samples", 0.0)
    """What the models took in a step: the unit, "tokens", "images" or "samples", and how many."""
    rows: int = 0
    """The most examples that a model took in one call: the size of the batch."""
    sent: list[Sent] = dataclasses.field(default_factory=list)
    """The collectives of rank 0 of a mesh."""


def prepare(topology: str, assume: Mapping[str, int] | None = None) -> None:
    """Makes the device of this process a dry one, which gives the numbers of `assume` at their lines. RuntimeError if
    the process has used the device."""
    if _C.is_initialized():
        raise RuntimeError("preflight needs a process that has not used the device yet")
    os.environ[DRY] = topology
    _C.assume(list((assume or {}).items()))
    # The Trainer of transformers asks accelerate, which knows the device by this variable alone.
    os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "tpu")


def record_script(
    path: str, arguments: Sequence[str], steps: int, seconds: float, mode: str, mesh: Mesh | None = None
) -> Recording:
    """Runs a script until it ends, until `steps` optimizer steps were seen, or for so many `seconds`."""
    return record(lambda: run_script(path, arguments), steps, seconds, mode, mesh)


def record(run: Callable[[], Any], steps: int, seconds: float, mode: str, mesh: Mesh | None = None) -> Recording:
    """Calls a function and keeps what it did on the device, as rank 0 of a mesh if there is one."""
    failure, stopped = "", False

    def end_after(done: int) -> None:
        if done >= steps:
            _stop()

    tpu.set_eager_mode(mode)
    names = ModuleNames(end_after)
    explanation = Explanation()
    # The alarm raises in the main thread; on another one, scripts end by their steps alone.
    alarm = signal.getsignal(signal.SIGALRM)
    with names, UntouchedWeights(), ranks(mesh, names) as sent:
        _C.begin_explaining(True)
        began = time.monotonic()
        try:
            signal.signal(signal.SIGALRM, _stop)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            run()
        except _EnoughError:
            stopped = True
        except SystemExit as end:
            failure = "" if end.code in (None, 0) else f"the script ended with {end.code}"
        except Exception as error:
            failure = "".join(traceback.format_exception_only(error)).strip()
            traceback.print_exc()
        finally:
            ended = time.monotonic() - began
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
            explanation._fill(_C.end_explaining())
    ends = [end - began for end in names.step_ends]
    recorded = _recording(explanation, names, failure, stopped, ended, ends)
    recorded.sent = sent
    return recorded


def _stop(*_: Any) -> None:
    """Ends the script, after its last step or at its time limit."""
    # The exception ends the functions that hold the results. Programs without results do not run.
    tpu.synchronize()
    raise _EnoughError


def _recording(
    explanation: Explanation, names: ModuleNames, failure: str, stopped: bool, ended: float, ends: Sequence[float]
) -> Recording:
    numbers, rounds = explanation.rhythm()
    stepped = _last_step(explanation, ends)
    if _size(explanation, stepped) > _size(explanation, numbers):
        # The runs that repeat are a part of a step: a layer, or a batch whose gradients are added up. Or they came
        # before it: an optimizer's first states are made alike.
        numbers, rounds = stepped, 1
    if not rounds:
        # Nothing repeats: everything counts as one step.
        numbers = [run["program"] for run in explanation.runs]
    counts = Counter(numbers)
    programs = _programs(explanation, names, counts)
    programs.sort(key=lambda program: -len(program.calls))
    programs = [program for program in programs if len(program.calls) >= _SMALL * len(programs[0].calls)]
    reads = Counter(wait["line"] for wait in explanation.waits if wait["reason"] in READS)
    first = min((run["flushed"] for run in explanation.runs if run["program"] in counts), default=0.0)
    # What preflight itself runs at the end is none of them.
    late = [each for each in explanation.compiles if rounds and first < each["at"] < ended]
    late = [each for each in late if each["program"] not in counts]
    return Recording(
        programs,
        names.steps,
        reads.most_common(),
        [(each["line"], list(each["why"])) for each in late],
        failure,
        stopped,
        _per_step(names),
        names.rows,
    )


def _last_step(explanation: Explanation, ends: Sequence[float]) -> list[int]:
    """The programs that ran between the ends of the last two optimizer steps. What a step leaves for later runs in the
    next one, so that these are those of a step. Empty for one step."""
    if len(ends) < 2:
        return []
    return [run["program"] for run in explanation.runs if ends[-2] <= run["flushed"] < ends[-1]]


def _size(explanation: Explanation, numbers: Sequence[int]) -> int:
    """The operators of programs together."""
    return sum(explanation.programs[number]["text"].count("func.call @") for number in numbers)


def _per_step(names: ModuleNames) -> tuple[str, float]:
    """The unit that the models took most of, and how many in a step."""
    unit, count = max(names.taken.items(), key=lambda each: each[1], default=("samples", 0))
    return unit, count / max(1, names.steps)


def _programs(explanation: Explanation, names: ModuleNames, counts: Counter[int]) -> list[Program]:
    """Programs as their last runs were, with the number of runs in a step."""
    of_program: defaultdict[int, list[int]] = defaultdict(list)
    for index, run in enumerate(explanation.runs):
        of_program[run["program"]].append(index)
    # For each program the values beside one run: the run with the most bytes of such values.
    beside: dict[int, list[tuple[Storage, int]]] = {}
    makers = Makers(explanation.programs, names)
    programs = []
    for index, run in enumerate(explanation.runs):
        number = run["program"]
        makers.follow(run)
        if number not in counts:
            continue
        if run["others"] is not None:
            beside[number] = makers.others(run["others"])
        if of_program[number][-1] != index:
            continue
        found = explanation.programs[number]
        each_run = [calls_of(found, explanation.runs[other]) for other in of_program[number][-counts[number] :]]
        inputs = [makers.at(address) for address in run["input_addresses"]]
        results = [makers.at(address) for address in run["result_addresses"]]
        beside_it = beside.pop(number)
        programs.append(Program(found["text"], each_run[-1], inputs, results, beside_it, counts[number], each_run))
    return programs
