"""Preflight from a recording to a report."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torchtpu.preflight import compiler, recording
from torchtpu.preflight.analysis import ROLES, Analysis, Part, analyze
from torchtpu.preflight.chips import Chip, find, topology_of
from torchtpu.preflight.recording import Recording

STEPS = 3
SECONDS = 600.0


@dataclasses.dataclass
class Report:
    """What preflight found. `str()` of it is the report as text, `as_dict()` its values for JSON."""

    chip: Chip
    topology: str
    recording: Recording
    analyses: list[Analysis]
    """One for each program of a step, the largest first."""
    problems: list[str]
    """Why a program could not be judged."""
    what_if: list[dict[str, Any]]

    @property
    def fits(self) -> bool | None:
        """Whether each program of a step fits the device; None if the compiler did not say."""
        if not self.analyses:
            return None
        return all(not each.out_of_memory and each.total_bytes <= self.chip.memory for each in self.analyses)

    @property
    def largest(self) -> Analysis | None:
        """The program that takes the most memory: what a step takes."""
        return max(self.analyses, key=lambda each: each.total_bytes, default=None)

    @property
    def step_seconds(self) -> tuple[float, float] | None:
        """What a step takes: at the best, and at the least that is expected. Without the host and its input."""
        pairs = list(self._with_runs())
        if not pairs:
            return None
        low, high = (sum(each.seconds[end] * runs for each, runs in pairs) for end in (0, 1))
        return low, high

    @property
    def mfu_bound(self) -> float | None:
        """The part of the chip's peak that the matrix products of a step can reach."""
        seconds = self.step_seconds
        if not seconds or not seconds[0]:
            return None
        return min(1.0, sum(each.flops_seconds * runs for each, runs in self._with_runs()) / seconds[0])

    def _with_runs(self) -> Iterator[tuple[Analysis, int]]:
        return zip(self.analyses, (program.runs for program in self.recording.programs), strict=False)

    @property
    def parts(self) -> list[Part]:
        """What each module costs in a step."""
        merged: dict[str, Part] = {}
        for analysis, runs in self._with_runs():
            for part in analysis.parts:
                known = merged.setdefault(part.name, Part(part.name, bound=part.bound))
                known.seconds = (known.seconds[0] + runs * part.seconds[0], known.seconds[1] + runs * part.seconds[1])
                known.flops += runs * part.flops
                known.memory_bytes += runs * part.memory_bytes
        return sorted(merged.values(), key=lambda part: -part.seconds[0])

    def as_dict(self) -> dict[str, Any]:
        """All of it, in values that JSON knows. Bytes and seconds."""
        largest = self.largest
        seconds = self.step_seconds
        return {
            "chip": self.topology,
            "fits": self.fits,
            "limit_bytes": self.chip.memory,
            "bytes": {"total": largest.total_bytes, **largest.bytes} if largest else dict.fromkeys(("total", *ROLES)),
            "owners": [dataclasses.asdict(owner) for owner in largest.owners[:50]] if largest else [],
            "step_seconds": list(seconds) if seconds else None,
            "mfu_bound": self.mfu_bound,
            "flops": sum(each.flops * runs for each, runs in self._with_runs()),
            "modules": [dataclasses.asdict(part) for part in self.parts],
            "padding": [dataclasses.asdict(owner) for owner in largest.padding[:10]] if largest else [],
            "rematerialized": largest.rematerialized if largest else None,
            "recompiles": [{"line": line, "argument": why} for line, why in self.recording.recompiles],
            "communication": [],
            "suggestions": [],
            "assumed": [{"line": line, "reads": reads} for line, reads in self.recording.reads],
            "what_if": self.what_if,
            "steps": self.recording.steps,
            "programs": [len(program.calls) for program in self.recording.programs],
            "problems": self.problems,
            "failure": self.recording.failure or None,
        }

    def __str__(self) -> str:
        from torchtpu.preflight.report import text

        return text(self)

    def html(self) -> str:
        """The report as one page of HTML that needs nothing else."""
        from torchtpu.preflight.page import page

        return page(self)


def preflight(
    function: Callable[..., Any],
    *args: Any,
    chip: str = "v5e",
    steps: int = STEPS,
    deep: bool = False,
    mode: str = "fused",
    time_limit: float = SECONDS,
) -> Report:
    """Calls `function(*args)`, which trains on "tpu", on a device that computes nothing, and reports what a TPU's
    compiler says of it.

    `chip` is a generation such as "v5e", or a topology of one chip. The call ends after `steps` optimizer steps. `deep`
    compiles to the end, which takes minutes, for the compiler's own estimate of cycles. `mode` is the eager mode.
    Values that the function reads from the device are invented; `assumed` lists the lines.

    The process must not have used the device before, and cannot compute on it afterwards: RuntimeError. ValueError for
    a chip that there is not. What the function raises is in the report.
    """
    topology = topology_of(chip)
    recording.prepare(topology)
    recorded = recording.record(lambda: function(*args), steps, time_limit, mode)
    return judge(recorded, topology, deep=deep, time_limit=time_limit)


def judge(
    recorded: Recording,
    topology: str,
    *,
    deep: bool = False,
    time_limit: float = SECONDS,
    what_if: Sequence[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Compiles the programs of a recording, and reports."""
    chip = find(topology)
    report = Report(chip, topology, recorded, [], [], [])
    _compile(report, deep, time_limit, progress)
    for name in what_if:
        other = Report(find(name), topology_of(name), recorded, [], [], [])
        _compile(other, False, time_limit, progress)
        seconds, largest = other.step_seconds, other.largest
        report.what_if.append(
            {
                "chip": other.topology,
                "fits": other.fits,
                "bytes": largest.total_bytes if largest else None,
                "limit_bytes": other.chip.memory,
                "step_seconds": list(seconds) if seconds else None,
                "mfu_bound": other.mfu_bound,
            }
        )
    return report


def _compile(report: Report, deep: bool, time_limit: float, progress: Callable[[str], None]) -> None:
    programs = report.recording.programs
    for number, program in enumerate(programs, 1):
        progress(
            f"compiling program {number} of {len(programs)} ({len(program.calls)} operators) for {report.topology}"
        )
        with tempfile.TemporaryDirectory(prefix="torchtpu-preflight-") as folder:
            try:
                dumps = compiler.compile(program, report.topology, Path(folder), deep, time_limit)
            except compiler.CompilerError as error:
                report.problems.append(str(error))
                continue
        report.analyses.append(analyze(program, dumps, report.chip))
