"""Rows of crates/aten/src/ops/nn/conv.rs."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d",
)


def test_an_input_without_channels(device: torch.device) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        x = torch.zeros(2, 0, 15, device=device, requires_grad=True)
        weight = torch.zeros(8, 0, 2, device=device, requires_grad=True)
        bias = torch.zeros(8, device=device, requires_grad=True)
        result = torch.nn.functional.conv1d(x, weight, bias, stride=2)
        return [result.detach(), *torch.autograd.grad(result.sum(), (x, weight))]

    check(program, device)


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("inputs", [1, 2])
def test_groups_of_other_numbers_of_channels(inputs: int, is_transposed: bool, device: torch.device) -> None:
    """New models and batches of other sizes, whose tensors nothing holds: programs take their sizes as inputs."""
    convolve = torch.nn.functional.conv_transpose1d if is_transposed else torch.nn.functional.conv1d

    def program(batch: int, channels: int, length: int, device: torch.device) -> list[torch.Tensor]:
        x = torch.linspace(-1, 2, batch * channels * length).view(batch, channels, length)
        weight = torch.linspace(-3, 1, channels * inputs * 3).view(channels, inputs, 3)
        x, weight = x.to(device).requires_grad_(), weight.to(device).requires_grad_()
        result = convolve(x, weight, groups=channels // inputs)
        return [result.detach(), *torch.autograd.grad(result.cos().sum(), (x, weight))]

    for sizes in ((4, 4, 3), (2, 8, 5), (1, 6, 9), (3, 12, 4)):
        check(functools.partial(program, *sizes), device)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_negative_output_padding_is_refused(dims: int, device: torch.device) -> None:
    def run(d: torch.device) -> torch.Tensor:
        conv = getattr(torch.nn.functional, f"conv_transpose{dims}d")
        x, weight = torch.ones(1, 3, *[4] * dims, device=d), torch.ones(3, 2, *[3] * dims, device=d)
        return conv(x, weight, stride=2, padding=1, output_padding=-1)

    assert "negative output_padding is not supported" in str(check_refused(run, device))


# Numbers of arguments that no convolution takes, and how the CPU refuses them. For some, it has an error of its library
# instead.
REFUSED = {
    ("stride", 0): "non-positive stride is not supported",
    ("stride", -1): "non-positive stride is not supported",
    ("padding", -1): "negative padding is not supported",
    ("dilation", 0): ("dilation should be greater than zero", "non-positive dilation is not supported"),
    ("dilation", -1): ("dilation should be greater than zero", "non-positive dilation is not supported"),
    ("groups", 0): "non-positive groups is not supported",
    ("groups", -1): "non-positive groups is not supported",
    ("output_padding", -1): "negative output_padding is not supported",
}
NAMES = [f"conv{transposed}{spatial}d" for transposed in ("", "_transpose") for spatial in (1, 2, 3)]
CASES = [(name, *case) for name in NAMES for case in REFUSED if "transpose" in name or case[0] != "output_padding"]


def with_number(name: str, argument: str, number: int, device: torch.device) -> torch.Tensor:
    spatial = [5] * int(name[-2])
    x, weight = torch.ones(1, 2, *spatial, device=device), torch.ones(2, 2, *spatial, device=device)
    return getattr(torch.nn.functional, name)(x, weight, **{argument: number})


@pytest.mark.parametrize(("name", "argument", "number"), CASES)
def test_numbers_that_no_convolution_takes(device: torch.device, name: str, argument: str, number: int) -> None:
    """XLA's compiler does not see them."""
    error = check_refused(functools.partial(with_number, name, argument, number), device)
    assert str(error).startswith(REFUSED[argument, number])


@pytest.mark.parametrize("name", NAMES)
def test_no_padding(device: torch.device, name: str) -> None:
    for argument in ("padding", "output_padding") if "transpose" in name else ("padding",):
        check(functools.partial(with_number, name, argument, 0), device)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_a_transposed_convolution_without_outputs(device: torch.device, spatial: int) -> None:
    def run(d: torch.device) -> torch.Tensor:
        x, weight = torch.ones(1, 2, *[2] * spatial, device=d), torch.ones(2, 2, *[1] * spatial, device=d)
        return getattr(torch.nn.functional, f"conv_transpose{spatial}d")(x, weight, padding=1)

    assert "Output size is too small" in str(check_refused(run, device))


# Tensors that no convolution takes: the shapes of input and weight, and how the CPU refuses them. For some, it has an
# error of its library instead.
def tensors(name: str, case: str) -> tuple[torch.Tensor, torch.Tensor]:
    spatial = int(name[-2])
    x, weight = torch.ones(1, 3, *[4] * spatial), torch.ones(3, 3, *[3] * spatial)
    match case:
        case "no kernel":
            return x, weight[..., :0]
        case "no row of a kernel":
            return x, weight[:, :, :0]
        case "more dimensions":
            return x, weight[None]
        case "no channel":
            return x[:, :0], weight
        case "no channel, unbatched":
            return x[0, :0], weight
        case _:
            return x[:, :0], weight[:, :0]


CASES = ["no kernel", "no row of a kernel", "more dimensions", "no channel", "no channel, unbatched", "no channels"]
NO_KERNEL = ("kernel size should be greater than zero, but got", "non-empty 5D")
TAKEN = {(f"conv{spatial}d", "no channels") for spatial in (1, 2, 3)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_tensors_that_no_convolution_takes(device: torch.device, name: str, case: str) -> None:
    x, weight = tensors(name, case)

    def run(d: torch.device) -> torch.Tensor:
        return getattr(torch.nn.functional, name)(x.to(d), weight.to(d))

    if (name, case) in TAKEN:
        return check(run, device)
    message = str(check_refused(run, device))
    with pytest.raises(RuntimeError) as on_cpu:
        run(torch.device("cpu"))
    if "kernel" in case:
        assert message.startswith(NO_KERNEL)
        assert str(on_cpu.value).startswith(NO_KERNEL)
    else:
        assert message == str(on_cpu.value)


@pytest.mark.parametrize("spatial", [1, 2])
def test_the_dtype_of_a_bias(device: torch.device, spatial: int) -> None:
    """A transposed convolution adds it, where that does not lose a part of a complex number."""
    convolve = getattr(torch.nn.functional, f"conv_transpose{spatial}d")

    def run(dtype: torch.dtype, d: torch.device) -> torch.Tensor:
        x, weight = torch.ones(1, 3, *[4] * spatial, device=d), torch.ones(3, 3, *[3] * spatial, device=d)
        return convolve(x, weight, torch.full((3,), 2, dtype=dtype, device=d))

    for dtype in (torch.int64, torch.float16):
        check(functools.partial(run, dtype), device)
    error = check_refused(functools.partial(run, torch.complex64), device)
    assert "ComplexFloat can't be cast to the desired output type Float" in str(error)
