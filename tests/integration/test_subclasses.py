"""Tensors of classes that define `__torch_dispatch__` and hold tensors on the device, as quantized weights do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map


class Halved(Tensor):
    """Holds half of its numbers. It refuses the operators that it does not know."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Halved:
        made = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: None, size: Any, stride: Any) -> Halved:
        return Halved(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        if func in (aten._to_copy.default, aten.detach.default, aten.t.default, aten.view.default):
            return cls(func(args[0].inner, *args[1:], **(kwargs or {})))
        if func in (aten.mm.default, aten.addmm.default):
            whole = tree_map(lambda x: x.inner * 2 if isinstance(x, cls) else x, args)
            return func(*whole, **(kwargs or {}))
        raise NotImplementedError(f"{func} is not known")


def test_a_module_with_such_a_weight_moves(device: torch.device) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 2, bias=False)
    whole = layer.weight.detach()
    layer.weight = nn.Parameter(Halved(whole / 2), requires_grad=False)
    moved = layer.to(device)
    assert isinstance(moved.weight, Halved)
    x = torch.randn(4, 3)
    torch.testing.assert_close(moved(x.to(device)).cpu(), x @ whole.t())
    again = moved.to(device, torch.float64)
    assert again.weight.dtype == torch.float64


def test_the_data_of_such_a_weight_are_assigned(device: torch.device) -> None:
    weight = nn.Parameter(Halved(torch.ones(2, 3, device=device)), requires_grad=False)
    weight.data = torch.zeros(2, 3, device=device)
    on_cpu = nn.Parameter(Halved(torch.ones(2, 3)), requires_grad=False)
    on_cpu.data = torch.zeros(2, 3)
    assert type(weight) is type(on_cpu)
    assert weight.shape == on_cpu.shape
