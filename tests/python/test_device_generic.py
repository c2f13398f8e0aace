"""PyTorch's own machinery for testing devices works on this one: see tests/conformance/device_generic.py."""

from __future__ import annotations

import unittest

import pytest


@pytest.mark.parametrize("name", ["TestBaseTPU", "TestListsTPU", "TestCarriedChecksTPU"])
def test_templates(name: str) -> None:
    # Drawing the tests loads PyTorch's lists, which takes seconds: not while pytest collects.
    from tests.conformance import device_generic

    result = unittest.TestResult()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(getattr(device_generic, name))
    suite.run(result)
    problems = [f"{test}\n{why}" for test, why in (*result.failures, *result.errors)]
    problems += [f"{test} passes" for test in result.unexpectedSuccesses]
    assert not problems, "\n".join(problems)
    assert result.testsRun > len(result.skipped)
