"""A TPU's compiler checks kernels, and kernels are saved to files."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers import assert_same, check_python

jax = pytest.importorskip("jax")

import torchtpu.pallas as pallas  # noqa: E402
from torchtpu.kernels.check import Compiler  # noqa: E402

from tests.kernels import samples  # noqa: E402
from tests.settings import without_quick_compiles  # noqa: E402

needs_libtpu = [
    pytest.mark.tpu_compiler,
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ,
        reason="libtpu is not installed: pip install libtpu",
    ),
]


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    parts = [sys.executable, "-m", "torchtpu", *map(str, arguments)]
    return subprocess.run(parts, capture_output=True, text=True, timeout=240, env=without_quick_compiles(os.environ))


@pytest.mark.parametrize("chips", [pytest.param("v5e,v6e,tpu7x", marks=needs_libtpu)])
def test_kernels_are_checked_without_a_tpu(chips: str) -> None:
    checked = command("kernels", "check", Path(__file__).parent / "refused.py", "--chip", chips)
    assert checked.returncode == 1, checked.stderr
    lines = checked.stdout.splitlines()
    for chip in chips.split(","):
        own = [line for line in lines if f"for {chip}" in line]
        taken, refused = own[:2], own[2:]
        assert [line.partition(":")[0] for line in own] == ["ok"] * 2 + ["refused"] * 3
        assert taken[0].startswith(f"ok: product for {chip}: compiles in")
        assert "the block (100, 100) of args[0] in the kernel product" in refused[0]
        assert "multiples of 8 and 128" in refused[0]
        assert "the kernel sort_rows (blocks float32[8, 128], float32[8, 128]) uses sort" in refused[1]
        assert "the kernel twice" in refused[2]
        assert "asks for 128.00M of VMEM, and there are" in refused[2]


@pytest.mark.parametrize("chip", [pytest.param("v6e", marks=needs_libtpu)])
def test_gradients_and_time_limits(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = pallas.custom_jax_kernel(samples.softmax_with_gradient, name="softmax")
    x = torch.empty(16, 128, device="meta")
    reports = kernel.check(chip, x, gradient=True)
    assert [report.kernel for report in reports] == ["softmax", "saving of softmax", "gradient saved of softmax"]
    with pytest.raises(pallas.KernelError, match=r"has not compiled the kernel softmax_kernel .* within 0 s"):
        kernel.check(chip, x, seconds=0)
    with pytest.raises(ValueError, match="it must be one of v4"):
        kernel.check("v3", x)


@pytest.mark.parametrize("topology", [pytest.param("v6e:1x1", marks=needs_libtpu)])
def test_bundles_hold_kernels(topology: str, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(
        "import torch\nimport torchtpu.pallas as pallas\nfrom tests.kernels.samples import matmul\n"
        "x = torch.empty(256, 256, device='meta')\n"
        "pallas.custom_jax_kernel(matmul(128), name='product').example(x, x)\n"
    )
    built = command("cache", "build", "--topology", topology, "--kernels", tmp_path / "kernels.py", tmp_path / "bundle")
    assert built.returncode == 0, built.stderr
    assert built.stdout.startswith(f"wrote 1 program for {topology}")


def test_a_compiler_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Compiler() as compiler:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(RuntimeError, match="died with status 1"):
            compiler.start()


def test_saved_kernels_need_no_jax(tmp_path: Path, device: torch.device) -> None:
    (tmp_path / "kernel_module.py").write_text(
        "def cube(x):\n    import jax.numpy as jnp\n    return jnp.power(x, 3)\n"
    )
    (tmp_path / "jax.py").write_text("raise ImportError('not installed')")
    sys.path.insert(0, str(tmp_path))
    try:
        import kernel_module
    finally:
        sys.path.remove(str(tmp_path))
    x = torch.tensor([1.0, 2.0, 3.0])
    cube = pallas.custom_jax_kernel(kernel_module.cube)
    assert (
        cube.save(tmp_path / "kernels.json", x, platforms=["cpu"], gradient=True) == 3
    )  # includes the values saved for the gradient
    printed = check_python(
        "import sys, torch\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import kernel_module\n"
        "import torchtpu.pallas as pallas\n"
        f"print(pallas.load({str(tmp_path / 'kernels.json')!r}))\n"
        "cube = pallas.custom_jax_kernel(kernel_module.cube)\n"
        "x = torch.tensor([1.0, 2.0, 3.0], device='tpu').requires_grad_()\n"
        "y = cube(x)\n"
        "y.sum().backward()\n"
        "print(y.tolist(), x.grad.tolist())\n",
        TORCHTPU_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert printed.splitlines() == ["3", "[1.0, 8.0, 27.0] [3.0, 12.0, 27.0]"]
    (tmp_path / "other.json").write_text("words")
    with pytest.raises(ValueError, match="no file of saved kernels"):
        pallas.load(tmp_path / "other.json")
    handle = object()
    unknown = pallas.custom_jax_kernel(lambda x: (x, handle)[0], name="unknown")
    with pytest.raises(ValueError, match="version="):
        unknown.save(tmp_path / "unknown.json", x)
    assert_same(unknown(x.to(device)), x)
