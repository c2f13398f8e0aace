"""Nested tensors: of the jagged layout, which contain dense tensors, and of the strided layout.

tests/conformance tests PyTorch's list of operators on jagged tensors.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tests.helpers import DTYPES, assert_same, check_refused

LENGTHS = (3, 0, 5, 1)


def rows(dtype: torch.dtype = torch.float32, width: int = 6, lengths: tuple[int, ...] = LENGTHS) -> list[Tensor]:
    return [torch.testing.make_tensor(length, width, dtype=dtype, device="cpu") for length in lengths]


def nested(
    parts: list[Tensor], device: torch.device | str, layout: torch.layout = torch.jagged, **options: Any
) -> Tensor:
    return torch.nested.nested_tensor(parts, layout=layout, device=device, **options)


def assert_same_rows(actual: Tensor, expected: Tensor) -> None:
    assert actual.device.type == "tpu"
    for one, other in zip(actual.unbind(), expected.unbind(), strict=True):
        torch.testing.assert_close(one.detach().cpu(), other.detach())


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if not dtype.is_complex])
def test_padded_and_back(dtype: torch.dtype, mode: str, device: torch.device) -> None:
    values, offsets = torch.cat(rows(dtype)), torch.tensor([0, 3, 3, 8, 9])
    for longest in (5, 7, 2):  # the last truncates
        expected = torch.ops.aten._jagged_to_padded_dense_forward(values, [offsets], [longest], 1.0)
        padded = torch.ops.aten._jagged_to_padded_dense_forward(values.to(device), [offsets.to(device)], [longest], 1.0)
        assert_same(padded, expected)
        for total in (9, None) if longest >= 5 else ():
            back = torch.ops.aten._padded_dense_to_jagged_forward(padded, [offsets.to(device)], total)
            assert_same(back, values)


def test_nothing_to_pad(mode: str, device: torch.device) -> None:
    for values, offsets in (
        (torch.empty(0, 4), torch.tensor([0, 0, 0])),
        (torch.empty(0, 4), torch.tensor([0])),
        (torch.empty(3, 0), torch.tensor([0, 1, 3], dtype=torch.int32)),
    ):
        expected = torch.ops.aten._jagged_to_padded_dense_forward(values, [offsets], [2], -1.0)
        actual = torch.ops.aten._jagged_to_padded_dense_forward(values.to(device), [offsets.to(device)], [2], -1.0)
        assert_same(actual, expected)
        back = torch.ops.aten._padded_dense_to_jagged_forward(actual, [offsets.to(device)], len(values))
        assert_same(back, values)


def test_wrong_lengths_are_refused(device: torch.device) -> None:
    def two_offsets(on: torch.device) -> Tensor:
        offsets = torch.tensor([0, 2], device=on)
        return torch.ops.aten._jagged_to_padded_dense_forward(torch.rand(2, 3, device=on), [offsets, offsets], [2, 2])

    def no_rows(on: torch.device) -> Tensor:
        return torch.ops.aten._padded_dense_to_jagged_forward(
            torch.rand(2, device=on), [torch.tensor([0, 2]).to(on)], 2
        )

    def wrong_total(on: torch.device) -> Tensor:
        offsets = torch.tensor([0, 1, 3], device=on)
        return torch.ops.aten._padded_dense_to_jagged_forward(torch.rand(2, 2, 1, device=on), [offsets], 4).cpu()

    for program in (two_offsets, no_rows, wrong_total):
        check_refused(program, device)
    assert torch.ones(2, device=device).sum().item() == 2


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_made_moved_and_read(layout: torch.layout, mode: str, device: torch.device) -> None:
    parts = rows()
    expected = nested(parts, "cpu", layout)
    for made in (
        nested(parts, device, layout),
        expected.to(device),
        torch.nested.as_nested_tensor([part.to(device) for part in parts], layout=layout),
    ):
        assert made.is_nested
        assert made.layout is layout
        assert_same_rows(made, expected)
        assert_same_rows(made.cpu().to(device), expected)
        assert_same(torch.nested.to_padded_tensor(made, -2.0), torch.nested.to_padded_tensor(expected, -2.0))


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_operators(layout: torch.layout, mode: str, device: torch.device) -> None:
    weight, bias, scale = torch.rand(4, 6), torch.rand(4), torch.rand(6)
    for function in (
        lambda x: x + x,
        lambda x: (x * 2).relu().neg(),
        lambda x: x.softmax(-1),
        lambda x: nn.functional.linear(x, weight.to(x.device), bias.to(x.device)),
        lambda x: nn.functional.layer_norm(x, (6,), scale.to(x.device), 2 * scale.to(x.device), 0.5),
        lambda x: x.clone().to(torch.bfloat16).to(torch.float32),
    ):
        parts = rows()
        assert_same_rows(function(nested(parts, device, layout)), function(nested(parts, "cpu", layout)))


def test_normalized_shapes_of_the_strided_layout(mode: str, device: torch.device) -> None:
    irregular, regular = ([torch.rand(length, 4, 6) for length in lengths] for lengths in ((3, 2, 5), (3, 3)))

    def normed(on: torch.device | str, parts: list[Tensor], shape: tuple[int, ...]) -> Tensor:
        return nn.LayerNorm(shape, device=on)(nested(parts, on, torch.strided))

    for parts, shape in ((irregular, (4, 6)), (regular, (3, 4, 6)), (regular, (2, 3, 4, 6))):
        assert_same_rows(normed(device, parts, shape), normed("cpu", parts, shape))
    for shape in ((3, 4, 6), (5, 6), (2, 6), (24,), (7, 3, 4, 6), (1, 3, 3, 4, 6)):
        check_refused(lambda on, shape=shape: normed(on, irregular, shape), device)


def test_over_the_ragged_dimension(mode: str, device: torch.device) -> None:
    parts = rows(lengths=(3, 2, 5))
    for function in (lambda x: x.sum(1), lambda x: x.mean(1), lambda x: x.amax(1), lambda x: (x > 0).any(1)):
        assert_same(function(nested(parts, device)), function(nested(parts, "cpu")))
    assert_same_rows(torch.softmax(nested(parts, device), 1), torch.softmax(nested(parts, "cpu"), 1))


def test_gradients(mode: str, device: torch.device) -> None:
    parts, weight = rows(), torch.rand(6, 3)

    def gradients(on: torch.device | str) -> list[Tensor]:
        values, matrix = torch.cat(parts).to(on).requires_grad_(), weight.to(on).requires_grad_()
        x = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 3, 3, 8, 9], device=on))
        torch.nested.to_padded_tensor(torch.tanh(x @ matrix), 0.5).square().sum().backward()
        return [values.grad, matrix.grad]

    for one, other in zip(gradients(device), gradients("cpu"), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
def test_sums_of_the_strided_layout(dtype: torch.dtype, mode: str, device: torch.device) -> None:
    for shapes in (((2, 3), (1, 3), (4, 3)), ((2, 3), (0, 2), (3, 0)), ((2, 3, 2), (1, 5, 2))):
        parts = [torch.testing.make_tensor(shape, dtype=dtype, device="cpu") for shape in shapes]
        actual, expected = (torch.sum(nested(parts, on, torch.strided), -1, keepdim=True) for on in (device, "cpu"))
        assert_same_rows(actual, expected)
        assert_same(actual._nested_tensor_strides(), expected._nested_tensor_strides())
        assert_same(actual._nested_tensor_storage_offsets(), expected._nested_tensor_storage_offsets())
    for refused in (
        lambda x: torch.sum(x, -1),
        lambda x: torch.sum(x, 0, keepdim=True),
        lambda x: torch.sum(x, (1, 2), keepdim=True),
        lambda x: torch.sum(x, -1, keepdim=True, dtype=torch.float64),
        lambda x: torch.sum(x.transpose(1, 2), -1, keepdim=True),
        lambda x: torch.sum(x, 5, keepdim=True),
    ):
        check_refused(lambda on, call=refused: call(nested(rows(), on, torch.strided)), device)


def test_gradients_of_the_strided_layout(mode: str, device: torch.device) -> None:
    parts, weights = rows(), [torch.rand(6), torch.rand(6)]

    def gradients(on: torch.device | str) -> list[Tensor]:
        scale, shift = (weight.to(on).requires_grad_() for weight in weights)
        x = nested(parts, on, torch.strided, requires_grad=True)
        normed = nn.functional.layer_norm(x, (6,), scale, shift)
        total = torch.sum(normed * normed, -1, keepdim=True)
        total.backward(total.detach().clone())
        assert x.grad is not None
        assert scale.grad is not None
        assert shift.grad is not None
        return [*x.grad.unbind(), scale.grad, shift.grad]

    for one, other in zip(gradients(device), gradients("cpu"), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-4)


def test_attention(mode: str, device: torch.device) -> None:
    """The rows of a batch have different lengths and attend to themselves."""
    parts = rows(width=8, lengths=(3, 1, 6))

    def attended(on: torch.device | str) -> Tensor:
        x = nested(parts, on).unflatten(-1, (2, 4)).transpose(1, 2)
        return scaled_dot_product_attention(x, x, x).transpose(1, 2).flatten(-2)

    for one, part in zip(attended(device).unbind(), parts, strict=True):
        x = part.unflatten(-1, (2, 4)).transpose(0, 1)
        expected = scaled_dot_product_attention(x, x, x).transpose(0, 1).flatten(-2)
        torch.testing.assert_close(one.cpu(), expected)


@pytest.mark.usefixtures("fresh_dynamo")
def test_compiled(device: torch.device) -> None:
    """One program for batches of all lengths."""

    def function(x: Tensor, weight: Tensor) -> Tensor:
        return torch.relu(x @ weight).sum(-1) * 2

    compiled, weight = torch.compile(function), torch.rand(6, 4)
    for lengths in ((3, 2, 5), (4, 4, 1), (1, 9, 2), (2, 2, 2)):
        parts = rows(lengths=lengths)
        actual = compiled(nested(parts, device), weight.to(device))
        assert_same_rows(actual, function(nested(parts, "cpu"), weight))
