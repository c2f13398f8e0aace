"""The cache of compiled programs: in memory, on disk, between processes, and on other machines."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.cache_folders import TRAIN, command, entries, train
from tests.helpers import check_python, run_python, start_python
from tests.settings import without_quick_compiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache folder that does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def copy(warm: tuple[Path, dict[str, Any]], folder: Path) -> Path:
    """A copy of the warm folder, to be damaged."""
    shutil.copytree(warm[0], folder)
    return folder


# ---- on disk -----------------------------------------------------------------------------------------------------


def test_a_second_process_compiles_nothing(warm: tuple[Path, dict[str, Any]]) -> None:
    folder, first = warm
    assert first["compiles"] == len(entries(folder)) > 10
    assert first["disk_hits"] == 0
    second, errors = train(folder)
    assert errors == ""
    assert second["compiles"] == second["waits"] == 0
    assert second["disk_hits"] == first["compiles"]
    # The numbers of requests are not compared: one process in a hundred asks once less for a program that it has.
    assert first["requests"] == first["hits"] + first["compiles"]
    assert second["requests"] == second["hits"] + second["disk_hits"]
    assert second["losses"] == first["losses"], "to the last bit"
    assert second["load_seconds"] > 0


SORTS = """
import torch, torchtpu
torch.tpu.set_eager_mode("strict")
x = torch.arange(40, device="tpu").cos()
for dtype in (torch.float32, torch.int32, torch.int64, torch.bfloat16, torch.float64, torch.bool):
    x.to(dtype).sort(), x.to(dtype).argsort(descending=True)
x.unique(), x.kthvalue(3), x.topk(3), torch.linalg.eigvalsh(x.outer(x))
torch.tpu.synchronize()
print(torch.tpu.cache_stats()["compiles"])
"""


def test_sorts_are_kept(folder: Path) -> None:
    """XLA's CPU compiler can serialize a sort only before its first run."""
    for compiles_nothing in (False, True):
        finished = run_python(SORTS, TORCHTPU_CACHE_DIR=str(folder))
        assert finished.stderr == ""
        assert (finished.stdout == "0\n") == compiles_nothing


# A compiled training; argv: "save" or "load", and the file of artifacts.
ARTIFACTS = """
import json, sys, torch
if sys.argv[1] == "load":
    info = torch.compiler.load_cache_artifacts(open(sys.argv[2], "rb").read())
    assert info.tpu_programs_artifacts
torch.manual_seed(0)
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh()).to("tpu"))
losses = []
for step in range(2):
    loss = model(torch.randn(4, 6).to("tpu")).square().sum()
    loss.backward()
    losses.append(loss.item().hex())
if sys.argv[1] == "save":
    content, info = torch.compiler.save_cache_artifacts()
    assert len(info.tpu_programs_artifacts) == 1
    open(sys.argv[2], "wb").write(content)
print(json.dumps({"losses": losses, **torch.tpu.cache_stats()}))
"""


def test_artifacts_of_torch_compile(tmp_path: Path) -> None:
    answers = []
    for what in ("save", "load"):
        variables = {"TORCHTPU_CACHE_DIR": str(tmp_path / what)}
        finished = run_python(f"import sys; sys.argv[1:] = {[what, str(tmp_path / 'file')]}\n{ARTIFACTS}", **variables)
        assert finished.returncode == 0, finished.stderr
        answers.append(json.loads(finished.stdout))
    saved, loaded = answers
    assert loaded["compiles"] == 0 < saved["compiles"]
    assert loaded["losses"] == saved["losses"]


def test_files_are_private(warm: tuple[Path, dict[str, Any]]) -> None:
    folder = warm[0] / "programs"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_donation_survives_the_disk(folder: Path) -> None:
    code = """
import torch
x = torch.zeros(256, 256, device="tpu")
for _ in range(3):
    y = x * 2
    x.add_(1)
    x.mul_(2)
torch.tpu.synchronize()
assert torch.equal(x.cpu(), torch.full((256, 256), 14.0)), x
assert torch.equal(y.cpu(), torch.full((256, 256), 12.0)), y
torch.tpu.reset_peak_memory_stats()
before = torch.tpu.memory_allocated()
for _ in range(5):
    x.add_(1)
torch.tpu.synchronize()
print(torch.tpu.max_memory_allocated() - before, torch.tpu.cache_stats()["disk_hits"] > 0)
"""
    cold, warm = (run_python(code, TORCHTPU_CACHE_DIR=str(folder)) for _ in range(2))
    assert (cold.stdout, warm.stdout) == ("0 False\n", "0 True\n"), cold.stderr + warm.stderr


def test_names_of_the_process_are_not_in_the_key(folder: Path) -> None:
    """The same program is found although other operators ran before it."""
    asked = "(torch.ones(7, device='tpu') * 3).relu().sum().item()"
    compiles = []
    for before in ["", "torch.ones(9, device='tpu').exp().cumsum(0).sum().item()"]:
        code = f"""
import torch
torch.tpu.eager_mode = "fused"
{before}
torch.tpu.reset_cache_stats()
{asked}
print(torch.tpu.cache_stats()["compiles"])
"""
        finished = run_python(code, TORCHTPU_CACHE_DIR=str(folder))
        assert finished.returncode == 0, finished.stderr
        compiles.append(finished.stdout)
    assert compiles == ["1\n", "0\n"]


def test_the_disk_can_be_switched_off(folder: Path) -> None:
    answer, errors = train(folder, TORCHTPU_CACHE="0")
    assert errors == ""
    assert answer["compiles"] > 10
    assert not folder.exists()


def test_the_folder_is_bounded(warm: tuple[Path, dict[str, Any]], folder: Path) -> None:
    bound = sum(path.stat().st_size for path in entries(warm[0])) // 2
    answer, errors = train(folder, TORCHTPU_CACHE_BYTES=str(bound))
    assert errors == ""
    assert answer["losses"] == warm[1]["losses"]
    left = entries(folder)
    assert 0 < len(left) < answer["compiles"]
    assert sum(path.stat().st_size for path in left) <= bound


def test_damage_costs_a_compile_and_a_warning(copy: Path, warm: tuple[Path, dict[str, Any]]) -> None:
    paths = entries(copy)
    contents = [path.read_bytes() for path in paths]
    for index, (path, content) in enumerate(zip(paths, contents, strict=True)):
        match index % 5:
            case 0:
                path.write_bytes(content[: len(content) * 2 // 3])
            case 1:
                path.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
            case 2:
                path.write_bytes(b"")
            case 3:
                path.write_bytes(contents[index - 1])  # another program's
            case 4:
                path.chmod(0o666)
    answer, errors = train(copy)
    assert answer["losses"] == warm[1]["losses"]
    assert answer["compiles"] == len(paths)
    assert errors.count("UserWarning: torchtpu: the compiled program ") == errors.count("UserWarning") == 1, errors
    assert train(copy)[0]["compiles"] == 0, "written anew"


def test_an_entry_that_cannot_be_replaced(copy: Path, warm: tuple[Path, dict[str, Any]]) -> None:
    for path in entries(copy):
        path.unlink()
        path.mkdir()
    answer, errors = train(copy)
    assert answer["losses"] == warm[1]["losses"]
    assert "the compiled program " in errors
    assert "compiled programs are no longer kept" in errors


@pytest.mark.parametrize("place", ["a file", "not to be made", "others may write"])
def test_a_folder_that_cannot_be_used_costs_a_warning(folder: Path, place: str) -> None:
    match place:
        case "a file":
            folder.write_text("")
        case "not to be made":
            folder = Path("/proc/cache")
        case "others may write":
            (folder / "programs").mkdir(parents=True)
            (folder / "programs").chmod(0o777)
    answer, errors = train(folder)
    assert answer["compiles"] > 10
    assert errors.count("UserWarning: torchtpu: the cache folder ") == errors.count("UserWarning") == 1, errors


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_others_are_not_loaded(copy: Path, warm: tuple[Path, dict[str, Any]]) -> None:
    for path in entries(copy):
        os.chown(path, 12345, -1)
    answer, errors = train(copy)
    assert answer["compiles"] == warm[1]["compiles"]
    assert "belongs to user 12345" in errors


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_read(copy: Path) -> None:
    entries(copy)[0].unlink()
    (copy / "programs").chmod(0o500)
    answer, errors = train(copy)
    assert answer["compiles"] == 1
    assert errors.count("UserWarning") == 1, errors


def test_warnings_that_are_errors_do_not_fail_the_training(copy: Path) -> None:
    for path in entries(copy):
        path.write_bytes(b"")
    answer, errors = train(copy, PYTHONWARNINGS="error:torchtpu:UserWarning")
    assert len(answer["losses"]) == 3
    assert "the compiled program" in errors


# ---- several processes -------------------------------------------------------------------------------------------


def test_processes_that_share_a_cold_cache_compile_once(warm: tuple[Path, dict[str, Any]], folder: Path) -> None:
    code = f"""
import os
for _ in range(2):
    if os.fork() == 0:
        break
else:
    os.wait(), os.wait()
    os._exit(0)
{TRAIN}
"""
    # Two at once; each line is short enough to be written at once.
    finished = run_python(code, TORCHTPU_CACHE_DIR=str(folder))
    assert finished.returncode == 0, finished.stderr
    answers = [json.loads(line) for line in finished.stdout.splitlines()]
    assert len(answers) == 2
    one = warm[1]
    assert all(answer["losses"] == one["losses"] for answer in answers)
    assert one["compiles"] <= sum(answer["compiles"] for answer in answers) <= 1.05 * one["compiles"]


def test_a_process_that_is_killed_leaves_no_lock(warm: tuple[Path, dict[str, Any]], folder: Path) -> None:
    code = f"""
import os, signal
child = os.fork()
if child:
    while not os.path.exists({str(folder / "programs" / ".locks")!r}):
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print("killed", flush=True)
    os._exit(0)
{TRAIN}
"""
    assert run_python(code, TORCHTPU_CACHE_DIR=str(folder)).stdout == "killed\n"
    answer, errors = train(folder)
    assert errors == ""
    assert answer["losses"] == warm[1]["losses"]


# ---- in memory ---------------------------------------------------------------------------------------------------


def test_memory_is_bounded(folder: Path) -> None:
    code = """
import torch
for size in list(range(1, 60)) + [1, 40, 59]:
    assert (torch.ones(size, device="tpu") * 2).sum().item() == 2 * size
stats = torch.tpu.cache_stats()
assert stats["requests"] == stats["hits"] + stats["disk_hits"] + stats["compiles"], stats
assert stats["evictions"] > 120, stats
print(stats["compiles"], stats["disk_hits"])
"""
    # The variable is read at import.
    finished = start_python(code, TORCHTPU_CACHE_DIR=str(folder), TORCHTPU_CACHE_PROGRAMS="16")
    assert finished.returncode == 0, finished.stderr
    compiles, disk_hits = map(int, finished.stdout.split())
    assert compiles == len(entries(folder))
    assert disk_hits >= 3, "what had left memory was still on disk"


def test_explain_says_that_a_program_was_evicted(folder: Path) -> None:
    code = """
import torch
torch.tpu.set_eager_mode("strict")
ones = [torch.ones(size, device="tpu") for size in range(1, 30)]
for x in ones:
    x * 2
with torch.tpu.explain() as explanation:
    ones[0] * 2
    ones[28] * 2
print(*explanation.compiles[0]["why"], len(explanation.compiles))
"""
    settings = {"TORCHTPU_CACHE_DIR": str(folder), "TORCHTPU_CACHE_PROGRAMS": "16", "TORCHTPU_SIZES": "static"}
    finished = start_python(code, **settings)
    assert finished.returncode == 0, finished.stderr
    assert "removed from memory" in finished.stdout, finished.stdout
    assert finished.stdout.split()[-1] == "1", finished.stdout


def test_different_operators_may_share_a_program(device: torch.device) -> None:
    with torch.tpu.set_eager_mode("strict"):
        x = torch.ones(3, 61, device=device)
        torch.add(x, x).cpu()
        torch.tpu.reset_cache_stats()
        torch.add(x, x, out=torch.empty_like(x)).cpu()
        assert torch.tpu.cache_stats()["compiles"] == 0


# ---- python -m torchtpu cache ------------------------------------------------------------------------------------


def test_stats_and_list(warm: tuple[Path, dict[str, Any]]) -> None:
    folder, answer = warm
    stats = json.loads(command(folder, "stats", "--json").stdout)
    assert stats["programs"] == answer["compiles"]
    assert stats["folder"] == str(folder / "programs")
    assert stats["bytes"] == sum(path.stat().st_size for path in entries(folder))
    assert len(stats["targets"]) == 1
    listed = json.loads(command(folder, "list", "--json").stdout)
    assert {entry["name"] for entry in listed} == {path.name for path in entries(folder)}
    assert sum(entry["compile_seconds"] for entry in listed) == pytest.approx(answer["compile_seconds"], rel=0.01)
    assert "platform cpu" in command(folder, "stats").stdout
    assert "_log_softmax" in command(folder, "list").stdout


def test_clear(copy: Path) -> None:
    count = len(entries(copy))
    assert command(copy, "clear").stdout == f"removed {count} programs\n"
    assert entries(copy) == []
    assert "programs  0" in command(copy, "stats").stdout


def test_info_names_the_folder(folder: Path) -> None:
    code = "from torchtpu import __main__; __main__.main(['info', '--json'])"
    finished = run_python(code, TORCHTPU_CACHE_DIR=str(folder))
    assert json.loads(finished.stdout)["cache_folder"] == str(folder / "programs")
    finished = run_python(code, TORCHTPU_CACHE="0")
    assert "TORCHTPU_CACHE=0" in json.loads(finished.stdout)["cache_folder"]


def test_commands_without_a_folder() -> None:
    for action in (["stats"], ["list"], ["clear"], ["export", "/nowhere/bundle"], ["import", "/nowhere/bundle"]):
        finished = command(Path("/nowhere"), *action, TORCHTPU_CACHE="0")
        assert finished.returncode == 1
        assert finished.stderr == "compiled programs are not kept on disk: TORCHTPU_CACHE=0 switches it off\n"


def test_a_bundle_warms_another_folder(warm: tuple[Path, dict[str, Any]], folder: Path, tmp_path: Path) -> None:
    bundle, count = tmp_path / "bundle", warm[1]["compiles"]
    assert command(warm[0], "export", bundle).stdout == f"wrote {count} programs to {bundle}\n"
    imported = command(folder, "import", bundle)
    assert (imported.returncode, imported.stderr) == (0, "")
    assert imported.stdout == f"added {count} programs; 0 were here already\n"
    assert command(folder, "import", bundle).stdout == f"added 0 programs; {count} were here already\n"
    answer, _ = train(folder)
    assert (answer["compiles"], answer["losses"]) == (0, warm[1]["losses"])


def test_bundles_of_other_compilers_are_refused(copy: Path, tmp_path: Path) -> None:
    bundle, elsewhere = tmp_path / "bundle", tmp_path / "elsewhere"
    command(copy, "export", bundle)
    refused = command(elsewhere, "import", bundle, XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    assert refused.returncode == 1
    assert "which this machine cannot use" in refused.stderr
    assert "here is XLA_FLAGS --xla_cpu_enable_fast_math=false" in refused.stderr
    assert entries(elsewhere) == []
    assert train(copy, XLA_FLAGS="--xla_cpu_enable_fast_math=false")[0]["disk_hits"] == 0


def test_damaged_bundles(warm: tuple[Path, dict[str, Any]], folder: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    command(warm[0], "export", bundle)
    bundle.write_bytes(bundle.read_bytes()[:-50])
    imported = command(folder, "import", bundle)
    assert imported.stdout == f"added {warm[1]['compiles'] - 1} programs; 0 were here already\n"
    assert "1 program left out, as the bundle is damaged there" in imported.stderr
    bundle.write_text("anything else")
    refused = command(folder, "import", bundle)
    assert refused.returncode == 1
    assert "is not a bundle" in refused.stderr


@pytest.mark.tpu_compiler
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ,
    reason="libtpu is not installed: pip install libtpu",
)
def test_a_bundle_is_built_for_a_tpu_that_is_not_there(folder: Path, tmp_path: Path) -> None:
    programs, bundle = tmp_path / "programs", tmp_path / "bundle"
    programs.mkdir()
    code = (
        "import sys, torch; from torchtpu import _C; _C.dump_programs(sys.argv[1]); torch.ones(8, device='tpu').exp()"
    )
    variables = {**os.environ, "TORCHTPU_EAGER_MODE": "strict"}
    subprocess.run([sys.executable, "-c", code, str(programs)], check=True, env=variables, timeout=240)
    count = len(list(programs.iterdir()))
    assert count >= 1
    (programs / "wrong.mlir").write_text("this is no program")
    options = ["--topology", "v5e:1x1", programs, bundle]
    built = command(folder, "build", *options, **without_quick_compiles({**os.environ, "TPU_LOG_DIR": "disabled"}))
    assert built.returncode == 1
    assert "wrong.mlir is left out" in built.stderr
    assert built.stdout.startswith(f"wrote {count} program")
    refused = command(folder, "import", bundle)
    assert refused.returncode == 1
    assert "made for plugin libtpu.so" in refused.stderr


# The kernel joins neighbours with equal rights to one map. It limits the number of maps of a process.
MANY_MAPS = """
import mmap
import torch

with open("/proc/sys/vm/max_map_count") as file:
    wanted = int(file.read()) * 4 // 5
maps = []
for i in range(wanted):
    maps.append(mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ if i % 2 else mmap.PROT_READ | mmap.PROT_WRITE))
x = torch.arange(2.0, device="tpu")
for size in range(70):
    assert torch.zeros(2, size + 1, device="tpu").shape[1] == size + 1 and (x.repeat(size + 1) + 1)[1].item() == 2
assert torch.tpu.cache_stats()["evictions"] > 0
print("done")
"""


def test_programs_are_evicted_before_maps_run_out(tmp_path: Path) -> None:
    """On the CPU plugin each kernel of a program takes some. Without maps, compiling fails and the process ends."""
    allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
    if allowed > 1 << 18:
        pytest.skip(f"the kernel allows {allowed:,} maps, which the test would take")
    assert check_python(MANY_MAPS, TORCHTPU_CACHE_DIR=str(tmp_path), TORCHTPU_SIZES="static") == "done\n"
