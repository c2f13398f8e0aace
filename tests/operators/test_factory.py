"""Rows of crates/aten/src/ops/shape/factory.rs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "arange",
    "bfloat16",
    "bool",
    "byte",
    "cdouble",
    "cfloat",
    "chalf",
    "char",
    "double",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "eye",
    "fill",
    "float",
    "full",
    "full_like",
    "half",
    "int",
    "item",
    "linspace",
    "linspace.tensor_overload",
    "logspace",
    "logspace.tensor_overload",
    "long",
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_zeros",
    "ones",
    "ones_like",
    "scalar_tensor",
    "short",
    "signal.windows.bartlett",
    "signal.windows.blackman",
    "signal.windows.cosine",
    "signal.windows.exponential",
    "signal.windows.gaussian",
    "signal.windows.general_cosine",
    "signal.windows.general_hamming",
    "signal.windows.hamming",
    "signal.windows.hann",
    "signal.windows.kaiser",
    "signal.windows.nuttall",
    "to",
    "to_sparse",
    "zero_",
    "zeros",
    "zeros_like",
)

SEQUENCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "arange": lambda out: torch.arange(6, out=out),
    "arange of fractions": lambda out: torch.arange(0, 3, 0.5, out=out),
    "linspace": lambda out: torch.linspace(1, 2, 6, out=out),
    "linspace of tensors": lambda out: torch.linspace(torch.tensor(1.0), torch.tensor(2.0), 6, out=out),
    "logspace": lambda out: torch.logspace(0, 5, 6, base=2, out=out),
    "range": lambda out: torch.range(0, 5, out=out),
}
OTHERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "eye": lambda out: torch.eye(2, 3, out=out),
    "zeros": lambda out: torch.zeros(6, out=out),
    "full": lambda out: torch.full((6,), 7.0, out=out),
    "randperm": lambda out: torch.randperm(6, out=out) * 0,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*SEQUENCES, *OTHERS])
@pytest.mark.parametrize("sizes", [(6, 1), (3, 2), (5,)], ids=str)
def test_an_out_argument_of_another_shape(name: str, sizes: tuple[int, ...], device: torch.device) -> None:
    """Sequences keep its shape if it has as many elements. What else its storage holds must stay."""

    def program(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        base = torch.zeros(6, 4, device=device)
        out = base[: sizes[0], : sizes[1]] if len(sizes) == 2 else base[: sizes[0], 1]
        result = (SEQUENCES | OTHERS)[name](out)
        return result, base if name != "randperm" else base * 0

    check(program, device)


@pytest.mark.filterwarnings("ignore")
def test_a_sequence_in_other_strides(device: torch.device) -> None:
    def program(device: torch.device) -> torch.Tensor:
        out = torch.zeros(2, 3, dtype=torch.int64, device=device).t()
        torch.arange(6, out=out)
        return out

    check(program, device)


@pytest.mark.parametrize("arguments", [(16,), (7, False), (8, True, 5.0), (1,), (0,), (9, False, 0.0)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_kaiser_window(arguments: tuple[Any, ...], dtype: torch.dtype, device: torch.device, mode: str) -> None:
    check(lambda d: torch.kaiser_window(*arguments, dtype=dtype, device=d), device)


def test_a_kaiser_window_of_negative_length(device: torch.device) -> None:
    check_refused(lambda d: torch.kaiser_window(-1, device=d), device)


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("mode", ["strict", "fused"], indirect=True)
def test_integers_between_fractions(device: torch.device, mode: str) -> None:
    """The ends become integers first, whether the dtype is given or that of what is written."""
    for size in (50, 30, 41, 20, 2):

        def program(device: torch.device) -> list[Tensor]:
            spaced, powers, part = (torch.zeros(size, 2, dtype=torch.int64).to(device) for _ in range(3))  # noqa: B023
            torch.linspace(4.3, 1, size, out=spaced[:, 0])  # noqa: B023
            torch.logspace(0, 1.2, size, out=powers[:, 0])  # noqa: B023
            part[:, 1].copy_(torch.linspace(-3.9, 8.7, size, dtype=torch.int64, device=device))  # noqa: B023
            return [spaced, powers, part]

        check(program, device)


@pytest.mark.usefixtures("changing_sizes")
def test_integers_of_any_number_cannot_hold_fractions(device: torch.device) -> None:
    for size in (5, 9, 13, 7):
        numbers = torch.ones(size, dtype=torch.int32)
        for device_ in (torch.device("cpu"), device):
            with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Int"):
                numbers.to(device_).logit_()


@pytest.mark.parametrize("dtype", [torch.bits8, torch.bits16, torch.uint1, torch.uint7, torch.int1, torch.int4])
def test_a_dtype_without_elements_is_refused_by_its_name(dtype: torch.dtype, device: torch.device) -> None:
    with pytest.raises(TypeError, match=f"tpu tensors cannot hold dtype {dtype}: supported are uint8, int8"):
        torch.empty(3, dtype=dtype, device=device)


@pytest.mark.parametrize("ends", [(-(2**63), 5), (5, 2**63 - 1), (-(2**63), 2**63 - 1)])
def test_a_sequence_longer_than_int64_is_refused(ends: tuple[int, int], device: torch.device) -> None:
    error = check_refused(lambda device: torch.arange(*ends, device=device), device)
    assert "internal error" not in str(error)
