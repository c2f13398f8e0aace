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


def test_divisions_of_64_bits() -> None:
    assert json.loads(check_python(DIVISIONS, TORCHTPU_TARGET="tpu")) == {}


def test_products_of_64_bits() -> None:
    assert json.loads(check_python(PRODUCTS, TORCHTPU_TARGET="tpu")) == []


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
