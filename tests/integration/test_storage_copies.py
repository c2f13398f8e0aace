"""Tensors whose storages PyTorch copies as bytes: the copies are equal, and share the programs of other tensors."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


def _loaded(value: Any, **how: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **how)


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "load": _loaded,
    "map_location": lambda value: _loaded(_loaded(value, map_location="cpu"), map_location="tpu"),
}
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


@pytest.fixture(params=("strict", "fused"))
def mode(request: pytest.FixtureRequest, device: torch.device) -> Any:
    with torch.tpu.set_eager_mode(request.param):
        yield device


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_are_equal(how: str, dtype: torch.dtype, mode: torch.device) -> None:
    if how == "pickle" and dtype == torch.float8_e4m3fn:
        pytest.skip("PyTorch pickles no float8 storages, on any device")
    numbers = (torch.arange(24) % 7).to(dtype)
    for view in (
        lambda x: x.view(2, 3, 4),
        lambda x: x.view(2, 3, 4).transpose(0, 2),
        lambda x: x.view(4, 6)[1:, ::2],
        lambda x: x[3],
        lambda x: x[:0],
    ):
        found, expected = COPIES[how](view(numbers.to(mode))), COPIES[how](view(numbers))
        assert (found.dtype, found.device.type) == (dtype, "tpu")
        assert found.stride() == expected.stride()
        assert torch.equal(found.cpu(), expected.cpu())


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_has_the_programs_of_other_tensors(how: str, device: torch.device) -> None:
    """A storage of bytes would be converted in each program."""
    x = torch.randn(37, 41, device=device)
    copied = COPIES[how](x)
    with torch.tpu.set_eager_mode("strict"):
        expected = (x.cos() * 2).cpu()
        torch.tpu.reset_cache_stats()
        assert torch.equal((copied.cos() * 2).cpu(), expected)
        stats = torch.tpu.cache_stats()
    assert stats["compiles"] + stats["disk_hits"] == 0


@pytest.mark.parametrize("how", COPIES)
def test_a_table_of_positions_that_was_copied_has_one_program(how: str, device: torch.device) -> None:
    table = COPIES[how](torch.randn(500, 8, device=device).unsqueeze(0).transpose(0, 1))
    with torch.tpu.set_eager_mode("strict"):
        made = []
        x = torch.zeros(1, 1, 8, device=device)
        for _ in range(14):
            torch.tpu.reset_cache_stats()
            x = torch.cat([x, (x + table[: x.size(0)])[-1:]])
            stats = torch.tpu.cache_stats()
            made.append(stats["compiles"] + stats["disk_hits"])
    assert made[9:] == [0] * 5, made


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_is_no_alias(how: str, mode: torch.device) -> None:
    x = torch.arange(6.0, device=mode)
    y = COPIES[how](x)
    x += 1
    y *= 2
    z = COPIES[how](y)
    y.zero_()
    assert x.tolist() == [1, 2, 3, 4, 5, 6]
    assert (y.tolist(), z.tolist()) == ([0] * 6, [0, 2, 4, 6, 8, 10])


@pytest.mark.parametrize("how", ["deepcopy", "load"])
def test_shared_storages_stay_shared(how: str, mode: torch.device) -> None:
    x = torch.arange(12.0, device=mode)
    a, b = COPIES[how]([x.view(3, 4), x[4:8]])
    a += 1
    assert b.tolist() == [5, 6, 7, 8]
    b.zero_()
    assert a[1].tolist() == [0] * 4
    assert x.tolist() == list(range(12))


def test_other_types_of_a_copied_storage(mode: torch.device) -> None:
    x = torch.arange(12.0, device=mode)
    a, b = copy.deepcopy([x.view(torch.int32), x])
    b += 1
    assert torch.equal(a.cpu(), torch.arange(1.0, 13).view(torch.int32))
    a.zero_()
    assert b.tolist() == [0] * 12


def test_a_value_with_padding_is_copied(device: torch.device) -> None:
    with torch.tpu.set_eager_mode("strict"):
        for length in range(3, 20):
            x = torch.arange(float(length)).to(device).repeat(2) * 2
            assert torch.equal(copy.deepcopy(x).cpu(), torch.arange(float(length)).repeat(2) * 2)
            assert torch.equal(_loaded(x).cpu(), x.cpu())


def test_a_failed_value_raises_where_it_is_copied(device: torch.device) -> None:
    with torch.tpu.set_eager_mode("strict"):
        wrong = torch.zeros(300, device=device).index_select(0, torch.tensor([999], device=device).expand(300))
        with pytest.raises(IndexError):
            copy.deepcopy(wrong).cpu()
        assert torch.ones(2, device=device).sum().item() == 2


def test_safetensors_have_the_programs_of_other_tensors(device: torch.device, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed: make test-libraries")
    cpu = {"a": torch.randn(37, 41), "b": torch.arange(7, dtype=torch.uint8), "c": torch.randn(3).bfloat16()}
    path = str(tmp_path / "model.safetensors")
    safetensors.save_file(cpu, path)
    for place in ("tpu", 0):
        found = safetensors.load_file(path, device=place)
        assert all(torch.equal(found[name].cpu(), value) for name, value in cpu.items())
        with torch.tpu.set_eager_mode("strict"):
            cpu["a"].to(device).cos().cpu()
            torch.tpu.reset_cache_stats()
            found["a"].cos().cpu()
            stats = torch.tpu.cache_stats()
        assert stats["compiles"] + stats["disk_hits"] == 0


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_and_its_source_in_one_operator(how: str, mode: torch.device) -> None:
    x = torch.arange(5000.0, device=mode) * 2
    y = COPIES[how](x)
    assert (x == y).all().item()
    y.add_(x)
    x.mul_(y)
    assert torch.equal(y.cpu(), torch.arange(5000.0) * 4)
    assert torch.equal(x.cpu(), torch.arange(5000.0) ** 2 * 8)
