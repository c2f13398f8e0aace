"""What a TPU's compiler says of a script, and compilers that fail."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from torchtpu.preflight import compiler
from torchtpu.preflight.recording import Program

from tests.helpers import run_python
from tests.preflight.recorded import SCRIPT, needs_libtpu, product


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test asks its compiler."""
    monkeypatch.setenv("TORCHTPU_CACHE", "0")


@pytest.mark.parametrize(
    ("child", "seconds", "words"),
    [
        ("import os; input(); os.kill(os.getpid(), 9)", 240.0, "the compiler died of signal 9: it said nothing"),
        ("import sys; input(); sys.exit('no such flag')", 240.0, "no such flag"),
        (
            "while True: input(); print('\"libtpu, not installed\"', flush=True)",
            240.0,
            "libtpu is not installed: `pip",
        ),
        ("while True: input(); print('\"\"', flush=True)", 240.0, "the compiler wrote nothing down"),
        ("while True: input()", 0.2, "the compiler did not answer within 0 s; --time-limit gives it more"),
    ],
)
def test_a_compiler_that_fails(
    child: str, seconds: float, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure is one sentence, and the next program is asked of a process that lives."""
    monkeypatch.setattr(compiler, "_CHILD", child)
    program = Program(product(8, 8, 8), [], [], [], [])
    with compiler.Compilers(seconds) as compilers:
        for folder in ("first", "second"):
            with pytest.raises(compiler.CompilerError, match=words):
                compilers.compile(program, "v5e:1x1", tmp_path / folder, deep=False)


REFUSED = """
import json
import torch
from torch import nn
from torchtpu.preflight import compiler, preflight

compiler._CHILD = PROGRAM


def train(steps):
    model = nn.Linear(8, 8).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        loss = model(torch.ones(4, 8).to("tpu")).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item())


report = preflight(train, 9)
assert "<html" in report.html()
print("RESULT" + json.dumps([report.as_dict(), str(report)]))
"""
REFUSES = "while True: input(); print('\"INVALID_ARGUMENT: bad layout\\\\nat line 7\"', flush=True)"


@pytest.mark.parametrize(
    ("child", "words"),
    [
        ("import os; input(); os.kill(os.getpid(), 6)", "the compiler died of signal 6: it said nothing"),
        (REFUSES, "the compiler refuses the program: INVALID_ARGUMENT: bad layout"),
    ],
)
def test_a_refused_program(child: str, words: str) -> None:
    """The report has one sentence, and what the script did until then."""
    finished = run_python(REFUSED.replace("PROGRAM", repr(child)))
    assert finished.returncode == 0, finished.stderr
    found, text = json.loads(finished.stdout.rpartition("RESULT")[2])
    assert set(found["problems"]) == {words}
    assert f"  not judged: {words}" in text.splitlines()
    assert (found["fits"], found["step_seconds"], found["steps"], found["failure"]) == (None, None, 3, None)
    assert [each["reads"] for each in found["assumed"]] == [3]
    assert found["throughput"]["in_a_step"] == 4


def test_a_compile_that_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiler had written down before it died is kept, with the reason."""
    child = f"""
import json, os
_, _, folder, whole = json.loads(input())
for name in ("{compiler.ASSIGNMENT}", "{compiler.SCHEDULED}"):
    with open(folder + "/module_0001." + name, "w") as file:
        file.write(name + "}}")
os.kill(os.getpid(), 11)
"""
    monkeypatch.setattr(compiler, "_CHILD", child)
    with compiler.Compilers(240.0) as compilers:
        dumps = compilers.compile(Program(product(8, 8, 8), [], [], [], []), "v5e:1x1", tmp_path, deep=True)
    assert dumps.assignment == f"{compiler.ASSIGNMENT}}}"
    assert (dumps.code, dumps.out_of_memory) == ("", "")
    assert dumps.problem == "the compiler died of signal 11: it said nothing"


def test_a_compiler_without_phases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first phase cannot run alone, the whole compile is ended when that phase has written its files."""
    child = f"""
import json, time
while True:
    _, _, folder, whole = json.loads(input())
    if whole:
        for name in ("{compiler.ASSIGNMENT}", "{compiler.SCHEDULED}"):
            with open(folder + "/module_0001." + name, "w") as file:
                file.write(name + "}}")
        time.sleep(600)
    print('""', flush=True)
"""
    monkeypatch.setattr(compiler, "_CHILD", child)
    with compiler.Compilers(240.0) as compilers:
        dumps = compilers.compile(Program(product(8, 8, 8), [], [], [], []), "v5e:1x1", tmp_path, deep=False)
    assert (dumps.schedule, dumps.assignment) == (f"{compiler.SCHEDULED}}}", f"{compiler.ASSIGNMENT}}}")
    assert (dumps.code, dumps.out_of_memory) == ("", "")


def test_what_was_judged_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is compiled once for a topology; what ended early is compiled again; what has cycles serves both."""
    asked = tmp_path / "asked"
    child = f"""
import json
while True:
    _, topology, folder, whole = json.loads(input())
    open("{asked}", "a").write(f"{{topology}} {{whole}}\\n")
    for name in ("{compiler.ASSIGNMENT}", "{compiler.SCHEDULED}", *(["{compiler.CODE}"] if whole else [])):
        with open(folder + "/module_0001." + name, "w") as file:
            file.write(name + "}}")
    print('"UNKNOWN: late"' if topology == "bad" else '""', flush=True)
"""
    monkeypatch.setattr(compiler, "_CHILD", child)
    monkeypatch.setenv("TORCHTPU_CACHE", "1")
    monkeypatch.setenv("TORCHTPU_CACHE_DIR", str(tmp_path / "cache"))
    program = Program(product(8, 8, 8), [], [], [], [])

    def count(topology: str, deep: bool = False) -> tuple[bool, int]:
        asked.write_text("")
        with tempfile.TemporaryDirectory() as folder, compiler.Compilers(240.0) as compilers:
            dumps = compilers.compile(program, topology, Path(folder), deep)
        return bool(dumps.code), len(asked.read_text().splitlines())

    assert [count("v5e:1x1"), count("v5e:1x1"), count("v6e:1x1")] == [(False, 1), (False, 0), (False, 1)]
    assert [count("bad"), count("bad")] == [(False, 1), (False, 1)]
    assert [count("v5e:1x1", deep=True), count("v5e:1x1", deep=True), count("v5e:1x1")] == [
        (True, 1),
        (True, 0),
        (True, 0),
    ]
    program.text += " "
    assert count("v5e:1x1") == (False, 1)


@needs_libtpu
@pytest.mark.parametrize(("size", "fits"), [(512, True), (40960, False)])
def test_verdict(size: int, fits: bool, tmp_path: Path) -> None:
    """A step of a small model fits a v5e; one with 134 GB of weights, gradients and states does not."""
    script, out, page = tmp_path / "train.py", tmp_path / "out.json", tmp_path / "report.html"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torchtpu", "preflight", "--json", str(out), "--html", str(page), str(script)]
    finished = subprocess.run([*command, str(size)], capture_output=True, text=True, timeout=300)
    found = json.loads(out.read_text())
    assert finished.returncode == 0, finished.stderr
    assert found["fits"] is fits, found
    parts = dict(found["bytes"])
    total = parts.pop("total")
    assert abs(sum(parts.values()) - total) <= 0.01 * total
    assert parts["parameters"] + parts["gradients"] >= 2 * (8 * size**2) * 4
    if fits:
        low, high = found["step_seconds"]
        assert 0 < low <= high
        assert found["owners"][0]["name"]
        assert found["throughput"]["per_second"] == pytest.approx([32 / high, 32 / low])
        assert all(share >= 0.95 for share in found["attributed"].values()), found["attributed"]
    assert "<html" in page.read_text()


@needs_libtpu
def test_batches_and_suggestions(tmp_path: Path) -> None:
    script, out = tmp_path / "train.py", tmp_path / "out.json"
    script.write_text(SCRIPT.replace("32,", "int(sys.argv[2]),"))
    command = [sys.executable, "-m", "torchtpu", "preflight", "--json", str(out), "--batch", "512,4096"]
    finished = subprocess.run([*command, str(script), "2048", "{batch}"], capture_output=True, text=True, timeout=600)
    found = json.loads(out.read_text())
    assert finished.returncode == 0, finished.stderr
    (small, large) = found["what_if"]
    assert (small["batch"], large["batch"]) == (512, 4096)
    assert small["bytes"] < large["bytes"]
    assert small["step_seconds"] == pytest.approx(found["step_seconds"])
    (suggestion,) = found["suggestions"]
    assert "bfloat16" in suggestion["what"]
    assert suggestion["gain"] >= 0.02
    assert suggestion["line"].startswith(str(script))
