"""Forms that are written for a TPU compute the same results. Here their programs run on the CPU."""

from __future__ import annotations

import json

from tests.helpers import check_python

DIVISIONS = """
import json, random, torch
generator = random.Random(0)
# Numbers of all lengths, so that quotients have all lengths, and numbers next to the ends of the range.
values = [generator.getrandbits(63) >> generator.randrange(63) for _ in range(3000)]
values += [2**63 - 1, 2**63 - 2, 2**62, 2**31, 2**32 - 1, 2**32, 1, 2, 3]
values += [-value for value in values] + [-(2**63)]
x = torch.tensor(generator.sample(values * 3, len(values) * 3))
y = torch.tensor(generator.sample(values * 3, len(values) * 3))
x, y = torch.cat([x, x * y, x, x]), torch.cat([y, y, y >> 32, x + 1])
# The CPU's division traps if the quotient overflows.
kept = (y != 0) & ~((x == -(2**63)) & (y == -1))
x, y = x[kept], y[kept]
wrong = {}
for name, function in {
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "by a number": lambda a, b: a // 7 + a % 1000003,
    "gcd": torch.gcd,
}.items():
    differs = function(x.to("tpu"), y.to("tpu")).cpu() != function(x, y)
    if differs.any():
        wrong[name] = [x[differs][0].item(), y[differs][0].item()]
print(json.dumps(wrong))
"""

PRODUCTS = """
import json, torch
wrong = []
for equation, *shapes in (
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("i,i->", (6,), (6,)),
    ("abcd,dbe->abce", (2, 3, 4, 5), (5, 3, 6)),
    ("ij,jk->ik", (3, 0), (0, 5)),
):
    given = [torch.randint(-(2**62), 2**62, shape) for shape in shapes]
    on_device = torch.einsum(equation, *(each.to("tpu") for each in given))
    if not torch.equal(on_device.cpu(), torch.einsum(equation, *given)):
        wrong.append(equation)
print(json.dumps(wrong))
"""

# Rows that a reshape merged: linear layers, their gradients, and others whose dimensions end elsewhere.
ROWS = """
import json, torch
from torch.nn import functional as F

def layer(x, weight, bias):
    result = F.linear(x, weight, bias)
    result.square().sum().backward()
    return [result.detach(), *(each.grad for each in (x, weight, bias) if each is not None)]

def gradient(x, g):
    return [g.reshape(-1, g.shape[-1]).t() @ x.reshape(-1, x.shape[-1])]

def heads(x, weight):
    moved = x.transpose(1, 2)
    return [moved.reshape(moved.shape[0] * moved.shape[1], -1) @ weight, x.flatten(1) @ weight.repeat(3, 1)]

torch.manual_seed(0)
cases = []
for sizes in ((2, 3, 4), (1, 1, 4), (2, 1, 3, 4), (0, 3, 4)):
    cases.append((layer, torch.float32, torch.randn(sizes), torch.randn(5, 4), torch.randn(5)))
cases.append((layer, torch.bfloat16, torch.randn(2, 3, 4), torch.randn(5, 4), None))
for sizes in ((2, 3, 4), (3, 2, 4), (6, 4)):
    cases.append((gradient, torch.float32, torch.randn(sizes), torch.randn(2, 3, 5)))
# The third length and those after it are padded.
for length in range(4, 8):
    cases.append((layer, torch.float32, torch.randn(2, length, 4), torch.randn(5, 4), torch.randn(5)))
cases.append((heads, torch.float32, torch.randn(2, 5, 3, 4), torch.randn(20, 3)))
wrong = []
for function, dtype, *given in cases:
    results = []
    for device in ("tpu", "cpu"):
        there = [None if each is None else each.to(device, dtype).requires_grad_(function is layer) for each in given]
        results.append([each.cpu() for each in function(*there)])
    tolerance = 5e-2 if dtype is torch.bfloat16 else 1e-4
    for one, two in zip(*results, strict=True):
        if one.shape != two.shape or not torch.allclose(one, two, tolerance, tolerance):
            wrong.append([function.__name__, str(dtype), [list(each.shape) for each in given if each is not None]])
print(json.dumps(wrong))
"""


def test_divisions_of_64_bits() -> None:
    assert json.loads(check_python(DIVISIONS, TORCHTPU_TARGET="tpu")) == {}


def test_products_of_64_bits() -> None:
    assert json.loads(check_python(PRODUCTS, TORCHTPU_TARGET="tpu")) == []


def test_products_of_merged_rows() -> None:
    assert json.loads(check_python(ROWS, TORCHTPU_TARGET="tpu", TORCHTPU_EAGER_MODE="fused")) == []


REFUSALS = """
import json, torch
words = []
for refused in (
    lambda: torch.fft.fft(torch.ones(4, dtype=torch.complex128, device="tpu")),
    lambda: torch.fft.rfft(torch.ones(4, dtype=torch.float64, device="tpu")),
    lambda: torch.conv1d(*(torch.ones(1, 1, 3, dtype=torch.int64, device="tpu") for _ in range(2))),
):
    try:
        refused()
    except NotImplementedError as error:
        words.append(str(error))
print(json.dumps(words))
"""


def test_what_tpus_lack_is_refused_at_the_call() -> None:
    transforms, real, convolution = json.loads(check_python(REFUSALS, TORCHTPU_TARGET="tpu"))
    assert "TPUs have no Fourier transforms in double precision" in transforms
    assert "TPUs have no Fourier transforms in double precision" in real
    assert "TPUs have no convolutions of 64-bit integers" in convolution
