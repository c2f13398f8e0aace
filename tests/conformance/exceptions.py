"""Operators whose results are compared otherwise than value by value, and failures that are expected."""

from __future__ import annotations

import functools
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from tests.conformance.ahead import TOPOLOGIES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

EXPECTED = Path(__file__).with_name("expected_failures.toml")
REFUSALS = Path(__file__).with_name("tpu_refusals.toml")
REGRESSIONS = Path(__file__).with_name("regressions.txt")

# Compared by dtype, shape and range only: what is drawn differs between devices. Names may be patterns.
_DRAWS = "draws random numbers"
_BLANK = "leaves its result uninitialized"
_PROJECTS = "projects onto random vectors"
RANDOM = {
    "bernoulli": _DRAWS,
    "cauchy": _DRAWS,
    "exponential": _DRAWS,
    "geometric": _DRAWS,
    "log_normal": _DRAWS,
    "multinomial": _DRAWS,
    "normal*": _DRAWS,
    "rand*": _DRAWS,
    "uniform": _DRAWS,
    "nn.functional.*dropout*": _DRAWS,
    "nn.functional.fractional_max_pool*": _DRAWS,
    "nn.functional.multi_head_attention_forward": _DRAWS,
    "nn.functional.rrelu": _DRAWS,
    "nn.functional.scaled_dot_product_attention": _DRAWS,
    "torch.ops.aten._*_attention_forward": _DRAWS,
    "nn.*Dropout*": _DRAWS,
    "nn.RReLU": _DRAWS,
    "nn.FractionalMaxPool*": _DRAWS,
    "empty*": _BLANK,
    "new_empty*": _BLANK,
    "resize_*": _BLANK,
    "svd_lowrank": _PROJECTS,
    "pca_lowrank": _PROJECTS,
}
# In [0, 1], by definition; other random results need only be finite where the CPU's are.
UNIT_RANGE = frozenset({"bernoulli", "rand_like"})

# A factorization that is unique up to the phase of its vectors is compared after what PyTorch's samples do about that.
UNIQUE_UP_TO_PHASE = frozenset(
    {
        "svd",
        "linalg.svd",
        "linalg.eig",
        "linalg.eigh",
        "linalg.lstsq",
        "linalg.lstsq.grad_oriented",
        "linalg.pinv.singular",
        "linalg.ldl_factor",
        "linalg.ldl_factor_ex",
    }
)

# Eigenvalues of general matrices come in no order.
IN_ANY_ORDER = frozenset({"linalg.eig", "linalg.eigvals"})

# Among equal elements any may be the one chosen, and the CPU's choice follows no rule: the indices are compared by what
# they point to. The number is where the operator takes its dimension.
CHOOSES_AMONG_EQUALS = {"argsort": 0, "kthvalue": 1, "median": 0, "mode": 0, "nanmedian": 0, "sort": 0, "topk": 1}

# Operators that take their further tensors on the CPU, whatever the device.
TAKES_CPU_TENSORS = frozenset({"tensor_split"})


def is_random(subject: str) -> bool:
    return any(fnmatchcase(subject, pattern) for pattern in RANDOM)


@functools.cache
def listed(path: Path) -> list[tuple[str, str]]:
    """The patterns of a list, each with its reason."""
    groups = tomllib.loads(path.read_text()).get("failure", [])
    return [(pattern, group["reason"]) for group in groups for pattern in group["cases"]]


def expected_failure(case: str) -> tuple[str, str] | None:
    """The pattern of the list that a case matches, and the reason given there."""
    path = REFUSALS if case.rpartition("/")[2] in TOPOLOGIES else EXPECTED
    return next((entry for entry in listed(path) if fnmatchcase(case, entry[0])), None)


def regressions() -> list[str]:
    """Cases that failed once and were then made to pass."""
    return [line for line in REGRESSIONS.read_text().splitlines() if line and not line.startswith("#")]
