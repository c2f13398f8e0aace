"""The store of kernels' texts: a warm process needs no JAX, and a key depends only on what the kernel computes."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest
import torch

from tests.helpers import check_python

jax = pytest.importorskip("jax")

import torchtpu.pallas as pallas  # noqa: E402
from torchtpu.kernels.fingerprint import fingerprint  # noqa: E402

MODULE = """
FACTOR = 2.0


def helper(x):
    return x * FACTOR


def kernel(x):
    import jax
    from jax.experimental import pallas as pl

    def body(x, result):
        result[...] = helper(x[...])

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def gelu(x):
    import jax
    return jax.nn.gelu(x)
"""
SCRIPT = """
import json, sys, torch
sys.path.insert(0, {folder!r})
import kernel_module
import torchtpu.pallas as pallas
from torchtpu.kernels.store import counters

kernel = pallas.custom_jax_kernel(kernel_module.kernel)
gelu = pallas.custom_jax_kernel(kernel_module.gelu)
x = torch.arange(8.0, device="tpu").requires_grad_()
torch.tpu.eager_mode = "fused"
y = kernel(x.detach())
gelu(x).sum().backward()
values = [y.tolist(), x.grad.tolist()]
print(json.dumps([values, "jax" in sys.modules, torch.tpu.cache_stats()["compiles"], counters]))
"""


def run(folder: Path, cache: Path, module: str = MODULE) -> list[object]:
    folder.mkdir(exist_ok=True)
    (folder / "kernel_module.py").write_text(module)
    printed = check_python(SCRIPT.format(folder=str(folder)), TORCHTPU_CACHE_DIR=str(cache))
    return json.loads(printed)


def test_a_warm_process_needs_no_jax(tmp_path: Path) -> None:
    values, has_jax, compiles, counts = run(tmp_path / "a", tmp_path / "cache")
    assert has_jax
    assert counts["traced"] == 3
    # The kernel moves to another folder, and to a later line of its file.
    moved = MODULE.replace("def kernel", "\n\n\n# a comment\n\ndef kernel")
    again, has_jax, compiles, counts = run(tmp_path / "b", tmp_path / "cache", moved)
    assert (has_jax, compiles, counts["traced"], counts["read"]) == (False, 0, 0, 3)
    assert again == values


def function(source: str, **names: object) -> object:
    names = dict(names)
    exec(compile(textwrap.dedent(source), f"file{len(source)}.py", "exec"), names)
    return names["f"]


def test_what_decides_a_fingerprint() -> None:
    first = fingerprint(function("def f(x, n=1):\n  return g(x) + n\ndef g(x):\n  return 2 * x"))
    assert first is not None
    assert first == fingerprint(function("\n\n# words\ndef f(x, n=1):\n  return g(x) + n\n\ndef g(x):\n  return 2 * x"))
    for other in (
        "def f(x, n=2):\n  return g(x) + n\ndef g(x):\n  return 2 * x",
        "def f(x, n=1):\n  return g(x) - n\ndef g(x):\n  return 2 * x",
        "def f(x, n=1):\n  return g(x) + n\ndef g(x):\n  return 3 * x",
        "def g(x):\n  return 2 * x\ndef make(k):\n  def f(x, n=1):\n    return g(x) + n * k\n  return f\nf = make(2)",
    ):
        assert fingerprint(function(other)) not in (None, first)
    assert fingerprint(function("def f(x):\n  return x + thing", thing=object())) is None
    patterns = [fingerprint(function("def f(x):\n  return x + p", p=re.compile(text))) for text in "ab"]
    assert len({None, *patterns}) == 3


def test_jax_is_asked_for_by_name(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError('not installed')")
    printed = check_python(
        "import sys, torch\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import torchtpu.pallas as pallas\n"
        "f = pallas.custom_jax_kernel(lambda x: x + 1, name='plus')\n"
        "try:\n    f(torch.ones(3, device='tpu'))\n"
        "except ImportError as error:\n    print(error)\n",
        TORCHTPU_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert "plus needs JAX" in printed
    assert "torchtpu[kernels]" in printed


def test_texts_name_no_file(device: torch.device) -> None:
    from torchtpu.kernels.calls import Spec
    from torchtpu.kernels.store import text_of

    from tests.kernels import samples
    from tests.kernels.samples import call_of

    kernel = pallas.custom_jax_kernel(samples.matmul(128), name="product")
    call = call_of(kernel, 2)
    spec = Spec(torch.float32, (256, 256))
    text = text_of(call, [spec, spec], "tpu").functions
    assert "tpu_custom_call" in text
    assert "samples" not in text
    assert str(Path(__file__).parent) not in text
