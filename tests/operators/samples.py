"""Conformance cases of a family's operators, for the family's test file."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable

import pytest
import torch

from tests.settings import SEED

# The number of inputs for the forward pass; other directions get fewer. The sweep of tests/conformance has 8.
FORWARD_INPUTS = int(os.environ.get("TORCHTPU_OPERATOR_INPUTS", "5"))
INPUTS = 2
# The number of other dtypes and directions, drawn with TORCHTPU_TEST_SEED.
DRAWN = 1


@functools.cache
def cases_of(name: str) -> list[str]:
    """The cases of an operator to run, without their mode; the most important first."""
    # PyTorch's lists take seconds to load, so a test loads them when it runs, not during collection.
    from tests.conformance.cases import DTYPES, FINITE_DIFFERENCES, cases, subjects

    if name not in subjects():
        return []
    found = list(dict.fromkeys(case[:3] for case in cases((name,), modes=("strict",))))
    found = [case for case in found if case[2] not in FINITE_DIFFERENCES]
    # The sweep tests dtypes that PyTorch's CPU does not support.
    found = [case for case in found if not subjects()[name].is_for_cuda_only(getattr(torch, case[1]))] or found
    first = next((case for dtype in DTYPES for case in found if case[1:] == (dtype, "forward")), found[0])
    others = [case for case in found if case != first]
    drawn = random.Random(f"{name} {SEED}").sample(others, min(DRAWN, len(others)))
    return ["/".join(case) for case in (first, *drawn)]


def samples(*names: str) -> Callable[[str, str], None]:
    """A test of these operators, by their names in PyTorch's lists."""

    @pytest.mark.parametrize("name", names)
    def test_samples(name: str, mode: str) -> None:
        from tests.conformance.cases import Case
        from tests.conformance.exceptions import expected_failure
        from tests.conformance.judge import run

        cases = cases_of(name)
        if not cases:
            pytest.skip("this torch does not list it")
        counts = [FORWARD_INPUTS, *[INPUTS] * (len(cases) - 1)]
        verdicts = [
            run(Case.parse(f"{case}/{mode}"), count)
            for case, count in zip(cases, counts, strict=True)
            if not expected_failure(f"{case}/{mode}")
        ]
        failures = [f"make conformance CONFORMANCE='{each.case}'\n  {each.why}" for each in verdicts if each.is_failure]
        if failures:
            pytest.fail("\n".join(failures), pytrace=False)

    return test_samples
