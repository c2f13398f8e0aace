"""PyTorch's own machinery for testing devices works on this one: see tests/conformance/device_generic.py."""

from __future__ import annotations

import unittest

import pytest


@pytest.mark.parametrize("name", ["TestBase", "TestLists", "TestCarriedChecks"])
def test_templates(name: str) -> None:
    # Drawing the tests loads PyTorch's lists, which takes seconds, so it is not done during collection.
    from tests.conformance import device_generic

    # PyTorch appends the device's name to the name of the template class.
    (case,) = (value for key, value in vars(device_generic).items() if key.startswith(name) and key != name)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    problems = [f"{test}\n{why}" for test, why in (*result.failures, *result.errors)]
    problems += [f"{test} passes" for test in result.unexpectedSuccesses]
    assert not problems, "\n".join(problems)
    assert result.testsRun > len(result.skipped)
