"""Exported programs as StableHLO, run by a JAX without this package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torchtpu.export
from torch import Tensor, nn

from tests.small_models import TASKS

JAX = Path(__file__).parents[2] / ".venv-peers" / "jax" / "bin" / "python"

# Runs the module in argv[1] on the arrays in argv[2] and writes the results to argv[3].
RUN = """
import sys, jax, numpy as np
from jaxlib import xla_client
client = jax.devices("cpu")[0].client
text = open(sys.argv[1]).read()
program = client.compile_and_load(text, xla_client.DeviceList(tuple(client.devices()[:1])), xla_client.CompileOptions())
arrays = np.load(sys.argv[2])
jax.config.update("jax_enable_x64", True)
results = program.execute_sharded([jax.device_put(arrays[name]) for name in arrays])
results = results.disassemble_into_single_device_arrays()
np.savez(sys.argv[3], *[np.asarray(each[0]) for each in results])
"""


def run_in_jax(exported: torchtpu.export.StableHLO, inputs: tuple[Tensor, ...], folder: Path) -> list[Tensor]:
    if not JAX.exists():
        pytest.skip("no JAX: `make bench` sets one up")
    arrays = [*exported.weights.values(), *inputs]
    expected = [(each.dtype, each.shape) for each in exported.inputs]
    expected += [(each.dtype, ()) for each in exported.numbers]
    assert [(each.dtype, tuple(each.shape)) for each in arrays] == expected
    module, given, results = (folder / name for name in ("module.mlir", "inputs.npz", "results.npz"))
    module.write_text(exported.text)
    np.savez(given, *[each.numpy() for each in arrays])
    subprocess.run([str(JAX), "-c", RUN, str(module), str(given), str(results)], check=True, timeout=240)
    loaded = np.load(results)
    return [torch.from_numpy(loaded[name]) for name in loaded]


@pytest.mark.parametrize("weights", ["inside", "beside"])
@pytest.mark.parametrize("task", ["mlp", "gpt"])
def test_runs_in_jax(task: str, weights: str, tmp_path: Path) -> None:
    model, (inputs, _) = TASKS[task].model().eval(), TASKS[task].batch()
    exported = torchtpu.export.to_stablehlo(torch.export.export(model, inputs), weights)
    assert len(exported.weights) == (0 if weights == "inside" else len(exported.inputs) - len(inputs))
    (actual,) = run_in_jax(exported, inputs, tmp_path)
    torch.testing.assert_close(actual, model(*inputs).detach(), rtol=1e-4, atol=1e-5)


BYTECODE = """
import sys, torch, torchtpu.export
from torch import nn
model, x = nn.Sequential(nn.Linear(4, 3), nn.GELU()), torch.randn(2, 4)
exported = torchtpu.export.to_stablehlo(torch.export.export(model, (x,)))
sys.path.append(sys.argv[1])
import jax
from jaxlib import xla_client
from jax.extend.mlir import deserialize_portable_artifact
for version in ("7.0.0", None, "1.0.0"):
    content = exported.to_bytecode(version)
    assert content[:2] == b"ML" and b"StableHLO_v1." in content[:30]
client = jax.devices("cpu")[0].client
devices = xla_client.DeviceList(tuple(client.devices()[:1]))
program = client.compile_and_load(content, devices, xla_client.CompileOptions())
(result,) = program.execute_sharded([jax.device_put(x.numpy())]).disassemble_into_single_device_arrays()
torch.testing.assert_close(torch.tensor(result[0].tolist()), model(x).detach())
for version in ("0.1.0", "now"):
    try:
        exported.to_bytecode(version)
    except ValueError as error:
        assert f"StableHLO {version}" in str(error)
    else:
        raise AssertionError(f"StableHLO {version} is taken")
"""


def test_is_written_as_portable_bytecode() -> None:
    """In one process with JAX, which reads it and runs it."""
    if not JAX.exists():
        pytest.skip("no JAX: `make bench` sets one up")
    (packages,) = JAX.parents[1].glob("lib/python*/site-packages")
    subprocess.run([sys.executable, "-c", BYTECODE, str(packages)], check=True, timeout=240)


def test_bytecode_asks_for_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if JAX were not installed.
    monkeypatch.setitem(sys.modules, "jax.extend.mlir", None)
    exported = torchtpu.export.to_stablehlo(torch.export.export(nn.Linear(4, 2), (torch.randn(3, 4),)))
    with pytest.raises(ImportError, match="pip install"):
        exported.to_bytecode()


def test_exports_from_the_device_too(device: torch.device) -> None:
    model, x = nn.Linear(4, 2), torch.randn(3, 4)
    on_cpu = torchtpu.export.to_stablehlo(torch.export.export(model, (x,)))
    on_device = torchtpu.export.to_stablehlo(torch.export.export(model.to(device), (x.to(device),)))
    assert on_cpu == on_device


def test_mutated_buffers_are_results(tmp_path: Path) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: Tensor, flags: Tensor) -> Tensor:
            self.count += x
            return torch.where(flags, self.count, -self.count)

    inputs = (torch.tensor([1.0, 2.0]), torch.tensor([True, False]))
    exported = torchtpu.export.to_stablehlo(torch.export.export(Counter(), inputs), "beside")
    count, result = run_in_jax(exported, inputs, tmp_path)
    assert count.tolist() == [1, 2]
    assert result.tolist() == [1, -2]


def test_numbers_are_part_of_the_program(device: torch.device) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, factor: float, power: int) -> Tensor:
            return (x * factor) ** power

    x = torch.randn(3, 4)
    serve = torchtpu.export.Program(torchtpu.export.to_stablehlo(torch.export.export(Scaled(), (x, 2.5, 3))), device)
    torch.testing.assert_close(serve(x.to(device))[0].cpu(), (x * 2.5) ** 3)


def test_refuses_what_it_cannot_say() -> None:
    x = torch.randn(3, 4)
    with pytest.raises(NotImplementedError, match="random"):
        torchtpu.export.to_stablehlo(torch.export.export(nn.Dropout(), (x,)))

    class Counted(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, int]:
            return x, 2

    with pytest.raises(NotImplementedError, match="returns a number"):
        torchtpu.export.to_stablehlo(torch.export.export(Counted(), (x,)))
    with pytest.raises(ValueError, match="weights"):
        torchtpu.export.to_stablehlo(torch.export.export(nn.Linear(4, 2), (x,)), "outside")  # type: ignore[arg-type]


# Reads only the file.
SERVE = """
import sys, torch, torchtpu.export
serve = torchtpu.export.load(sys.argv[1])
inputs = torch.load(sys.argv[2])
torch.save([each.cpu() for each in serve(*(each.to("tpu") for each in inputs))], sys.argv[3])
"""


@pytest.mark.parametrize("weights", ["inside", "beside"])
def test_is_served_without_the_models_code(weights: str, device: torch.device, tmp_path: Path) -> None:
    model, (inputs, _) = TASKS["gpt"].model().eval(), TASKS["gpt"].batch()
    program, given, results = (tmp_path / name for name in ("program.pt", "inputs.pt", "results.pt"))
    torchtpu.export.to_stablehlo(torch.export.export(model, inputs), weights).save(program)
    torch.save(inputs, given)
    subprocess.run([sys.executable, "-c", SERVE, str(program), str(given), str(results)], check=True, timeout=240)
    (actual,) = torch.load(results)
    torch.testing.assert_close(actual, model(*inputs).detach(), rtol=1e-4, atol=1e-5)


def test_programs_are_told_apart(device: torch.device, tmp_path: Path) -> None:
    """Their functions have distinct names, also if several become one program."""
    x = torch.randn(3, 4)
    models = [nn.Linear(4, 4).eval(), nn.Sequential(nn.Linear(4, 4), nn.Tanh()).eval()]
    programs = [
        torchtpu.export.Program(torchtpu.export.to_stablehlo(torch.export.export(model, (x,))), device)
        for model in models
    ]
    expected = models[1](models[0](x)) + models[0](x)

    @torch.tpu.compile_step
    def serve(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return programs[1](*programs[0](x))[0] + programs[0](x)[0]

    torch.testing.assert_close(serve(x.to(device)).cpu(), expected.detach())
    transposed = torch.randn(4, 3, device=device).t()
    torch.testing.assert_close(programs[0](transposed)[0].cpu(), models[0](transposed.cpu()).detach())


def test_refuses_other_inputs(device: torch.device, tmp_path: Path) -> None:
    exported = torchtpu.export.to_stablehlo(torch.export.export(nn.Linear(4, 2), (torch.randn(3, 4),)))
    exported.save(tmp_path / "program.pt")
    serve = torchtpu.export.load(tmp_path / "program.pt", device)
    with pytest.raises(TypeError, match="takes 1 tensors, not 2"):
        serve(torch.ones(3, 4, device=device), torch.ones(3, 4, device=device))
    with pytest.raises(ValueError, match=r"shape \[3, 4\]"):
        serve(torch.ones(4, 4, device=device))
    torch.save({"weights": 1}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="not written"):
        torchtpu.export.load(tmp_path / "other.pt")
