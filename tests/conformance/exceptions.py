"""Operators whose results are not compared by value, and expected failures."""

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

# Compared by dtype, shape and range only, because random numbers differ between devices. Names may be patterns.
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
# In [0, 1] by definition. Other random results need only be finite where the CPU's are.
UNIT_RANGE = frozenset({"bernoulli", "rand_like"})

# Factorizations that are unique up to the phase of vectors are compared after the processing in PyTorch's samples.
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

# The order of eigenvalues of general matrices is undefined.
IN_ANY_ORDER = frozenset({"linalg.eig", "linalg.eigvals"})

# Any of several equal elements may be chosen, and the CPU's choice follows no rule, so the indices are compared by
# the elements at these indices. The number is the position of the dimension argument.
CHOOSES_AMONG_EQUALS = {"argsort": 0, "kthvalue": 1, "median": 0, "mode": 0, "nanmedian": 0, "sort": 0, "topk": 1}

# Operators that take some tensors on the CPU, whatever the device.
TAKES_CPU_TENSORS = frozenset({"tensor_split"})


def is_random(subject: str) -> bool:
    return any(fnmatchcase(subject, pattern) for pattern in RANDOM)


@functools.cache
def listed(path: Path) -> list[tuple[str, str]]:
    """The patterns of a list, each with its reason."""
    groups = tomllib.loads(path.read_text()).get("failure", [])
    return [(pattern, group["reason"]) for group in groups for pattern in group["cases"]]


def expected_failure(case: str) -> tuple[str, str] | None:
    """The pattern in the list that matches a case, and its reason."""
    path = REFUSALS if case.rpartition("/")[2] in TOPOLOGIES else EXPECTED
    return next((entry for entry in listed(path) if fnmatchcase(case, entry[0])), None)


def regressions() -> list[str]:
    """Cases that failed once and were then fixed."""
    return [line for line in REGRESSIONS.read_text().splitlines() if line and not line.startswith("#")]
