"""What preflight takes, and how right it is, beside the bars that it is held to: python benches/preflight_figures.py

Each row gives a script of benches/preflight_scripts.py to `python -m torchtpu preflight`, and prints the command.
Needs libtpu, transformers and torchvision, no TPU, and some minutes. Verdicts beside whole compiles are those of
benches/preflight_verdicts.py, a Llama block beside JAX's is benches/preflight_llama_block.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import preflight_scripts as scripts

SCRIPT = Path(scripts.__file__)
POLL = 0.1


class Figure(NamedTuple):
    """A row of the table."""

    what: str
    bar: str
    found: str
    holds: bool
    command: str


class Run(NamedTuple):
    """What a run of preflight gave and took."""

    report: dict[str, Any]
    output: str
    seconds: float
    processor: float
    """Seconds of processors, of all its processes. On a machine that others use they say more than the clock."""
    largest: int
    """Bytes of the process that took the most memory."""
    command: str


class FailedError(RuntimeError):
    """A script failed, or a program was not judged."""


def run(chip: str, *arguments: str, preflight: str = "") -> Run:
    """Gives a script to preflight."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        options = ["-m", "torchtpu", "preflight", "--chip", chip, *preflight.split()]
        shown = " ".join(["python", *options, f"benches/{SCRIPT.name}", *arguments])
        command = [sys.executable, *options, "--json", str(out), str(SCRIPT), *arguments]
        began, before = time.monotonic(), _processor_seconds()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        peaks: dict[int, int] = {}
        watcher = threading.Thread(target=_watch, args=(process, peaks))
        watcher.start()
        output = process.communicate()[0]
        seconds, processor = time.monotonic() - began, _processor_seconds() - before
        watcher.join()
        if not out.is_file():
            raise FailedError(f"{shown}: {output}")
        report = json.loads(out.read_text())
    problems = [report["failure"], *report["problems"]]
    if any(problems):
        raise FailedError(f"{shown}: {problems}")
    return Run(report, output, seconds, processor, max(peaks.values(), default=0), shown)


def _processor_seconds() -> float:
    """Of the processes that have ended, with those that they have started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch(process: subprocess.Popen[str], peaks: dict[int, int]) -> None:
    """Notes the peak memory of a process and of those that it has started, until it ends."""
    while process.poll() is None:
        for number in _family(process.pid):
            try:
                status = Path(f"/proc/{number}/status").read_text()
            except OSError:
                continue
            peak = re.search(r"VmHWM:\s+(\d+)", status)
            if peak:
                peaks[number] = 1024 * int(peak[1])
        time.sleep(POLL)


def _family(number: int) -> Iterator[int]:
    yield number
    for children in Path(f"/proc/{number}/task").glob("*/children"):
        try:
            numbers = children.read_text().split()
        except OSError:
            continue
        for child in numbers:
            yield from _family(int(child))


# ---- rows ------------------------------------------------------------------------------------------------------------


def costs(what: str, done: Run, seconds: float, gigabytes: float) -> Figure:
    """What preflight itself took."""
    size = done.largest / 1e9
    holds = done.report["fits"] is not None and done.seconds <= seconds and size <= gigabytes
    return Figure(
        f"{what}: time and largest process",
        f"{seconds:.0f} s" + (f", {gigabytes:.0f} GB" if gigabytes < 1e3 else ""),
        f"{done.seconds:.1f} s (processors {done.processor:.0f} s), {size:.2f} GB",
        holds,
        done.command,
    )


def shares(what: str, done: Run) -> Iterator[Figure]:
    """How much stands on lines and names, and whether the parts sum up."""
    found = done.report["attributed"]
    yield Figure(
        f"{what}: bytes and time on lines and names",
        "95 %",
        f"{found['bytes']:.1%}, {found['seconds']:.1%}",
        min(found.values()) >= 0.95,
        done.command,
    )
    parts = dict(done.report["bytes"])
    total = parts.pop("total")
    error = abs(sum(parts.values()) / total - 1)
    yield Figure(f"{what}: sum of the parts of memory", "within 1 %", f"{error:.2%}", error <= 0.01, done.command)


def near(what: str, bar: float, found: float, expected: float, form: Callable[[float], str], command: str) -> Figure:
    """A figure beside the one that is expected."""
    error = abs(found / expected - 1) if expected else float(found != 0)
    return Figure(what, f"within {bar:.0%} of {form(expected)}", f"{form(found)} ({error:.2%})", error <= bar, command)


def gpt2() -> Iterator[Figure]:
    done = run("v5e", "gpt2")
    yield costs("GPT-2, 124 M", done, 30, 1e9)
    yield from shares("GPT-2, 124 M", done)


def resnet50() -> Iterator[Figure]:
    yield from shares("ResNet-50", run("v5e", "resnet50", "--batch", "16"))


def llama() -> Iterator[Figure]:
    yield from shares("Llama, 8 layers", run("v5e", "llama"))


def llama_8b() -> Iterator[Figure]:
    done = run("v5e:4x4", "llama-8b", preflight="--mesh fsdp=16")
    yield costs("Llama 3.1 8B's shape, FSDP on 16 chips", done, 120, 4)


def llama_70b() -> Iterator[Figure]:
    done = run("v5e:16x16", "llama-70b", preflight="--mesh fsdp=256")
    yield costs("Llama 3 70B's shape, FSDP on 256 chips", done, 360, 6)


def heads() -> Iterator[Figure]:
    narrow = run("v5e", "gpt", "--heads", "16")
    wide = run("v5e", "gpt", "--heads", "8", preflight="--no-suggestions")
    what = [each for each in narrow.report["suggestions"] if "heads" in each["what"]]
    yield Figure("16 heads of 64", "found", what[0]["what"] if what else "nothing", bool(what), narrow.command)
    before, after = (sum(each.report["step_seconds"]) for each in (narrow, wide))
    predicted = what[0]["gain"] if what else 0.0
    yield near("gain of 8 heads of 128", 0.05, predicted, 1 - after / before, lambda x: f"{x:.2%}", wide.command)
    said = [each["what"] for each in narrow.report["suggestions"] if str(scripts.VOCABULARY) in each["what"]]
    yield Figure("vocabulary of 50257", "no warning", "; ".join(said) or "none", not said, narrow.command)


def fsdp() -> Iterator[Figure]:
    """Layers are gathered forward and backward, in bfloat16. The root, which holds the embedding, the last norm and the
    head, is gathered once. Gradients are scattered in float32, the dtype of the parameters."""
    done = run("v5e:4x4", "fsdp", preflight="--mesh fsdp=16 --no-suggestions")
    layer = 4 * scripts.LLAMA_WIDTH**2 + 3 * scripts.LLAMA_WIDTH * scripts.LLAMA_INNER + 2 * scripts.LLAMA_WIDTH
    root = 2 * scripts.LLAMA_WIDTH * scripts.LLAMA_VOCABULARY + scripts.LLAMA_WIDTH
    gathered, scattered = scripts.LLAMA_LAYERS * 2 * layer + root, scripts.LLAMA_LAYERS * layer + root
    expected = (2 * gathered + 4 * scattered) * 15 / 16
    yield near("FSDP2, bytes of a rank", 0.02, _sent(done), expected, _gib, done.command)


def tensor_parallel() -> Iterator[Figure]:
    """Each block adds up its result forward and the gradient of its input backward."""
    done = run("v5e:4x4", "tensor-parallel", preflight="--mesh tp=16 --no-suggestions")
    expected = 2 * scripts.TP_BLOCKS * 4 * scripts.TP_ROWS * scripts.TP_WIDTH * 2 * 15 / 16
    yield near("tensor parallel, bytes of a rank", 0.02, _sent(done), expected, _gib, done.command)


def what_if() -> Iterator[Figure]:
    preflight = "--what-if v6e,v5p --batch 1,2,4,8 --no-suggestions"
    done = run("v5e", "gpt2", "--batch", "{batch}", preflight=preflight)
    rows = [row for row in done.report["what_if"] if row["fits"] is not None]
    found = f"{len(rows)} rows in {done.seconds:.0f} s (processors {done.processor:.0f} s)"
    yield Figure("3 chips x 4 batches", "180 s", found, len(rows) == 12 and done.seconds <= 180, done.command)


def habits() -> Iterator[Figure]:
    """The lines that read are those that the source shows."""
    done = run("v5e", "habits")
    source = SCRIPT.read_text().split("\n")
    read = " ".join(source[int(each["line"].rpartition(":")[2]) - 1] for each in done.report["assumed"])
    reading = ("clip_grad_norm_", "scaler.step", "schedule.step", "print(loss)", "isnan", ".item()", "torch.save")
    missing = [each for each in reading if each not in read]
    ended = "the script has run to its end" in done.output and not done.report["failure"]
    found = ("ran to its end" if ended else "did not end") + f", {len(reading) - len(missing)} of {len(reading)} listed"
    what = ".item(), print, clipping, GradScaler, schedule, early stopping, checkpoint"
    yield Figure(what, "to the end, reads listed", found, ended and not missing, done.command)


def _sent(done: Run) -> float:
    return float(sum(each["bytes"] for each in done.report["communication"]))


def _gib(count: float) -> str:
    return f"{count / 2**30:.3f} GiB"


ROWS: dict[str, Callable[[], Iterator[Figure]]] = {
    "gpt2": gpt2,
    "resnet50": resnet50,
    "llama": llama,
    "heads": heads,
    "fsdp": fsdp,
    "tensor-parallel": tensor_parallel,
    "habits": habits,
    "what-if": what_if,
    "llama-8b": llama_8b,
    "llama-70b": llama_70b,
}


def main() -> int:
    """Prints the table. Returns 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="which of " + ", ".join(ROWS))
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # Each figure is that of a first run.
    os.environ["TORCHTPU_CACHE"] = "0"
    missed = 0
    print("| what | bar | found | | command |\n|---|---|---|---|---|")
    for name in options.rows.split(","):
        try:
            for figure in ROWS[name]():
                missed += not figure.holds
                verdict = "holds" if figure.holds else "**missed**"
                print(f"| {figure.what} | {figure.bar} | {figure.found} | {verdict} | `{figure.command}` |", flush=True)
        except FailedError as error:
            missed += 1
            print(f"| {name} | | not measured | **missed** | |", flush=True)
            print(error, file=sys.stderr)
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
