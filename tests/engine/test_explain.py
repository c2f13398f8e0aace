"""torch.tpu.explain: its report on loops with known programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torchtpu import _C

from tests.helpers import run_python


def _line() -> int:
    return sys._getframe(1).f_lineno


def _step(x: torch.Tensor) -> torch.Tensor:
    return ((x * 2 + 1).relu() @ x).sum()


@pytest.fixture
def fused(device: torch.device) -> Iterator[torch.device]:
    with torch.tpu.set_eager_mode("fused"):
        yield device


def test_a_loop_in_fused(fused: torch.device) -> None:
    x = torch.randn(7, 7, device=fused)
    with torch.tpu.explain() as explanation:
        for _ in range(5):
            value, read = _step(x).item(), _line()
    assert value == pytest.approx(_step(x.cpu()).item(), rel=1e-4)
    assert len(explanation.programs) == 1
    names = [name for name, _ in explanation.programs[0]["operators"]]
    assert names == ["mul.Tensor", "add.Tensor", "relu", "mm", "sum"]
    assert all(line.startswith(f"{__file__}:") for _, line in explanation.programs[0]["operators"])
    assert [run["program"] for run in explanation.runs] == [0] * 5
    assert {run["reason"] for run in explanation.runs} == {"the host reads a tensor"}
    assert {run["line"] for run in explanation.runs} == {f"{__file__}:{read}"}
    assert explanation.rhythm() == ([0], 5)
    assert explanation.calls == 25
    assert len(explanation.waits) >= 5
    assert 0 < explanation.recording < explanation.elapsed
    assert 0 < explanation.executing < explanation.elapsed
    for run in explanation.runs:
        assert 0 <= run["flushed"] <= run["queued"] <= explanation.elapsed
        assert run["flushed"] <= run["launched"] <= run["done"]


def test_lines_of_a_backward_pass(fused: torch.device) -> None:
    """On autograd's thread a `backward` of torch's own has no frame of the user: the main thread's line counts."""
    x = torch.randn(2, 4, 3, 3, device=fused, requires_grad=True)
    model = torch.nn.CrossMapLRN2d(3)
    with torch.tpu.explain() as explanation:
        model(x).sum().backward()
        assert x.grad is not None
        x.grad.sum().item()
    lines = {line.rpartition(":")[0] for program in explanation.programs for _, line in program["operators"]}
    assert lines == {__file__}


def test_strict_runs_each_operator(device: torch.device) -> None:
    x = torch.randn(6, 6, device=device)
    with torch.tpu.set_eager_mode("strict"), torch.tpu.explain() as explanation:
        for _ in range(3):
            _step(x)
    assert len(explanation.programs) == 5
    assert explanation.rhythm() == ([0, 1, 2, 3, 4], 3)
    assert {run["reason"] for run in explanation.runs} == {"the mode runs each operator at once"}


def test_why_a_changed_shape_compiles(fused: torch.device) -> None:
    def step(rows: int) -> tuple[float, int]:
        x = torch.ones(rows, 11, device=fused)
        return x.cumsum(0).sum().item(), _line()

    step(9)
    with torch.tpu.explain() as explanation:
        step(9)
        _, line = step(5)
    (compile,) = explanation.compiles
    assert f"cumsum: argument 1 changed from float32[9, 11] to float32[5, 11] at {__file__}:{line}" in compile["why"]
    assert compile["line"] == f"{__file__}:{line}"


def test_why_another_order_compiles(fused: torch.device) -> None:
    x = torch.ones(3, 13, device=fused)

    def step(swap: bool) -> None:
        y = x + 1
        y = y.exp().abs() if swap else y.abs().exp()
        y.cpu()

    for swap in (False, True, False, False):
        step(swap)
    with torch.tpu.explain() as explanation:
        (x + 1).abs().cpu()
    (compile,) = explanation.compiles
    assert len(compile["why"]) == 1
    assert "ended after 2 of the 3 operators that came before: the host reads a tensor" in compile["why"][0]


def test_steady_state_compiles_nothing_and_says_so(fused: torch.device) -> None:
    x = torch.randn(5, 5, device=fused)
    for _ in range(3):
        _step(x).item()
    with torch.tpu.explain() as explanation:
        _step(x).item()
    assert explanation.compiles == []
    assert "0 programs compiled" in str(explanation)


def test_outside_of_a_block_nothing_is_written_down(fused: torch.device) -> None:
    with torch.tpu.explain() as explanation:
        pass
    _step(torch.ones(3, 3, device=fused)).item()
    assert (explanation.runs, explanation.calls) == ([], 0)
    with torch.tpu.explain(), pytest.raises(RuntimeError, match="does not nest"), torch.tpu.explain():
        pass
    with torch.tpu.explain():
        pass


def test_compiled_graphs(device: torch.device) -> None:
    compiled = torch.compile(_step)
    x = torch.randn(4, 4, device=device)
    compiled(x)
    with torch.tpu.explain() as explanation:
        compiled(x)
    assert [run["reason"] for run in explanation.runs] == ["a compiled graph runs as a program of its own"]
    assert explanation.runs[0]["line"].startswith(f"{__file__}:")


def test_text_json_and_trace(fused: torch.device, tmp_path: Path) -> None:
    x = torch.randn(4, 9, device=fused)
    with torch.tpu.explain() as explanation:
        for _ in range(3):
            (x.sin() + 1).sum().item()
        torch.tpu.synchronize()
    text = str(explanation)
    assert re.search(r"recording +\d+\.\d{3} s  9 operators", text)
    assert "rhythm: 3 rounds of 1 program (0) with 3 operators" in text
    assert f"sin at {__file__}:" in text
    explanation.save_json(tmp_path / "explanation.json")
    saved = json.loads((tmp_path / "explanation.json").read_text())
    assert saved["rhythm"] == {"programs": [0], "rounds": 3}
    assert len(saved["runs"]) == 3
    explanation.save_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"host", "tpu:0", "compiler 0"}
    spans = [event for event in events if event["ph"] == "X"]
    assert len([span for span in spans if span["tid"] == 1]) == 3
    assert all(span["dur"] >= 0 for span in spans)


def test_command(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\nx = torch.ones(4, device='tpu')\nprint(sys.argv[1:], (x + 1).sum().item())\nsys.exit(3)\n"
    )
    arguments = ["explain", "--mode", "fused", "--json", str(tmp_path / "e.json"), str(script), "--epochs", "2"]
    finished = run_python(f"import sys; from torchtpu.__main__ import main; sys.exit(main({arguments!r}))")
    assert finished.returncode == 3
    assert finished.stdout.startswith("['--epochs', '2'] 8.0\n")
    assert f"the host reads a tensor at {script}:3" in finished.stdout
    assert json.loads((tmp_path / "e.json").read_text())["runs"]


def test_errors_at_the_flush_name_the_line(fused: torch.device) -> None:
    fine = torch.ones(3, device=fused) + 1
    # Four bytes for each byte of the device: a program could compute with it, but not store it.
    size = torch.tpu.mem_get_info()[1]
    huge, line = torch.ones(size, device=fused), _line()
    with pytest.raises(RuntimeError, match=re.escape(f"[at {__file__}:{line}]")):
        huge[7].item()
    assert fine.tolist() == [2.0] * 3


def test_a_program_that_fails(device: torch.device) -> None:
    """A chunk that fails runs again operator by operator, also while texts are kept."""
    with torch.tpu.set_eager_mode("fused"):
        lost, kept = torch.ones(8, device=device), torch.ones(8, device=device)
        torch.tpu.synchronize()
        _C.donate(lost, "a test")
        _C.begin_explaining(True)
        failed, computed = lost + 1, kept + 1
        assert computed.tolist() == [2.0] * 8
        with pytest.raises(RuntimeError, match="donated to a test"):
            failed.cpu()
        assert _C.end_explaining()["runs"]


def test_lines_of_libraries_whose_names_begin_with_torch(device: torch.device) -> None:
    """They are lines of their own, and not a part of torch: sizes that change are remembered by line."""
    # `make test` installs it, so this test runs there. torchtpu does not need it.
    ops = pytest.importorskip("torchvision", reason="torchvision is not installed: pip install torchvision").ops
    with torch.tpu.set_eager_mode("strict"), torch.tpu.explain() as explanation:
        ops.box_area(torch.rand(5, 4, device=device)).cpu()
    lines = {Path(line).name for program in explanation.programs for _, line in program["operators"]}
    assert any(line.startswith("boxes.py:") for line in lines), lines
