"""Operators over long lists of tensors, which are called in groups of elements that are alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.helpers import check

Tensors = list[torch.Tensor]

COUNT = 300
SHAPES = ((3,), (2, 2), (), (0,))


def tensors(device: torch.device, seed: int, dtype: torch.dtype = torch.float32) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    # Neither the shapes nor the layouts come in groups.
    made = [torch.randn(SHAPES[i * i // 3 % len(SHAPES)], generator=generator) for i in range(COUNT)]
    return [(each.T if i % 5 == 0 and each.dim() == 2 else each).to(dtype).to(device) for i, each in enumerate(made)]


def in_place(call: Callable[[Tensors, Tensors], object]) -> Callable[[Tensors, Tensors], Tensors]:
    def run(x: Tensors, y: Tensors) -> Tensors:
        call(x, y)
        return x + y

    return run


CALLS: dict[str, Callable[[Tensors, Tensors], object]] = {
    "add": lambda x, y: torch._foreach_add(x, y, alpha=2),
    "mul_scalars": lambda x, y: torch._foreach_mul(x, [float(i) for i in range(len(x))]),
    "norm": lambda x, y: torch._foreach_norm(x[:2] * (COUNT // 2), 2),
    "addcdiv_": in_place(lambda x, y: torch._foreach_addcdiv_(x, y, torch._foreach_exp(y), value=0.5)),
    "copy_": in_place(lambda x, y: torch._foreach_copy_(x, y)),
    "zero_": in_place(lambda x, y: torch._foreach_zero_(x)),
    "lengths": lambda x, y: len(torch._foreach_neg(x + y)),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_on_the_cpu(device: torch.device, mode: str, name: str) -> None:
    check(lambda d: CALLS[name](tensors(d, 0), tensors(d, 1)), device)


@pytest.mark.parametrize("form", ["foreach", "fused"])
def test_a_step_over_many_parameters(device: torch.device, mode: str, form: str) -> None:
    def train(d: torch.device) -> Tensors:
        parameters = [torch.nn.Parameter(each) for each in tensors(d, 2)]
        optimizer = torch.optim.AdamW(parameters, lr=0.1, **{form: True})
        for seed in (3, 4):
            for parameter, gradient in zip(parameters, tensors(d, seed), strict=True):
                parameter.grad = gradient
            optimizer.step()
        return [each.detach() for each in parameters]

    check(train, device)


def test_views_of_one_tensor_are_written_together(device: torch.device, mode: str) -> None:
    def run(d: torch.device) -> torch.Tensor:
        flat = torch.arange(float(3 * COUNT), device=d)
        torch._foreach_mul_(list(flat.split(3)), list(flat.flip(0).split(3)))
        return flat

    check(run, device)


def test_lists_of_other_lengths_are_refused(device: torch.device) -> None:
    x = tensors(device, 0)
    with pytest.raises(RuntimeError, match="same number of tensors|same length"):
        torch._foreach_add(x, x[:-1])


def test_few_programs(device: torch.device) -> None:
    with torch.tpu.set_eager_mode("strict"):
        x = [torch.full((3 + i % 2,), float(i)).to(device) for i in range(COUNT)]
        torch.tpu.reset_cache_stats()
        torch._foreach_sinh(x)
        torch.tpu.synchronize()
        stats = torch.tpu.cache_stats()
    made = stats["compiles"] + stats["disk_hits"]
    assert made == 4, "for each shape, a program of a whole group and one of the rest"
    assert stats["requests"] == 20
