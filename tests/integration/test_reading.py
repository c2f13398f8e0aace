"""Reading tensors from Python: numbers, lists, protocols, printing, copies."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch

from tests.helpers import DTYPES, check, check_refused

Tensor = torch.Tensor

NAMES = [str(dtype).removeprefix("torch.") for dtype in DTYPES]


def numbers(dtype: torch.dtype) -> Tensor:
    return torch.tensor([[0, 1, 3], [2, 0, 5]]).to(dtype)


# ---- reading ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
def test_item_and_tolist(dtype: torch.dtype, device: torch.device) -> None:
    def program(device: torch.device) -> object:
        x = numbers(dtype).to(device)
        return x.tolist(), x[1, 2].item(), x[:, ::2].tolist(), x.t().tolist(), bool(x[0, 1]), x.sum().item()

    check(program, device)


def test_python_protocols(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.tensor([[3, 1, 2], [6, 5, 4]], device=device)
        f = x[0, 0].float() + 0.75
        return [
            [len(x), list(x), [row.tolist() for row in x], int(f), float(f), complex(f), bool(f), f"{f:.1f}"],
            [range(9)[x[0, 1]], [10, 20, 30][x[0, 2]], 5 in x, 9 in x, x.numel(), x.dim(), x.size(), x.nelement()],
            [sorted(x[0]), max(x[1]), sum(x[0]), x.any().item(), hash(x) == hash(x)],
            [x.is_contiguous(), x.is_complex(), x.is_signed(), x.nbytes, x.itemsize, x.ndim, x.layout, reversed(x)],
        ]

    check(program, device)
    check_refused(lambda d: bool(torch.ones(2, device=d)), device)
    check_refused(lambda d: torch.ones(2, device=d).item(), device)
    check_refused(lambda d: len(torch.tensor(1, device=d)), device)
    check_refused(lambda d: list(torch.tensor(1, device=d)), device)
    check_refused(lambda d: range(2)[torch.tensor(1.5, device=d)], device)


def test_numpy_is_refused(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    with pytest.raises(TypeError, match=r"can't convert tpu:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
        x.numpy()
    with pytest.raises(TypeError, match="can't convert tpu:0 device type tensor to numpy"):
        x.__array__()
    assert x.numpy(force=True).tolist() == [1, 1]
    assert x.cpu().numpy().tolist() == [1, 1]


def test_equal(device: torch.device) -> None:
    def program(device: torch.device) -> object:
        x = torch.tensor([1.0, float("nan")], device=device)
        y = torch.arange(3, device=device)
        return [
            torch.equal(x, x.clone()),
            torch.equal(y, y.clone()),
            torch.equal(y, y[:2]),
            torch.equal(y, torch.tensor([0, 1, 3], device=device)),
            torch.allclose(x, x, equal_nan=True),
            y.equal(y.flip(0).flip(0)),
            torch.equal(y[:0], y[:0]),
            torch.equal(y, y.double()),
            torch.equal(y, y.half() + 0.5),
            torch.equal(y > 0, (y > 0).long()),
        ]

    check(program, device)


# ---- printing --------------------------------------------------------------------------------------------------

PRINTED: dict[str, Callable[[], Tensor]] = {
    "float": lambda: torch.tensor([[1.0, -2.5], [3.25, 1e-3]]),
    "integral floats": lambda: torch.tensor([1.0, 2.0]),
    "large and small": lambda: torch.tensor([1e10, 1e-10]),
    "not finite": lambda: torch.tensor([float("nan"), float("inf"), 1.0]),
    "int": lambda: torch.tensor([[1, -20], [300, 4]]),
    "bool": lambda: torch.tensor([True, False]),
    "bfloat16": lambda: torch.tensor([1.5, 2.25], dtype=torch.bfloat16),
    "half": lambda: torch.tensor([1.5, 2.25], dtype=torch.float16),
    "double": lambda: torch.tensor([0.1], dtype=torch.float64),
    "complex": lambda: torch.tensor([1 + 2j, -0.5j]),
    "0-d": lambda: torch.tensor(3.5),
    "empty": lambda: torch.zeros(0),
    "empty with sizes": lambda: torch.zeros(2, 0, dtype=torch.int32),
    "long": lambda: torch.arange(2000),
    "wide and long": lambda: torch.arange(1_000_000.0).reshape(1000, 1000),
    "three dimensions": lambda: torch.arange(8.0).reshape(2, 2, 2),
    "leaf": lambda: torch.ones(2, requires_grad=True),
    "view": lambda: torch.arange(6).reshape(2, 3).t()[1:],
}


@pytest.mark.parametrize("make", PRINTED.values(), ids=PRINTED.keys())
def test_printing(make: Callable[[], Tensor], device: torch.device) -> None:
    x = make()
    y = x.detach().to(device).requires_grad_(x.requires_grad)

    def bare(text: str) -> str:
        # The device's name takes space, so PyTorch breaks some lines at other places.
        return text.replace("device='tpu:0'", "").translate({ord(character): None for character in ", \n"})

    assert "device='tpu:0'" in repr(y)
    assert bare(repr(y)) == bare(repr(x))


def test_printing_flushes(device: torch.device, mode: str) -> None:
    x = torch.arange(3, device=device) * 2
    x[0] = 7
    assert f"{x}" == "tensor([7, 2, 4], device='tpu:0')"
    assert f"{x[1]} {x.sum()}" == "2 13"


def test_printing_of_what_belongs_to_autograd(device: torch.device) -> None:
    x = torch.ones(2, device=device, requires_grad=True)
    assert repr(x) == "tensor([1., 1.], device='tpu:0', requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 2.], device='tpu:0', grad_fn=<MulBackward0>)"
    parameter = torch.nn.Parameter(torch.zeros(1, device=device))
    assert repr(parameter) == "Parameter containing:\ntensor([0.], device='tpu:0', requires_grad=True)"
    assert (
        repr(torch.ones(1, dtype=torch.float16, device=device)) == "tensor([1.], device='tpu:0', dtype=torch.float16)"
    )
    assert str(torch.tensor(1, device=device)) == "tensor(1, device='tpu:0')"


def test_deepcopy(device: torch.device, mode: str) -> None:
    x = torch.arange(4.0, device=device)
    y = x[1:]
    twins = copy.deepcopy([x, y])
    twins[1].add_(10)
    assert twins[0].tolist() == [0, 11, 12, 13]
    assert twins[0].device == x.device
    assert x.tolist() == [0, 1, 2, 3]
    shallow = copy.copy(x)
    shallow.zero_()
    assert x.tolist() == [0, 0, 0, 0]
    leaf = torch.ones(2, device=device, requires_grad=True)
    leaf.sum().backward()
    twin = copy.deepcopy(leaf)
    assert twin.requires_grad
    assert twin.grad is not None
    assert twin.grad.tolist() == [1, 1]
    module = copy.deepcopy(torch.nn.Linear(2, 1).to(device))
    assert module.weight.is_tpu


def test_storage_of_a_result_whose_size_the_data_decide(mode: str, device: torch.device) -> None:
    """It is as large as the tensor, for users of the whole storage, such as torch.save."""
    x = torch.randn(10, 10)
    expected, actual = x[x > 0], x.to(device)[x.to(device) > 0]
    assert actual.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    file = io.BytesIO()
    torch.save(actual, file)
    file.seek(0)
    assert torch.equal(torch.load(file).cpu(), expected)
    whole = torch.empty(0, device=device).set_(actual.untyped_storage())
    assert torch.equal(whole.cpu(), expected)
    actual.resize_(len(expected) + 20)
    assert torch.equal(actual[: len(expected)].cpu(), expected)
