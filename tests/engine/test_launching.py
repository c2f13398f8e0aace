"""Programs are launched in order, each when it is compiled; the host continues in the meantime."""

from __future__ import annotations

import json
import os
import re
import sys
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.helpers import check_python


def _line() -> int:
    return sys._getframe(1).f_lineno


def _new_sizes(count: int) -> list[int]:
    """Sizes that no test has used, so that computations with them compile."""
    start = int(torch.randint(1000, 2000, ()).item()) * 2
    return [start + 2 * index for index in range(count)]


def test_strict_goes_on_while_programs_compile(device: torch.device) -> None:
    inputs = [torch.randn(size) for size in _new_sizes(8)]
    with torch.tpu.set_eager_mode("strict"), torch.tpu.explain() as explanation:
        results = [x.to(device).sin().cumsum(0) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result.cpu(), x.sin().cumsum(0), rtol=1e-4, atol=1e-4)
    launched = [run["launched"] for run in explanation.runs]
    assert len(launched) == 16
    assert launched == sorted(launched)
    assert any(run["launched"] > run["queued"] for run in explanation.runs)
    if len(os.sched_getaffinity(0)) > 1:
        assert _overlap(explanation.compiles)


def _overlap(compiles: list[dict[str, Any]]) -> bool:
    spans = sorted((each["at"], each["at"] + each["compiling"] + each["loading"]) for each in compiles)
    return any(following[0] < before[1] for before, following in pairwise(spans))


def test_written_while_it_compiles(device: torch.device) -> None:
    """Each write donates the memory of the one before, whether that is computed already or not."""
    (size,) = _new_sizes(1)
    x = torch.randn(size)
    with torch.tpu.set_eager_mode("strict"):
        y = x.to(device)
        before = torch.tpu.cache_stats()["requests"] - torch.tpu.cache_stats()["hits"]
        for _ in range(4):
            y.mul_(0.5).add_(1)
        assert torch.tpu.cache_stats()["requests"] - torch.tpu.cache_stats()["hits"] - before == 2
    for _ in range(4):
        x.mul_(0.5).add_(1)
    torch.testing.assert_close(y.cpu(), x)


@pytest.mark.parametrize("is_queued", [False, True], ids=["launched at once", "queued"])
def test_a_failure_in_strict_names_the_line(device: torch.device, is_queued: bool) -> None:
    (size,) = _new_sizes(1)
    # Four bytes for each byte of the device: a program could compute with it, but not store it.
    rows = (torch.tpu.mem_get_info()[1] >> 14) + size
    with torch.tpu.set_eager_mode("strict"):
        fine = torch.ones(3, device=device) + 1
        if is_queued:
            # Compiles for longer than the lines below need.
            slow = torch.linalg.qr(torch.ones(size % 89 + 2, size % 97 + 2, device=device))
        line = _line() + 3

        def read_too_large() -> None:
            x = torch.ones(rows, 1 << 14, device=device)
            y = x + 1
            y[7, 7].item()

        with pytest.raises(torch.OutOfMemoryError) as failure:
            read_too_large()
        # A program that is compiled already fails at the call itself.
        here = next(entry for entry in failure.traceback if entry.name == "read_too_large")
        if is_queued or here.lineno + 1 == line + 2:
            assert re.search(rf"\[at {re.escape(__file__)}:{line}\]", str(failure.value))
        else:
            assert here.lineno + 1 == line
        assert fine.tolist() == [2.0] * 3
        if is_queued:
            assert slow.R.isfinite().all()


def test_results_that_would_not_fit_end_a_program() -> None:
    printed = check_python(
        "import torch\n"
        "torch.tpu.eager_mode = 'fused'\n"
        "x = torch.ones(1 << 20, device='tpu')\n"
        "with torch.tpu.explain() as explanation:\n"
        "    for _ in range(10):\n"
        "        x = x * 1.5\n"
        "    y = [torch.zeros(1 << 20).to('tpu') + x for _ in range(6)]\n"
        "    print(sum(y).sum().item())\n"
        "reasons = [run['reason'] for run in explanation.runs]\n"
        "print([len(explanation.programs[run['program']]['operators']) for run in explanation.runs])\n"
        "print(*reasons, sep='\\n')\n",
        TORCHTPU_CHUNK_BYTES="15M",
    )
    total, operators, *reasons = printed.splitlines()
    assert float(total) == pytest.approx((1 << 20) * 6 * 1.5**10, rel=1e-5)
    assert max(json.loads(operators)) <= 4
    assert reasons[0] == "results and uploads are as large as a program may hold"
    assert reasons[-1] == "the host reads a tensor"


def test_a_process_ends_while_programs_compile() -> None:
    check_python(
        "import torch\n"
        "torch.tpu.eager_mode = 'strict'\n"
        "for n in range(2, 40):\n"
        "    torch.linalg.svd(torch.ones(n, n, device='tpu'))\n",
        TORCHTPU_CACHE="0",
    )


def test_the_host_goes_on_while_a_program_uses_donated_memory(device: torch.device) -> None:
    factor = torch.eye(800).to(device)

    def returns_before_the_run_ends() -> bool:
        x = torch.randn(800, 800).to(device)
        torch.tpu.synchronize()
        for _ in range(40):
            x = x @ factor
        event = torch.tpu.Event()
        event.record()
        return not event.query()

    with torch.tpu.set_eager_mode("fused"):
        returns_before_the_run_ends()  # compiles
        torch.tpu.synchronize()
        assert any(returns_before_the_run_ends() for _ in range(5))
