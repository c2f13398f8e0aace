"""Bad input gives one clear error at the call, in every mode, with PyTorch's class. Everything else stays usable."""

from __future__ import annotations

import copy
import gc
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers import check_python, check_refused, check_started_python, run_python, start_python

Tensor = torch.Tensor
F = torch.nn.functional

# Functions of a float32 tensor of sizes [2, 3] and an int64 tensor of size [3].
WRONG: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sizes do not broadcast": lambda x, i: x + x.new_ones(4),
    "in place would grow": lambda x, i: x[0].add_(x),
    "in place of another dtype": lambda x, i: i.add_(0.5),
    "matrix sizes": lambda x, i: x @ x,
    "vector times matrix": lambda x, i: torch.mv(x, x[:, 0]),
    "batched matrices": lambda x, i: torch.bmm(x, x),
    "matmul of dtypes": lambda x, i: x @ i,
    "view of another size": lambda x, i: x.view(4),
    "reshape to another size": lambda x, i: x.reshape(5, -1),
    "no such dimension": lambda x, i: x.sum(2),
    "dimension twice": lambda x, i: x.sum((0, 0)),
    "permutation too short": lambda x, i: x.permute(0),
    "index beyond the end": lambda x, i: x[2],
    "too many indices": lambda x, i: x[0, 0, 0],
    "index of floats": lambda x, i: x[x],
    "mask of another size": lambda x, i: x[torch.ones(3, dtype=torch.bool, device=x.device)],
    "assignment of another size": lambda x, i: x.__setitem__(0, x),
    "slices of different length": lambda x, i: x.__setitem__((slice(None), i[:2]), i),
    "select out of range": lambda x, i: x.select(1, 5),
    "narrow out of range": lambda x, i: x.narrow(1, 2, 2),
    "cat of different sizes": lambda x, i: torch.cat([x, x.t()]),
    "cat of nothing": lambda x, i: torch.cat([]),
    "stack of different sizes": lambda x, i: torch.stack([x, x.t()]),
    "expand of what is not 1": lambda x, i: x.expand(4, 3),
    "split sizes": lambda x, i: x.split([1, 3]),
    "unflatten": lambda x, i: x.unflatten(1, (2, 2)),
    "negative size": lambda x, i: x.new_empty(-1),
    "difference of bools": lambda x, i: (x > 0) - (x > 0),
    "gather of other dimensions": lambda x, i: x.gather(0, i),
    "index_select of floats": lambda x, i: x.index_select(0, x[0]),
    "scatter of another dtype": lambda x, i: x.scatter(0, i[None], i[None]),
    "topk beyond": lambda x, i: x.topk(4),
    "where of no condition": lambda x, i: torch.where(x, x, x),
    "linear": lambda x, i: F.linear(x, x.t()),
    "convolution channels": lambda x, i: F.conv2d(x[None, None], x.new_ones(1, 2, 1, 1)),
    "convolution kernel": lambda x, i: F.conv2d(x[None, None], x.new_ones(1, 1, 5, 5)),
    "cross entropy": lambda x, i: F.cross_entropy(x, i),
    "embedding of floats": lambda x, i: F.embedding(x, x),
    "layer norm": lambda x, i: F.layer_norm(x, (2,)),
    "pooling": lambda x, i: F.max_pool2d(x[None], 5),
    "dropout": lambda x, i: F.dropout(x, 2.0),
    "cholesky of no matrix": lambda x, i: torch.linalg.cholesky(x),
    "no dtype": lambda x, i: x.to(torch.float32, 3, 4, 5, 6),
    "arange without end": lambda x, i: torch.arange(0, 5, -1, device=x.device),
    "number of several": lambda x, i: x.item(),
    "repeat": lambda x, i: x.repeat(2),
    "as_strided beyond": lambda x, i: x.as_strided((7,), (1,)),
    "a form of gelu that is none": lambda x, i: torch.nn.functional.gelu(x, approximate="erf"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_wrong_arguments(wrong: Callable[[Tensor, Tensor], Any], device: torch.device, mode: str) -> None:
    x, i = torch.arange(6.0).reshape(2, 3), torch.arange(3)
    mine, indices = x.to(device), i.to(device)
    pending = mine * 2
    error = check_refused(
        lambda device: wrong(mine, indices) if device.type == "tpu" else wrong(x.clone(), i.clone()), device
    )
    assert "meta" not in re.sub(r"metadata|parameters?", "", str(error)), "a kernel of another device speaks"
    # Existing values are unharmed, including recorded ones.
    assert pending.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert torch.equal(mine.cpu(), x)
    assert (indices + 1).tolist() == [1, 2, 3]


def test_errors_say_what_pytorch_says(device: torch.device) -> None:
    x = torch.ones(2, 3, device=device)
    messages: dict[str, Callable[[], Any]] = {
        r"The size of tensor a \(3\) must match the size of tensor b \(4\) at non-singleton dimension 1": lambda: (
            x + torch.ones(4, device=device)
        ),
        r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x3\)": lambda: x @ x,
        r"shape '\[4\]' is invalid for input of size 6": lambda: x.view(4),
        r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)": lambda: x.sum(2),
        r"index 5 is out of bounds for dimension 0 with size 2": lambda: x[5],
        r"result type Float can't be cast to the desired output type Long": lambda: x.long().add_(0.5),
    }
    for message, wrong in messages.items():
        with pytest.raises((RuntimeError, IndexError), match=message):
            wrong()


# ---- devices and dtypes that do not fit ------------------------------------------------------------------------


def test_another_device_is_refused(device: torch.device, mode: str) -> None:
    x, y = torch.ones(3, device=device), torch.ones(3)
    index = torch.tensor([0, 1], device=device)
    weight = torch.ones(2, 3)
    for wrong in (
        lambda: x + y,
        lambda: y + x,
        lambda: y.add_(x),
        lambda: torch.cat([x, y]),
        lambda: torch.where(x > 0, x, y),
        lambda: F.linear(x, weight),
        lambda: x.index_add_(0, index, y[:2]),
        lambda: x.masked_fill_(y > 0, 1),
    ):
        with pytest.raises(RuntimeError, match=r"device"):
            wrong()
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*tpu:0 and cpu"):
        x + y
    assert (x + 1).tolist() == [2, 2, 2]
    assert y.tolist() == [1, 1, 1]
    # PyTorch accepts these.
    assert (x + torch.tensor(2)).tolist() == [3, 3, 3]
    assert x[torch.tensor([0, 2])].tolist() == [1, 1]


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.Conv1d(4, 4, 1),
        torch.nn.Conv1d(4, 4, 1, bias=False),
        torch.nn.ConvTranspose1d(4, 4, 1),
        torch.nn.Linear(4, 4),
        torch.nn.BatchNorm1d(4),
        torch.nn.LayerNorm(4),
        torch.nn.PReLU(),
    ],
    ids=repr,
)
def test_a_layer_that_is_on_the_cpu_is_refused(device: torch.device, layer: torch.nn.Module) -> None:
    x = torch.ones(1, 4, 4, device=device)
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*tpu:0 and cpu"):
        layer(x)
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*tpu:0 and cpu"):
        copy.deepcopy(layer).to(device)(x.cpu())
    assert layer(x.cpu()).shape == x.shape


def test_the_device_of_a_number_that_is_refused_is_named(device: torch.device) -> None:
    x, number = torch.ones(2, 2, device=device), torch.tensor(1.0)
    with pytest.raises(RuntimeError, match="Input 0 is on device tpu:0 and input 1 is on device cpu"):
        torch.block_diag(x, number)
    with pytest.raises(RuntimeError, match="Tensor on device tpu:0 is not on the expected device cpu"):
        torch.addr(number, x[0], x[0])


def test_numbers_out_of_range_are_refused_by_a_program_that_is_known(device: torch.device) -> None:
    x = torch.zeros(3, device=device)
    for draw, good, wrong, message in (
        (x.normal_, (0, 2.0), (0, -1.0), "normal expects std >= 0.0, but found std -1"),
        (x.uniform_, (1, 2.5), (3, -1.5), "uniform_ expects to return a .* range, but found from=3 > to=-1.5"),
        (x.exponential_, (2.5,), (-0.5,), "exponential_ expects lambda > 0.0, but found lambda=-0.5"),
        (x.bernoulli_, (0.25,), (1.5,), "bernoulli_ expects p to be in .*, but got p=1.5"),
    ):
        draw(*good)
        expected = x.tolist()
        with pytest.raises(RuntimeError, match=message):
            draw(*wrong)
        assert x.tolist() == expected


def test_refusals_are_those_of_the_cpu(device: torch.device) -> None:
    def message(call: Any, on: Any) -> tuple[type[Exception], str]:
        with pytest.raises(Exception, match=".") as raised:
            call(on)
        return raised.type, str(raised.value).replace("tpu:0", "cpu")

    for call in (
        lambda d: torch.complex(torch.ones(3, device=d), torch.ones(3, dtype=torch.int32, device=d)),
        lambda d: torch.bucketize(torch.ones(3, device=d), torch.ones(2, 2, device=d)),
        lambda d: torch.narrow_copy(torch.ones(3, device=d), 3, 0, 1),
        lambda d: torch.multinomial(torch.ones(2, 2, 2, device=d), 1),
        lambda d: -torch.ones(2, dtype=torch.bool, device=d),
        lambda d: torch.ones(2, dtype=torch.int32, device=d).mean([]),
        lambda d: torch.cat([torch.ones(2, device=d)] * 2, out=torch.ones(1, device=d).expand(4)),
    ):
        assert message(call, device) == message(call, "cpu")
    # The call of the CPU's kernel must not draw from its generator.
    torch.manual_seed(3)
    expected = torch.rand(())
    torch.manual_seed(3)
    with pytest.raises(RuntimeError, match="prob_dist must be 1 or 2 dim"):
        torch.multinomial(torch.ones(2, 2, 2, device=device), 1)
    assert torch.rand(()) == expected


def test_unsupported_dtypes(device: torch.device) -> None:
    for wrong in (
        lambda: torch.zeros(2, dtype=torch.uint8).view(torch.bits8).to(device),
        lambda: torch.empty(2, dtype=torch.bits8, device=device),
        lambda: torch.ones(2, device=device).to(torch.bits16),
    ):
        with pytest.raises((TypeError, NotImplementedError), match="dtype"):
            wrong()
    with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8).to(device)
    assert torch.ones(2, device=device).sum().item() == 2


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(lambda x: torch.mv(x, x[0]) | x[0], id="mv of bool"),
        pytest.param(lambda x: torch.nn.functional.hardswish(x.to(torch.complex64)), id="hardswish of complex64"),
        pytest.param(lambda x: torch.floor(x.to(torch.complex64)), id="floor of complex64"),
        pytest.param(lambda x: torch.nn.functional.silu(x.to(torch.int32)), id="silu of int32"),
        pytest.param(lambda x: torch.sort(x.to(torch.complex64)), id="sort of complex64"),
        pytest.param(lambda x: torch.linalg.qr(x.to(torch.int64)), id="qr of int64"),
        pytest.param(lambda x: x.to(torch.int16).normal_(), id="normal_ of int16"),
    ],
)
def test_dtypes_that_an_operator_does_not_take(
    operator: Callable[[Tensor], Any], device: torch.device, mode: str
) -> None:
    """Refused at the line with PyTorch's error, not later by the compiler."""
    x = torch.rand(4, 4) < 0.5
    error = check_refused(lambda on: operator(x.to(on)), device)
    assert "stablehlo" not in str(error)
    assert torch.equal((x.to(device) & x.to(device)).cpu(), x)


def test_out_of_memory(device: torch.device, mode: str) -> None:
    x = torch.arange(4.0, device=device)
    pending = x * 3
    gc.collect()
    before = torch.tpu.memory_allocated()

    def write() -> None:
        huge = torch.ones(1 << 44, device=device)
        huge.add_(1)[7].item()

    def copy() -> None:
        huge = x[:, None, None].expand(4, 1 << 20, 1 << 22).contiguous()
        huge[0, 0, 0].item()

    for wrong in (write, copy):
        with pytest.raises(RuntimeError, match=r"(?i)memory"):  # torch.OutOfMemoryError is one
            wrong()
    assert pending.tolist() == [0, 3, 6, 9]
    assert (x + 1).tolist() == [1, 2, 3, 4]
    assert torch.tpu.memory_allocated() == before
    with pytest.raises(RuntimeError):
        torch.empty(1 << 62, 1 << 62, device=device)


def test_indices_out_of_range_do_no_harm(device: torch.device, mode: str) -> None:
    """A device cannot raise an error that depends on data. It must not read or write elsewhere."""
    x = torch.arange(4.0, device=device)
    wrong = torch.tensor([7], device=device)
    try:
        x[wrong] = 5.0
        x[wrong].tolist()
    except (IndexError, RuntimeError):
        pass
    assert (torch.arange(4.0, device=device) + 1).tolist() == [1, 2, 3, 4]


# ---- operators without a lowering ------------------------------------------------------------------------------

LONELY = """
import warnings
import torch
library = torch.library.Library("test_errors", "DEF")
library.define("lonely(Tensor x, Tensor y) -> Tensor")
library.impl("lonely", lambda x, y: x * 2 + y, "CPU")
x, y = torch.ones(2, device="tpu"), torch.ones(2, dtype=torch.float32, device="tpu")
"""


def test_an_operator_without_row(device: torch.device) -> None:
    code = f"""{LONELY}
try:
    torch.ops.test_errors.lonely(x, y)
except NotImplementedError as error:
    message = str(error)
for part in ("lonely", "Float", "TORCHTPU_CPU_FALLBACK"):
    assert part in message or part.lower() in message, message
assert (x + 1).tolist() == [2, 2]
"""
    check_python(code, TORCHTPU_CPU_FALLBACK="")


def test_cpu_fallback_warns_once_and_counts(device: torch.device) -> None:
    code = f"""{LONELY}
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(3):
        z = torch.ops.test_errors.lonely(x, y)
assert z.is_tpu and z.tolist() == [3, 3]
about = [str(warning.message) for warning in told if "lonely" in str(warning.message)]
assert len(about) == 1, [str(warning.message) for warning in told]
fallen = torch.tpu.op_stats()["fallen_back"]
assert [count for name, count in fallen.items() if "lonely" in name] == [3], fallen
"""
    check_python(code, TORCHTPU_CPU_FALLBACK="1")


# ---- NaN and Inf -----------------------------------------------------------------------------------------------


def test_check_finite(device: torch.device) -> None:
    x = torch.tensor([1.0, 0.0], device=device)
    with torch.tpu.set_eager_mode("debug", check_finite=True):
        y = x + 1
        with pytest.raises(RuntimeError, match=r"(?s)log.*test_errors\.py") as told:
            y = x.log() * 2
        assert re.search("(?i)inf|nan|finite", str(told.value))
        with pytest.raises(RuntimeError, match="div"):
            x / x
        assert (y + 1).tolist() == [3, 2]
        assert torch.full((2,), 3, device=device).tolist() == [3, 3]
    assert x.log().tolist()[1] == float("-inf")


# ---- plugins ---------------------------------------------------------------------------------------------------

USE = "import torch; torch.ones(2, device='tpu')"


def refusal(code: str = USE, **environment: str) -> str:
    finished = run_python(code, **environment)
    assert finished.returncode == 1, f"{finished.returncode}: {finished.stderr}"
    return finished.stderr


def test_plugin_that_is_not_there() -> None:
    assert "/no/such/plugin.so" in refusal(TORCHTPU_PLUGIN="/no/such/plugin.so")


def test_plugin_that_is_none(tmp_path: Path) -> None:
    text = tmp_path / "plugin.so"
    text.write_text("not a library")
    assert str(text) in refusal(TORCHTPU_PLUGIN=str(text))
    library = Path(sysconfig.get_path("platlib")) / "torch/lib/libtorch_python.so"
    assert "GetPjrtApi" in refusal(TORCHTPU_PLUGIN=str(library))


def test_platform_that_is_none() -> None:
    message = refusal(TORCHTPU_PLATFORM="rocm")
    assert "rocm" in message
    assert "tpu" in message
    assert "cpu" in message


@pytest.mark.parametrize("count", ["0", "-1", "many", "1000"])
def test_number_of_devices_that_is_none(count: str) -> None:
    assert f"TORCHTPU_NUM_DEVICES={count}" in refusal(TORCHTPU_NUM_DEVICES=count)


@pytest.mark.parametrize("variable", ["TORCHTPU_EAGER_MODE=eager", "TORCHTPU_CPU_FALLBACK=yes", "TORCHTPU_TARGET=v5e"])
def test_variables_that_are_refused_when_the_device_is_used(variable: str) -> None:
    name, value = variable.split("=")
    assert name in refusal(**{name: value})
    # A process that does not use the device is not affected.
    finished = run_python("import torch; torch.ones(2)", **{name: value})
    assert (finished.returncode, finished.stderr) == (0, "")


def test_variables_that_are_ignored_with_a_warning() -> None:
    variables = {
        "TORCHTPU_CACHE": "never",
        "TORCHTPU_CACHE_PROGRAMS": "3",
        "TORCHTPU_CACHE_BYTES": "much",
        "TORCHTPU_CHUNK_BYTES": "-1",
        "TORCHTPU_COMPILE": "never",
    }
    # Some are read at import.
    finished = start_python("import torch; print(torch.ones(2, device='tpu').sum().item())", **variables)
    assert (finished.returncode, finished.stdout) == (0, "2.0\n")
    assert [name for name in variables if f"torchtpu: {name} must be" not in finished.stderr] == []


def test_a_mode_in_the_environment_that_is_empty() -> None:
    printed = check_started_python("import torch; print(torch.tpu.eager_mode.name)", TORCHTPU_EAGER_MODE="")
    assert printed == "STRICT\n"


def test_the_most_devices() -> None:
    code = """
import torch
x = torch.ones(2, device=f"tpu:{torch.tpu.device_count() - 1}", requires_grad=True)
(x * 2).sum().backward()
print(x.grad.device, x.grad.tolist())
"""
    assert check_python(code, TORCHTPU_NUM_DEVICES="127") == "tpu:126 [2.0, 2.0]\n"


def test_an_unread_index_error_is_printed_at_the_end() -> None:
    code = """
import torch
x = torch.arange(4.0, device="tpu")[torch.tensor([1, 9], device="tpu")]
"""
    finished = start_python(code, TORCHTPU_EAGER_MODE="strict")
    assert finished.returncode == 0
    assert "torchtpu: found when the process ended: IndexError: index 9 is out of bounds" in finished.stderr


@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_operators_while_python_shuts_down(mode: str) -> None:
    code = """
import sys
import torch

class Last:
    def __del__(self):
        for number in (3, 4):
            try:
                print(torch.ones(number, device="tpu").add(1).tolist(), flush=True)
            except Exception as error:
                print(error, flush=True)

torch.ones(3, device="tpu").add(1).tolist()
sys.modules["kept until the interpreter goes"] = Last()
"""
    finished = start_python(code, TORCHTPU_EAGER_MODE=mode)
    assert finished.returncode == 0
    known, new = finished.stdout.splitlines()
    assert known == "[2.0, 2.0, 2.0]"
    assert "the process ends" in new
    assert "panic" not in finished.stderr


def test_after_a_failure_the_process_goes_on() -> None:
    code = """
import torch
for _ in range(2):
    try:
        torch.ones(2, device="tpu")
    except RuntimeError as error:
        assert "/no/such" in str(error)
    else:
        raise AssertionError
assert torch.ones(2).sum().item() == 2
assert not torch.tpu.is_available()
assert torch.tpu.device_count() == 0
"""
    check_python(code, TORCHTPU_PLUGIN="/no/such")


OLD = """
#include <stddef.h>
struct Version { size_t size; void* next; int major, minor; };
struct Api { size_t size; void* next; struct Version version; };
static struct Api api = {sizeof(struct Api), NULL, {sizeof(struct Version), NULL, 0, 1}};
const struct Api* GetPjrtApi(void) { return &api; }
"""
DEAD = OLD.replace("return &api;", "return NULL;")


@pytest.mark.parametrize("source", [OLD, DEAD], ids=["too old", "no functions"])
def test_plugin_that_is_useless(source: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler to build a plugin")
    (tmp_path / "plugin.c").write_text(source)
    plugin = tmp_path / "plugin.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", plugin, tmp_path / "plugin.c"], check=True)
    assert str(plugin) in refusal(TORCHTPU_PLUGIN=os.fspath(plugin))


def test_custom_operators_without_a_kernel(device: torch.device) -> None:
    with torch.library._scoped_library("torchtpu_test", "FRAGMENT") as library:
        library.define("pure(Tensor x) -> Tensor")
        library.define("writing(Tensor(a!) x) -> Tensor")
        for name in ("pure", "writing"):
            operator = getattr(torch.ops.torchtpu_test, name)
            torch.library.register_fake(f"torchtpu_test::{name}", torch.empty_like, lib=library)
            with pytest.raises(NotImplementedError, match=f"torchtpu_test::{name}"):
                operator(torch.ones(2, device=device))
