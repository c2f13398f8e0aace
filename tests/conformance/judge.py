"""Runs a case in all its places, and reports whether it passes, and why not."""

from __future__ import annotations

import dataclasses
import re
import time
import warnings
from contextlib import nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.testing._internal import common_utils
from torch.testing._internal.opinfo import core

from tests.conformance import ahead, padded
from tests.conformance.cases import Case, Subject, subjects
from tests.conformance.exceptions import UNIT_RANGE, is_random
from tests.conformance.places import CPU, DEVICE, META, PRECISE, TRACED, Place, Trial, widened
from tests.seeds import seed_everything

INPUTS = 8
# The error relative to a double precision result may be this many times the CPU's largest error.
CPU_ERRORS = 4.0
# The eager modes in which cases of other modes run.
EAGER = {"compile": "fused", padded.MODE: "strict"}


@dataclasses.dataclass
class Verdict:
    case: str
    status: str
    """"pass", "fail", "skip" (there is nothing to judge), "crash" or "hang"."""
    passed: int = 0
    failed: int = 0
    why: str = ""
    """The first failure, or the reason of a skip."""
    inputs: str = ""
    """The inputs of the first failure."""
    seconds: float = 0.0
    built: int = 0
    """The build time of the extension that the verdict is valid for."""

    @property
    def is_failure(self) -> bool:
        return self.status in ("fail", "crash", "hang")


class DifferenceError(Exception):
    """The device's result differs from the CPU's."""


def run(case: Case, inputs: int = INPUTS, seed: int = 0) -> Verdict:
    """Runs up to `inputs` trials of a case."""
    verdict = Verdict(str(case), "skip", why="PyTorch has no samples that the CPU runs")
    start = time.monotonic()
    subject = subjects()[case.subject]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            trials = _drawn(subject, case, inputs, seed)
        except Exception as error:
            verdict.why = f"PyTorch's samples fail: {_in_short(error)}"
            trials = []
        torch.tpu.reset_op_stats()
        for trial in trials:
            try:
                expected = _expected(trial, subject, getattr(torch, case.dtype), seed)
            except Exception as error:
                if not verdict.passed + verdict.failed:
                    verdict.why = f"the CPU fails: {_in_short(error)}"
                continue
            try:
                if case.mode in ahead.TOPOLOGIES:
                    ahead.judge(trial, case.mode)
                else:
                    with torch.tpu.set_eager_mode(EAGER.get(case.mode, case.mode)):
                        _judge(trial, subject, expected, case, seed)
                verdict.passed += 1
            except ahead.NothingToCompileError as error:
                if not verdict.passed + verdict.failed:
                    verdict.why = f"there is no program: {_in_short(error.__cause__)}"
            except Exception as error:
                if case.mode == "compile" and (refused := _is_refused_by_dynamo(trial, seed)):
                    verdict.why = verdict.why if verdict.failed else f"torch.compile refuses: {refused}"
                    continue
                if not verdict.failed:
                    verdict.why, verdict.inputs = _in_short(error), trial.inputs
                verdict.failed += 1
    if fallen_back := torch.tpu.op_stats()["fallen_back"]:
        verdict.failed += 1
        verdict.why = f"computed on the CPU: {', '.join(fallen_back)}"
    if verdict.failed:
        verdict.status = "fail"
    elif verdict.passed:
        verdict.status, verdict.why = "pass", ""
    verdict.seconds = round(time.monotonic() - start, 3)
    return verdict


def _drawn(subject: Subject, case: Case, inputs: int, seed: int) -> list[Trial]:
    """Its trials, with inputs that depend on the seed."""

    def set_rng_seed(given: int = common_utils.SEED) -> None:
        seed_everything(given + seed)

    # For each list of samples PyTorch searches the stack for a unittest, and before each sample it seeds all
    # accelerators. Both take longer than most cases.
    with (
        mock.patch.object(common_utils, "extract_test_fn", return_value=None),
        mock.patch.object(core, "extract_test_fn", return_value=None),
        mock.patch.object(common_utils, "set_rng_seed", set_rng_seed),
        padded.sizes_with_factors() if case.mode == padded.MODE else nullcontext(),
    ):
        return subject.trials(getattr(torch, case.dtype), case.direction, inputs, seed)


def _run(trial: Trial, place: Place, seed: int) -> Any:
    """The result of the program, or its error if it must fail."""
    seed_everything(seed)
    if trial.error is None:
        return trial.program(place)
    kind, pattern = trial.error
    try:
        trial.program(place)
        # Errors in the data are raised when the host waits.
        torch.tpu.synchronize()
    except kind as error:
        if not isinstance(error, kind) or not re.search(pattern, str(error)):
            raise DifferenceError(f"{_in_short(error)!r} is not {kind.__name__} with {pattern!r}") from error
        return type(error).__name__
    raise DifferenceError(f"{kind.__name__} with {pattern!r} is not raised")


def _expected(trial: Trial, subject: Subject, dtype: torch.dtype, seed: int) -> Any:
    """The CPU's result. For a dtype that only CUDA supports, the CPU gets a wider one.

    PyTorch's meta kernels give the dtypes of the results.
    """
    if not subject.is_for_cuda_only(dtype):
        return _run(trial, CPU, seed)
    return _as_typed(_run(trial, widened(dtype), seed), _run(trial, META, seed))


def _as_typed(values: Any, metas: Any) -> Any:
    if isinstance(values, list | tuple):
        return type(values)(_as_typed(one, other) for one, other in zip(values, metas, strict=True))
    return values.to(metas.dtype) if isinstance(values, Tensor) else values


def _is_refused_by_dynamo(trial: Trial, seed: int) -> str | None:
    """Why PyTorch itself cannot compile a program, on the CPU without a compiler; None if it can."""
    try:
        _run(trial, TRACED, seed)
    except Exception as error:
        return _in_short(error)
    return None


def _judge(trial: Trial, subject: Subject, expected: Any, case: Case, seed: int) -> None:
    # Donation of inputs does not depend on the dtype. Without donation, a chunk of one operator is the program that
    # Strict has compiled already.
    place = DEVICE if case.dtype == "float32" else dataclasses.replace(DEVICE, kept=[])
    if case.mode == "compile":
        place = dataclasses.replace(place, compiler="tpu")
    dtype = getattr(torch, case.dtype)
    precise = widened(dtype) if subject.is_for_cuda_only(dtype) else PRECISE
    # The precise result takes a third run, which most comparisons do not need.
    comparison = _Comparison(
        is_random(case.subject),
        case.subject in UNIT_RANGE,
        subject.tolerance(dtype),
        lambda: _run(trial, precise, seed),
    )
    if case.mode == padded.MODE:
        padded.judge(DEVICE.device, lambda place: comparison.compare(_run(trial, place, seed), expected, ()))
    else:
        comparison.compare(_run(trial, place, seed), expected, ())


@dataclasses.dataclass
class _Comparison:
    is_random: bool
    is_unit_range: bool
    tolerance: tuple[float, float] | None
    precise: Any

    def compare(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        where = "".join(f"[{part!r}]" for part in path)
        if isinstance(expected, Tensor):
            self._compare_tensors(actual, expected, path)
        elif isinstance(expected, list | tuple):
            if not isinstance(actual, list | tuple) or len(actual) != len(expected):
                raise DifferenceError(f"result{where}: {type(actual).__name__} is not {len(expected)} values")
            for position, (one, other) in enumerate(zip(actual, expected, strict=True)):
                self.compare(one, other, (*path, position))
        elif isinstance(expected, dict):
            if list(actual) != list(expected):
                raise DifferenceError(f"result{where}: {list(actual)} instead of {list(expected)}")
            for key in expected:
                self.compare(actual[key], expected[key], (*path, key))
        elif type(actual) is not type(expected):
            raise DifferenceError(f"result{where}: {actual!r} instead of {expected!r}")
        elif isinstance(expected, int | float | complex):
            if not self.is_random:
                torch.testing.assert_close(actual, expected, equal_nan=True)
        elif actual != expected and not isinstance(expected, torch.device):
            raise DifferenceError(f"result{where}: {actual!r} instead of {expected!r}")

    def _compare_tensors(self, actual: Any, expected: Tensor, path: tuple[Any, ...]) -> None:
        where = "".join(f"[{part!r}]" for part in path)
        if not isinstance(actual, Tensor):
            raise DifferenceError(f"result{where}: {type(actual).__name__} instead of a tensor")
        if expected.device.type == "cpu" and actual.device.type != DEVICE.device:
            raise DifferenceError(f"result{where}: on {actual.device}")
        for what in ("dtype", "shape", "layout"):
            if getattr(actual, what) != getattr(expected, what):
                raise DifferenceError(
                    f"result{where}: {what} {getattr(actual, what)} instead of {getattr(expected, what)}"
                )
        actual, expected = _plain(actual), _plain(expected)
        if self.is_random:
            self._compare_ranges(actual, expected, where)
            return
        tolerances = dict(zip(("atol", "rtol"), self.tolerance, strict=True)) if self.tolerance else {}
        if not (expected.is_floating_point() or expected.is_complex()):
            tolerances = {"atol": 0, "rtol": 0}
        try:
            torch.testing.assert_close(actual, expected, equal_nan=True, **tolerances)
        except AssertionError as error:
            if not self._is_as_precise(actual, expected, path):
                raise DifferenceError(f"result{where}: {' '.join(str(error).split())}") from None

    def _compare_ranges(self, actual: Tensor, expected: Tensor, where: str) -> None:
        parts = torch.view_as_real(actual) if actual.is_complex() else actual
        if self.is_unit_range and not ((parts >= 0) & (parts <= 1)).all():
            raise DifferenceError(f"result{where}: not in [0, 1]")
        if torch.isfinite(expected).all() and not torch.isfinite(actual).all():
            raise DifferenceError(f"result{where}: not finite")

    def _is_as_precise(self, actual: Tensor, expected: Tensor, path: tuple[Any, ...]) -> bool:
        """Whether the device's error relative to double precision is about as small as the CPU's."""
        if not (expected.is_floating_point() or expected.is_complex()):
            return False
        try:
            if callable(self.precise):
                self.precise = self.precise()
            precise = self.precise
            for part in path:
                precise = precise[part]
            precise = _plain(precise)
        except Exception:
            return False
        if not isinstance(precise, Tensor) or precise.shape != expected.shape:
            return False
        is_finite = torch.isfinite(expected) & torch.isfinite(precise)
        if not torch.equal(actual.isfinite() & is_finite, is_finite):
            return False
        if not torch.allclose(actual[~is_finite], expected[~is_finite], equal_nan=True):
            return False
        precise = precise[is_finite]
        allowed = CPU_ERRORS * (expected[is_finite] - precise).abs().max() if len(precise) else 0
        resolution = torch.finfo(expected.dtype).eps
        return bool(((actual[is_finite] - precise).abs() <= allowed + resolution * precise.abs()).all())


def _plain(tensor: Tensor) -> Tensor:
    """On the CPU, dense, and without lazy conjugation and negation."""
    tensor = tensor.detach().cpu()
    tensor = tensor.to_dense() if tensor.layout != torch.strided else tensor
    return tensor.dequantize() if tensor.is_quantized else tensor.resolve_conj().resolve_neg()


def _in_short(error: BaseException | None) -> str:
    text = " ".join(str(error).split())
    text = text if isinstance(error, DifferenceError) else f"{type(error).__name__}: {text}"
    return text if len(text) <= 600 else f"{text[:400]} ... {text[-190:]}"
