"""Preflight from a recording to a report."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torchtpu.preflight import batches, compiler, recording
from torchtpu.preflight.analysis import ROLES, Analysis, analyze
from torchtpu.preflight.chips import Chip, find, topology_of
from torchtpu.preflight.mesh import Mesh, Traffic, on, parse, traffic
from torchtpu.preflight.recording import Program, Recording
from torchtpu.preflight.remedies import remedy
from torchtpu.preflight.suggestions import LEAST_GAIN, MOST, Nomination, Suggestion, nominate
from torchtpu.preflight.timing import Part

# Owners with these roles are parameters, or have a parameter's name.
_NAMED = ("parameters", "gradients", "optimizer_state", "buffers")

STEPS = 3
SECONDS = 600.0
# Compilers that run at once. Each takes a processor and some gigabytes.
PROCESSES = 2


@dataclasses.dataclass
class Report:
    """What preflight found. `str()` of it is the report as text, `as_dict()` its values for JSON."""

    chip: Chip
    topology: str
    recording: Recording
    judged: list[tuple[Program, Analysis]] = dataclasses.field(default_factory=list)
    """The programs of a step that the compiler has taken, the largest first."""
    problems: list[str] = dataclasses.field(default_factory=list)
    """Why a program could not be judged."""
    what_if: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    suggestions: list[Suggestion] = dataclasses.field(default_factory=list)
    mesh: Mesh | None = None
    """The ranks that the script was recorded for; None for one."""

    @property
    def analyses(self) -> list[Analysis]:
        """What the compiler said of each program."""
        return [analysis for _, analysis in self.judged]

    @property
    def fits(self) -> bool | None:
        """Whether each program of a step fits the device; None if the compiler did not say so of one of them."""
        if any(each.out_of_memory or each.total_bytes > self.chip.memory for each in self.analyses):
            return False
        return True if self.analyses and len(self.analyses) == len(self.recording.programs) else None

    @property
    def largest(self) -> Analysis | None:
        """The program that takes the most memory: what a step takes."""
        return max(self.analyses, key=lambda each: each.total_bytes, default=None)

    @property
    def step_seconds(self) -> tuple[float, float] | None:
        """What a step takes: at the best, and at the least that is expected. Without the host and its input.

        At the best the network works beside the chip, and only what takes longer counts; else nothing is hidden.
        """
        if not self.judged:
            return None
        low, high = self._compute_seconds
        sent = sum(each.seconds for each in self.traffic)
        return max(low, sent), high + sent

    @property
    def _compute_seconds(self) -> tuple[float, float]:
        low, high = (sum(each.seconds[end] * program.runs for program, each in self.judged) for end in (0, 1))
        return low, high

    @functools.cached_property
    def traffic(self) -> list[Traffic]:
        """What rank 0 sends in a step, by axes of the mesh."""
        return traffic(self.recording.sent, self.mesh, self.recording.steps) if self.mesh else []

    @property
    def communication(self) -> list[dict[str, Any]]:
        """The traffic, with the seconds that are exposed: at the best and at the least."""
        total = sum(each.seconds for each in self.traffic)
        hidden = min(1.0, self._compute_seconds[0] / total) if total else 0.0
        # Each axis hides the same part of its time.
        return [
            {**dataclasses.asdict(each), "exposed_seconds": [each.seconds * (1 - hidden), each.seconds]}
            for each in self.traffic
        ]

    @property
    def mfu_bound(self) -> float | None:
        """The part of the chip's peak that the matrix products of a step can reach."""
        seconds = self.step_seconds
        if not seconds or not seconds[0]:
            return None
        return min(1.0, sum(each.flops_seconds * program.runs for program, each in self.judged) / seconds[0])

    @property
    def throughput(self) -> tuple[float, float] | None:
        """What a rank trains on in a second, at the least and at the best: tokens, images or samples."""
        seconds, (_, count) = self.step_seconds, self.recording.taken
        if not seconds or not seconds[0] or not count:
            return None
        return count / seconds[1], count / seconds[0]

    @property
    def largest_batch(self) -> dict[str, Any] | None:
        """The size of the batch that was recorded, "now"; between which sizes the largest one that fits is "expected";
        and of the sizes that were compared the largest that "fits" and the smallest that "does_not_fit". None if no
        model took a tensor."""
        now, largest = self.recording.rows, self.largest
        if not now or largest is None:
            return None
        compared = [row for row in self.what_if if row["chip"] == self.topology and row["batch"]]
        return {
            "now": now,
            "expected": batches.expected(now, largest.bytes, self.chip.memory),
            "fits": max((row["batch"] for row in compared if row["fits"]), default=None),
            "does_not_fit": min((row["batch"] for row in compared if row["fits"] is False), default=None),
        }

    @property
    def attributed(self) -> dict[str, float] | None:
        """The parts of a step's bytes and of its time, at best, that stand on a line or on a parameter's name."""
        largest, parts = self.largest, self.parts
        if largest is None or not largest.total_bytes:
            return None
        owned = sum(owner.bytes for owner in largest.owners if owner.line or owner.role in _NAMED)
        total = sum(part.seconds[0] for part in parts)
        lined = sum(part.seconds[0] for part in parts if part.line)
        return {"bytes": owned / largest.total_bytes, "seconds": lined / total if total else 1.0}

    @property
    def parts(self) -> list[Part]:
        """What each module costs in a step. One whose collectives take longer than the rest of it is bound by them."""
        merged: dict[str, Part] = {}
        for analysis in self.analyses:
            for part in analysis.parts:
                known = merged.setdefault(part.name, Part(part.name, bound=part.bound, line=part.line))
                known.seconds = (known.seconds[0] + part.seconds[0], known.seconds[1] + part.seconds[1])
                known.flops += part.flops
                known.memory_bytes += part.memory_bytes
        for along in self.traffic:
            for name, seconds in along.modules.items():
                part = merged.setdefault(name or "other", Part(name or "other", line=along.lines[0]))
                part.network_seconds += seconds
        for part in merged.values():
            if part.network_seconds > part.seconds[0]:
                part.bound = "interconnect"
        return sorted(merged.values(), key=lambda part: -part.seconds[0])

    def as_dict(self) -> dict[str, Any]:
        """All of it, in values that JSON knows. Bytes and seconds."""
        largest = self.largest
        seconds = self.step_seconds
        return {
            "chip": self.topology,
            "mesh": dict(self.mesh.axes) if self.mesh else None,
            "fits": self.fits,
            "limit_bytes": self.chip.memory,
            "largest_batch": self.largest_batch,
            "bytes": {"total": largest.total_bytes, **largest.bytes} if largest else dict.fromkeys(("total", *ROLES)),
            "owners": [dataclasses.asdict(owner) for owner in largest.owners] if largest else [],
            "step_seconds": list(seconds) if seconds else None,
            "mfu_bound": self.mfu_bound,
            "throughput": {
                "unit": self.recording.taken[0],
                "in_a_step": self.recording.taken[1],
                "per_second": list(self.throughput) if self.throughput else None,
            },
            "attributed": self.attributed,
            "flops": sum(each.flops * program.runs for program, each in self.judged),
            "modules": [dataclasses.asdict(part) for part in self.parts],
            "padding": [dataclasses.asdict(owner) for owner in largest.padding[:10]] if largest else [],
            "rematerialized": largest.rematerialized if largest else None,
            "recompiles": [
                {"line": line, "argument": why, "remedy": remedy(why)} for line, why in self.recording.recompiles
            ],
            "communication": self.communication,
            "suggestions": [dataclasses.asdict(each) for each in self.suggestions],
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
    mesh: str = "",
    time_limit: float = SECONDS,
    assume: Mapping[str, int] | None = None,
) -> Report:
    """Calls `function(*args)`, which trains on "tpu", on a device that computes nothing, and reports what a TPU's
    compiler says of it.

    `chip` is a generation such as "v5e", or a topology such as "v5e:4x4". On a topology the process is rank 0 of a
    `mesh` such as "fsdp=8,tp=2", or of one axis of all devices. The call ends after `steps` optimizer steps. `deep`
    compiles to the end, which takes minutes, for the compiler's own estimate of cycles. `mode` is the eager mode.
    Values that the function reads from the device are invented; `assumed` lists the lines. `assume` gives the number of
    some of them, such as `{"train.py:31": 512}`.

    The process must not have used the device before, and cannot compute on it afterwards: RuntimeError. ValueError for
    a chip that there is not. What the function raises is in the report.
    """
    axes = parse(mesh, chip)
    recording.prepare(topology_of(chip), assume)
    recorded = recording.record(lambda: function(*args), steps, time_limit, mode, axes)
    return judge(recorded, chip, deep=deep, mesh=axes, time_limit=time_limit)


def judge(
    recorded: Recording,
    topology: str,
    *,
    deep: bool = False,
    time_limit: float = SECONDS,
    what_if: Sequence[str] = (),
    sizes: Sequence[int] = (),
    recorded_size: int | None = None,
    find_largest: bool = False,
    mesh: Mesh | None = None,
    suggest: bool = True,
    rerun: Callable[[str], Recording] | None = None,
    compilers: compiler.Compilers | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Compiles the programs of a recording, and reports. `topology` may be a generation's name.

    `rerun` records the script again with a change: without it, only changes of the programs' texts are tried, and
    `sizes` of the batch, of which `recorded_size` is recorded already, are not compared. `find_largest` searches for
    the largest batch that fits. `compilers` may have been started before; they end here.
    """
    report = Report(find(topology), topology, recorded, mesh=mesh)
    judged_already = not sizes or recorded_size is not None
    others = [Report(find(name), name, recorded, mesh=on(mesh, name)) for name in what_if if judged_already]
    nominations = nominate(recorded) if suggest else []
    with compilers or compiler.Compilers(time_limit) as using, ThreadPoolExecutor(PROCESSES) as pool:
        work = _Work(using, deep, progress)
        compiled = [_submit(pool, each, work.of(each is report)) for each in (report, *others)]
        trials = [
            (nomination, pool.submit(_try, nomination, report, compiled[0], work, rerun))
            for nomination in nominations
            if rerun or not nomination.change
        ]
        compared = [
            (size, pool.submit(_batch, size, report, what_if, work.of(True), rerun))
            for size in sizes
            if rerun and size != recorded_size
        ]
        for each, jobs in zip((report, *others), compiled, strict=True):
            _collect(each, jobs)
        for nomination, trial in trials:
            _add(report, nomination, trial)
        rows = [what_if_row(each, recorded_size) for each in ((report, *others) if recorded_size else others)]
        for size, batch in compared:
            rows += _rows_of(report, size, batch.result)
        if find_largest and rerun:
            _find_largest(rows, report, lambda size: _batch(size, report, what_if, work.of(True), rerun))
    report.what_if = sorted(rows, key=lambda row: row["batch"] or 0)
    report.suggestions.sort(key=lambda each: -each.gain)
    del report.suggestions[MOST:]
    return report


def what_if_row(report: Report, batch: int | None) -> dict[str, Any]:
    """A row of the table that compares chips and batches."""
    seconds, largest = report.step_seconds, report.largest
    return {
        "chip": report.topology,
        "batch": batch,
        "rows": report.recording.rows,
        "fits": report.fits,
        "bytes": largest.total_bytes if largest else None,
        "limit_bytes": report.chip.memory,
        "step_seconds": list(seconds) if seconds else None,
        "mfu_bound": report.mfu_bound,
        "per_second": list(report.throughput) if report.throughput else None,
    }


Job = tuple[Program, "Future[Analysis]"]


@dataclasses.dataclass(frozen=True)
class _Work:
    """How programs are compiled."""

    compilers: compiler.Compilers
    deep: bool
    progress: Callable[[str], None]

    def of(self, is_main: bool) -> _Work:
        """The same; chips to compare with are not compiled to the end."""
        return dataclasses.replace(self, deep=self.deep and is_main)


_NOTHING_RAN = (
    "no program ran on the device. Programs compute what the script reads or keeps: print the loss, or keep the result"
)


def _submit(pool: ThreadPoolExecutor, report: Report, work: _Work) -> list[Job]:
    if not report.recording.programs and not report.recording.failure:
        report.problems.append(_NOTHING_RAN)
    return [(program, pool.submit(_analyze, program, report, work)) for program in report.recording.programs]


def _collect(report: Report, jobs: Sequence[Job]) -> None:
    for program, job in jobs:
        try:
            report.judged.append((program, job.result()))
        except compiler.CompilerError as error:
            report.problems.append(str(error))


def _analyze(program: Program, report: Report, work: _Work) -> Analysis:
    work.progress(f"compiling {len(program.calls)} operators for {report.topology}")
    with tempfile.TemporaryDirectory(prefix="torchtpu-preflight-") as folder:
        dumps = work.compilers.compile(program, topology_of(report.topology), Path(folder), work.deep)
    if dumps.problem:
        report.problems.append(dumps.problem)
    return analyze(program, dumps, report.chip)


def _batch(
    size: int, report: Report, what_if: Sequence[str], work: _Work, rerun: Callable[[str], Recording]
) -> list[Report]:
    """What batches of a size need, on the chip and on the others."""
    work.progress(f"running the script with batches of {size}")
    recorded = rerun(f"batch={size}")
    reports = [Report(find(name), name, recorded, mesh=on(report.mesh, name)) for name in (report.topology, *what_if)]
    for each in reports:
        for program in recorded.programs:
            try:
                each.judged.append((program, _analyze(program, each, work.of(each is reports[0]))))
            except compiler.CompilerError as error:
                each.problems.append(str(error))
    return reports


def _rows_of(report: Report, size: int, give: Callable[[], list[Report]]) -> list[dict[str, Any]]:
    """The rows of a batch; what could not be judged becomes a problem of the report."""
    try:
        found = give()
    except compiler.CompilerError as error:
        report.problems.append(str(error))
        return []
    report.problems += [problem for each in found for problem in each.problems]
    return [what_if_row(each, size) for each in found]


def _find_largest(rows: list[dict[str, Any]], report: Report, judged: Callable[[int], list[Report]]) -> None:
    """Adds rows for the batches that the search for the largest one tries."""
    largest, now = report.largest, report.recording.rows
    if largest is None or not now:
        return
    if not any(row["chip"] == report.topology for row in rows):
        rows.append(what_if_row(report, now))

    def taken(row: dict[str, Any]) -> int | None:
        # The compiler may refuse by less than it names.
        return None if row["fits"] is None else max(row["bytes"], 0 if row["fits"] else report.chip.memory + 1)

    sizes_taken: set[int] = {now}

    def measure(size: int) -> int | None:
        found = _rows_of(report, size, lambda: judged(size))
        # A data set that is smaller than the batch gives the same batch again.
        if not found or found[0]["rows"] in sizes_taken:
            return None
        sizes_taken.add(found[0]["rows"])
        rows.extend(found)
        return taken(found[0])

    known = {row["batch"]: taken(row) for row in rows if row["chip"] == report.topology}
    low, high = batches.expected(now, largest.bytes, report.chip.memory) or (2 * now, None)
    first = max(1, low if high is None else (low + high) // 2)
    batches.search({size: found for size, found in known.items() if found}, first, report.chip.memory, measure)


def _try(
    nomination: Nomination,
    report: Report,
    jobs: Sequence[Job],
    work: _Work,
    rerun: Callable[[str], Recording] | None,
) -> tuple[float, float] | None:
    """What a step takes with a change. Programs that the change leaves alone are not compiled again."""
    if nomination.change:
        assert rerun is not None
        work.progress(f"running the script again with {nomination.change}")
        recorded = rerun(nomination.change)
    else:
        programs = [nomination.applied(program) for program in report.recording.programs]
        recorded = dataclasses.replace(report.recording, programs=programs)
    tried = Report(report.chip, report.topology, recorded, mesh=report.mesh)
    known = {program.text: job for program, job in jobs}
    for program in recorded.programs:
        job = known.get(program.text)
        tried.judged.append((program, job.result() if job else _analyze(program, tried, work)))
    # Of a compile that ended early the times are others than those of a whole one.
    return None if tried.problems else tried.step_seconds


def _add(report: Report, nomination: Nomination, trial: Future[tuple[float, float] | None]) -> None:
    """Adds a suggestion if the change pays. One that cannot be compiled is none."""
    before = report.step_seconds
    try:
        after = trial.result()
    except compiler.CompilerError:
        return
    if before is None or after is None or report.problems:
        return
    gain = 1 - sum(after) / sum(before)
    if gain >= LEAST_GAIN:
        report.suggestions.append(Suggestion(nomination.what, nomination.line, gain, after))
