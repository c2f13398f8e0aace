"""`torch.tpu.explain`: what ran, what was compiled, what waited, and why."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchtpu import _C

# The most rows of a table in the text, and the most operators named in a row.
_ROWS = 12
_NAMES = 4
# The number of last runs in which a repeated sequence is searched, and its longest period.
_RUNS = 2000
# Why collectives and messages are not parts of programs.
_CUT = "the plugin of this process has no devices of other ranks, so no program of it can include them"
_CUT_MESSAGE = "a message concerns two ranks only, and no program of all ranks contains it"
_MESSAGES = ("SEND", "RECV", "RECVANYSOURCE")


@contextmanager
def explain() -> Iterator[Explanation]:
    """Records what runs in the block, and why::

        with torch.tpu.explain() as explanation:
            train(steps=5)
        print(explanation)

    The end of the block waits for the device and fills the explanation. Programs are the same as without it; each
    operator call costs a few microseconds more. Blocks do not nest: RuntimeError.
    """
    explanation = Explanation()
    _C.begin_explaining()
    try:
        yield explanation
    finally:
        explanation._fill(_C.end_explaining())


class Explanation:
    """What happened in a block of `torch.tpu.explain`: to print, or to save as JSON or for Perfetto.

    Times are in seconds. Moments are relative to the start of the block.

    - `programs`: a dict for each program that ran, in the order of their first runs: "operators", a list of
      (name, "file:line"), and the numbers of its "inputs" and "results".
    - `runs`: for each run the number of its "program", the "device", the "reason" and the "line" that caused it; and
      when it was "flushed" (the host began), "queued" (the host continued), "launched" (later, if it waited for a
      compile) and "done". The last two are None if it failed. "quick" is whether it ran code that was compiled
      quickly, because better code was not ready or does not pay yet.
    - `compiles`: for each program that was not in memory its number as "program", "at", the times of "compiling",
      "loading" from the cache's folder and "waiting" for another process, the "line", and "why", a list. Threads
      compile in parallel with each other and with the host.
    - `collectives`: for each collective and message its "name", the "device", the "bytes" of its tensors, the "line",
      and when it was "posted" (called), when it had "begun" (its inputs were there) and was "done". The last two are
      None of what failed before it began. "exposed" is how much of the time between them the device did nothing else.
      "cut" says why it was not a part of a program. A collective that is a program, or a part of one, is listed in
      `programs` and `runs` instead.
    - `waits`: for each wait of the host for a device "at", "until", "reason" and "line".
    - `elapsed`; `calls`, the number of operator calls, and `recording`, the time to record them without running them.
    """

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.calls = 0
        self.recording = 0.0
        self.programs: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        self.compiles: list[dict[str, Any]] = []
        self.waits: list[dict[str, Any]] = []
        self.collectives: list[dict[str, Any]] = []

    def _fill(self, found: dict[str, Any] | None) -> None:
        for name, value in (found or {}).items():
            setattr(self, name, value)
        busy = self._busy()
        for each in self.collectives:
            begun, done = each["begun"], each["done"]
            each["exposed"] = None if done is None or begun is None else done - begun - _common(busy, begun, done)
            is_message = each["name"].partition(" ")[0] in _MESSAGES
            each["cut"] = _CUT_MESSAGE if is_message else _CUT

    @property
    def compiling(self) -> float:
        """Seconds of compiling, of loading, and of waiting for other processes to compile, over all threads."""
        return sum(map(_making, self.compiles))

    @property
    def waiting(self) -> float:
        """Seconds that the host waited for a device."""
        return float(sum(each["until"] - each["at"] for each in self.waits))

    @property
    def executing(self) -> float:
        """Seconds that devices were busy, as observed by the host."""
        return float(sum(until - start for start, until in self._spans()))

    @property
    def communicating(self) -> float:
        """Seconds that collectives and messages took, over all groups."""
        return float(sum(each["done"] - each["begun"] for each in self.collectives if each["exposed"] is not None))

    @property
    def exposed(self) -> float:
        """Of these, the seconds in which the device did nothing else."""
        return float(sum(each["exposed"] or 0.0 for each in self.collectives))

    def _busy(self) -> list[tuple[float, float]]:
        """When devices ran programs, in order and without overlaps."""
        merged: list[tuple[float, float]] = []
        for start, until in sorted(self._spans()):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(merged[-1][1], until)
            else:
                merged.append((start, until))
        return merged

    def _spans(self) -> list[tuple[float, float]]:
        """The start and end of each run. A device runs one program at a time."""
        ends: dict[int, float] = defaultdict(float)
        spans = []
        for run in self.runs:
            launched = run["queued"] if run["launched"] is None else run["launched"]
            done = launched if run["done"] is None else run["done"]
            spans.append((min(max(launched, ends[run["device"]]), done), done))
            ends[run["device"]] = max(ends[run["device"]], done)
        return spans

    def rhythm(self) -> tuple[list[int], int]:
        """The programs that ran repeatedly in the same order, and the number of repetitions; ([], 0) if there are none.

        A training loop that has settled runs the same few programs in each step.
        """
        sequence = [run["program"] for run in self.runs[-_RUNS:]]
        best: tuple[int, list[int], int] = (0, [], 0)
        for period in range(1, len(sequence) // 2 + 1):
            matches = [a == b for a, b in zip(sequence, sequence[period:], strict=False)]
            length = 0
            for end, match in enumerate([*matches, False]):
                if match:
                    length += 1
                    continue
                rounds = 1 + length // period
                if rounds > 1 and rounds * period > best[0]:
                    start = end - length
                    best = (rounds * period, sequence[start : start + period], rounds)
                length = 0
        return best[1], best[2]

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        programs, rounds = self.rhythm()
        return vars(self) | {
            "compiling": self.compiling,
            "executing": self.executing,
            "communicating": self.communicating,
            "exposed": self.exposed,
            "waiting": self.waiting,
            "rhythm": {"programs": programs, "rounds": rounds},
        }

    def save_json(self, path: str | Path) -> None:
        """Writes everything as JSON."""
        Path(path).write_text(json.dumps(self.as_dict(), indent=1))

    def save_chrome_trace(self, path: str | Path) -> None:
        """Writes a trace for https://ui.perfetto.dev and chrome://tracing.

        It has a row for the host, one for each device, one for the network, and one for each thread that compiled.
        """
        Path(path).write_text(json.dumps({"traceEvents": list(self._trace()), "displayTimeUnit": "ms"}))

    def _trace(self) -> Iterator[dict[str, Any]]:
        lanes = self._lanes()
        devices = {run["device"] for run in self.runs}
        first_lane = 1 + max(devices, default=0) + 1
        rows = {0: "host"} | {1 + device: f"tpu:{device}" for device in devices}
        network = first_lane + max(lanes, default=-1) + 1
        rows |= {network: "network"} if self.collectives else {}
        rows |= {first_lane + lane: f"compiler {lane}" for lane in lanes}
        for row, name in sorted(rows.items()):
            yield {"ph": "M", "pid": 0, "tid": row, "name": "thread_name", "args": {"name": name}}

        def span(row: int, name: str, start: float, until: float, **args: Any) -> dict[str, Any]:
            times = {"ts": start * 1e6, "dur": (until - start) * 1e6}
            return {"ph": "X", "pid": 0, "tid": row, "name": name, **times, "args": args}

        for lane, compile in zip(lanes, self.compiles, strict=True):
            name = f"{'compile' if compile['compiling'] else 'load'} program {compile['program']}"
            why = {"why": compile["why"], "line": compile["line"]}
            yield span(first_lane + lane, name, compile["at"], compile["at"] + _making(compile), **why)
        for run, (start, until) in zip(self.runs, self._spans(), strict=True):
            name, facts = f"program {run['program']}", {"reason": run["reason"], "line": run["line"]}
            yield span(0, f"queue {name}", run["flushed"], run["queued"], **facts)
            yield span(1 + run["device"], name, start, until, operators=self._operators(run["program"]), **facts)
        for each in self.collectives:
            if each["exposed"] is not None:
                facts = {key: each[key] for key in ("bytes", "posted", "exposed", "line")}
                yield span(network, each["name"], each["begun"], each["done"], **facts)
        for wait in self.waits:
            yield span(0, f"wait: {wait['reason']}", wait["at"], wait["until"], line=wait["line"])

    def _lanes(self) -> list[int]:
        """For each compile the first free lane. There are as many lanes as concurrent compiles."""
        ends: list[float] = []
        lanes = [0] * len(self.compiles)
        for index in sorted(range(len(lanes)), key=lambda index: float(self.compiles[index]["at"])):
            compile = self.compiles[index]
            lane = next((lane for lane, end in enumerate(ends) if end <= compile["at"]), len(ends))
            ends[lane : lane + 1] = [compile["at"] + _making(compile)]
            lanes[index] = lane
        return lanes

    def _operators(self, program: int) -> str:
        operators = self.programs[program]["operators"]
        named = [f"{name} at {line}" if line else name for name, line in operators[:_NAMES]]
        return ", ".join(named) + (f" and {len(operators) - _NAMES} more" if len(operators) > _NAMES else "")

    def __str__(self) -> str:
        parts = (self._summary, self._program_table, self._compile_list, self._collective_table, self._wait_table)
        return "\n".join(line for part in parts for line in part())

    def _summary(self) -> Iterator[str]:
        compiled = sum(each["compiling"] > 0 for each in self.compiles)
        loaded = len(self.compiles) - compiled
        yield f"{self.elapsed:.3f} s in all"
        yield f"  recording  {self.recording:8.3f} s  {self.calls} operators"
        yield f"  compiling  {self.compiling:8.3f} s  {compiled} programs compiled, {loaded} found elsewhere"
        yield f"  executing  {self.executing:8.3f} s  {len(self.runs)} runs of {len(self.programs)} programs"
        if self.collectives:
            exposed = f"of which the device had nothing else to do for {self.exposed:.3f} s"
            yield f"  network    {self.communicating:8.3f} s  {len(self.collectives)} collectives, {exposed}"
        yield f"  waiting    {self.waiting:8.3f} s  {len(self.waits)} times"
        programs, rounds = self.rhythm()
        if rounds:
            count = sum(len(self.programs[number]["operators"]) for number in programs)
            numbers = ", ".join(map(str, programs[:_ROWS])) + (", …" if len(programs) > _ROWS else "")
            plural = "s" if len(programs) > 1 else ""
            yield f"rhythm: {rounds} rounds of {len(programs)} program{plural} ({numbers}) with {count} operators"

    def _program_table(self) -> Iterator[str]:
        spans: dict[int, list[float]] = defaultdict(list)
        reasons: dict[int, Counter[str]] = defaultdict(Counter)
        quick = Counter(run["program"] for run in self.runs if run["quick"])
        for run, (start, until) in zip(self.runs, self._spans(), strict=True):
            spans[run["program"]].append(until - start)
            reasons[run["program"]][_at(run["reason"], run["line"])] += 1
        if spans:
            yield "programs:  number  runs  ms each  operators"
        longest = sorted(spans, key=lambda number: -sum(spans[number]))
        for number in longest[:_ROWS]:
            times, count = spans[number], len(self.programs[number]["operators"])
            milliseconds = sum(times) / len(times) * 1e3
            yield f"  {number:15} {len(times):5} {milliseconds:8.3f}  {count}: {self._operators(number)}"
            for reason, runs in reasons[number].most_common(2):
                yield f"{'':34}ran because {reason}" + (f" ({runs} times)" if runs > 1 else "")
            if quick[number]:
                yield f"{'':34}{quick[number]} of {len(times)} ran code that was compiled quickly"
        if len(longest) > _ROWS:
            yield f"  … and {len(longest) - _ROWS} more, which took less time"

    def _compile_list(self) -> Iterator[str]:
        if self.compiles:
            yield "compiles:"
        slowest = sorted(self.compiles, key=lambda each: -each["compiling"] - each["loading"])[:_ROWS]
        for each in sorted(slowest, key=lambda each: float(each["at"])):
            how = (
                f"compiled in {each['compiling']:.3f} s" if each["compiling"] else f"loaded in {each['loading']:.3f} s"
            )
            yield f"  program {each['program']} {_at(how, each['line'])}"
            for why in each["why"][:_NAMES]:
                yield f"    {why}"
            if len(each["why"]) > _NAMES:
                yield f"    … and {len(each['why']) - _NAMES} more that are new"
        if len(self.compiles) > _ROWS:
            yield f"  … and {len(self.compiles) - _ROWS} more, which took less time"

    def _collective_table(self) -> Iterator[str]:
        kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for each in self.collectives:
            if each["exposed"] is not None:
                kinds[_at(each["name"].partition(" ")[0], each["line"])].append(each)
        if kinds:
            yield "collectives:  times  MB each  ms each  exposed"
        took = {name: sum(each["done"] - each["begun"] for each in group) for name, group in kinds.items()}
        for name in sorted(kinds, key=lambda name: -took[name])[:_ROWS]:
            count = len(kinds[name])
            megabytes = sum(each["bytes"] for each in kinds[name]) / count / 1e6
            exposed = sum(each["exposed"] for each in kinds[name]) / max(took[name], 1e-9)
            yield f"  {count:17} {megabytes:8.3f} {took[name] / count * 1e3:8.3f} {exposed:8.0%}  {name}"
        reasons = {each["cut"]: each["name"].partition(" ")[0] for group in kinds.values() for each in group}
        for reason, name in reasons.items():
            yield f"{'':34}{name} was cut: {reason}"

    def _wait_table(self) -> Iterator[str]:
        waits: dict[str, list[float]] = defaultdict(list)
        for wait in self.waits:
            waits[_at(wait["reason"], wait["line"])].append(wait["until"] - wait["at"])
        if waits:
            yield "waits:  seconds  times"
        for name in sorted(waits, key=lambda name: -sum(waits[name]))[:_ROWS]:
            yield f"  {sum(waits[name]):13.3f} {len(waits[name]):6}  {name}"


def _common(spans: list[tuple[float, float]], begun: float, done: float) -> float:
    """How much of the time between two moments lies in the spans."""
    return sum(max(0.0, min(until, done) - max(start, begun)) for start, until in spans)


def _making(compile: dict[str, Any]) -> float:
    """The time it took to get a program."""
    return float(compile["compiling"] + compile["loading"] + compile["waiting"])


def _at(what: str, line: str) -> str:
    return f"{what} at {line}" if line else what
