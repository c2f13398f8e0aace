"""Clients that look for Google's torch_tpu: its names, served by torchtpu.pallas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers import check_python, run_python

pytest.importorskip("jax")

SCRIPT = """
import json, sys, torch
import torchtpu.compat
torchtpu.compat.install()
torchtpu.compat.install()
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from torch_tpu._internal.pallas import jax_op, tpu_torch_pallas
from torch_tpu._internal.pallas.pallas import JaxCallable, _get_kernel_invocation_key
from torch_tpu._internal.utils.hardware import get_tpu_device_name

def double(x, result):
    result[...] = x[...] * 2

x = torch.arange(8.0, device="tpu")
answers = [get_tpu_device_name()]
# As inductor does: a module of its own export.
exported = jax.export.export(jax.jit(lambda x, n: pl.pallas_call(double, out_shape=x)(x) + n), platforms=["tpu"])(
    jax.ShapeDtypeStruct((8,), "float32"), jax.ShapeDtypeStruct((), "int32"))
assert not tpu_torch_pallas.lookup_custom_kernel("double", "a key")
tpu_torch_pallas.register_custom_kernel("double", "a key", serialized_mlir_module=exported.mlir_module_serialized)
assert tpu_torch_pallas.lookup_custom_kernel("double", "a key")
(result,) = tpu_torch_pallas.call_custom_kernel(
    "double", "a key", inputs=[x, torch.tensor(1, dtype=torch.int32, device="tpu")],
    output_shapes=[torch.empty(8, device="meta")], donate_argnums=[])
answers.append(result.tolist())
try:
    tpu_torch_pallas.call_custom_kernel("double", "a key", inputs=[x], output_shapes=[], input_output_aliases={})
except TypeError:
    answers.append("TypeError")
# As helion does: a class of its own, and the kernel by what it has kept.
class Own(JaxCallable):
    __slots__ = ("kept",)

own = Own(name="own", jit_fn=jax.jit(lambda x, y: (x + y, y * 3)), trace_key="one", input_output_aliases={1: 1})
y = torch.ones(8, device="tpu")
total, tripled = own(x, y)
key = _get_kernel_invocation_key(own.trace_key, (x, y), {}, own.static_argnums)
shapes, tree = own.output_shapes[key]
again = tree.unflatten(tpu_torch_pallas.call_custom_kernel(
    own.name, own.kernel_key_to_mlir_fingerprint[key], inputs=[x, y], output_shapes=shapes,
    donate_argnums=own.donate_argnums, device_assignment=[]))
answers += [total.tolist(), y.tolist(), again[1].tolist()]
# Kernels without tensors run on the current device.
counting = JaxCallable("counting", lambda n: jnp.arange(n), static_argnums=(0,))
exported = jax.export.export(jax.jit(lambda: (jnp.arange(3.0),)), platforms=["cpu"])()
tpu_torch_pallas.register_custom_kernel("counted", "a key", exported.mlir_module_serialized)
counted = tpu_torch_pallas.call_custom_kernel(
    "counted", "a key", inputs=[], output_shapes=[torch.empty(3, device="meta")])
answers.append([counting(2).tolist(), counting(3).tolist(), counted[0].tolist(), str(counted[0].device)])
print(json.dumps(answers))
"""


def test_the_names_that_clients_use() -> None:
    name, result, error, total, written, again, counted = json.loads(check_python(SCRIPT).splitlines()[-1])
    assert name == "TPU v5 lite"
    assert result == [2.0 * i + 1 for i in range(8)]
    assert error == "TypeError"
    assert total == [i + 1.0 for i in range(8)]
    assert written == [3.0] * 8
    assert again == [9.0] * 8
    assert counted == [[0, 1], [0, 1, 2], [0.0, 1.0, 2.0], "tpu:0"]


def test_googles_package_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "torch_tpu.py").write_text("")
    code = f"import sys, torch; sys.path.insert(0, {str(tmp_path)!r}); import torchtpu.compat as c; c.install()"
    refused = run_python(code)
    assert refused.returncode != 0
    assert "torch_tpu is installed" in refused.stderr


HELION = """
import torch, torchtpu.compat
torchtpu.compat.install()
import helion, helion.language as hl

@helion.kernel(backend="pallas", config=helion.Config(block_sizes=[128, 128, 128]), static_shapes=True)
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (m, k), (_, n) = x.size(), y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out

x, y = torch.randn(256, 128, device="tpu"), torch.randn(128, 256, device="tpu")
for _ in range(2):
    torch.testing.assert_close(matmul(x, y), x @ y, atol=1e-4, rtol=1e-4)
print("done")
"""


def test_helion(tmp_path: Path) -> None:
    pytest.importorskip("helion")
    (tmp_path / "script.py").write_text(HELION)  # helion reads the source of its kernels
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import script"
    assert check_python(code, HELION_AUTOTUNE_EFFORT="none").splitlines()[-1] == "done"
