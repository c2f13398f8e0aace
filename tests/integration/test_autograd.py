"""Autograd on the device: through views and writes, hooks, threads, modes without recording."""

from __future__ import annotations

import copy
import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.helpers import check, check_refused

Tensor = torch.Tensor


def leaf(device: torch.device, *sizes: int) -> Tensor:
    count = torch.Size(sizes).numel()
    return torch.arange(1.0, count + 1).reshape(sizes).to(device).requires_grad_()


def test_through_views(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = leaf(device, 3, 4)
        y = (x * x).t()[1:, ::2]
        (y.reshape(-1)[1:] * x.diagonal().sum() + x.view(-1)[2:7]).sum().backward()
        return x.grad

    check(program, device)


def test_through_writes_to_views(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x, w = leaf(device, 3, 4), leaf(device, 4)
        y = x * 2
        part = y[1]
        part.mul_(w)
        y[:, 0] = w[:3]
        y[2, 1:].fill_(5)
        y.view(-1)[3].add_(w.sum())
        part.exp_()
        (y * y).sum().backward()
        return y.detach(), x.grad, w.grad, part.is_leaf, part.grad_fn is not None

    check(program, device)


def test_through_indexing(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = leaf(device, 4, 3)
        index = torch.tensor([0, 2, 2, 3], device=device)
        mask = torch.tensor([True, False, True, True], device=device)
        y = x[index] * 2 + x[mask].sum(0)
        z = torch.zeros(4, 3, device=device).index_add(0, index, y)
        z = (
            z.masked_fill(mask[:, None], 0.5)
            + torch.where(mask[:, None], x, -x)
            + x.gather(1, index[:, None].clamp(max=2))
        )
        z.pow(2).sum().backward()
        return x.grad

    check(program, device)


def test_broadcast_and_promotion(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x, b, s = leaf(device, 2, 3), leaf(device, 3), torch.tensor(2.0, device=device, requires_grad=True)
        half = torch.ones(3, dtype=torch.bfloat16, device=device, requires_grad=True)
        (x * b + s * half + x.expand(4, 2, 3).sum(0)).sum().backward()
        return x.grad, b.grad, s.grad, half.grad

    check(program, device)


def test_hooks(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        seen = []
        x = leaf(device, 3)
        x.register_hook(lambda gradient: gradient * 2)
        x.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad.tolist()))
        y = x * 3
        y.retain_grad()
        y.register_hook(lambda gradient: seen.append(gradient.tolist()))
        y.sum().backward()
        module = torch.nn.Linear(3, 1, bias=False).to(device)
        with torch.no_grad():
            module.weight.fill_(1)
        module.register_forward_hook(lambda module, inputs, output: output + 1)
        module.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 10,))
        z = x.detach().requires_grad_()
        module(z * 1).sum().backward()
        return seen, x.grad, y.grad, z.grad

    check(program, device)


def test_grad_functions(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = leaf(device, 3)
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        jacobian = torch.autograd.functional.jacobian(lambda t: t * t.sum(), x.detach())
        pushed = torch.func.jvp(torch.sin, (x.detach(),), (torch.ones(3, device=device),))
        mapped = torch.func.vmap(lambda row: row * row.sum())(torch.arange(6.0, device=device).reshape(2, 3))
        return first.detach(), second, jacobian, pushed, mapped

    check(program, device)


def test_forward_over_reverse(device: torch.device, mode: str) -> None:
    """The directional derivative of the gradient, for operators with their own kernel for it."""

    def program(device: torch.device) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        x, direction = torch.randn(2, 4, 3, generator=generator).to(device)
        pushed = torch.func.jvp(
            torch.func.grad(lambda y: torch.nn.functional.glu(y, 0).square().sum()), (x,), (direction,)
        )
        return torch.stack(pushed)

    check(program, device)


def test_custom_function(device: torch.device, mode: str) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gradient * 2 + x

    def program(device: torch.device) -> object:
        x = leaf(device, 2)
        Double.apply(x).sum().backward()
        return x.grad

    check(program, device)


def test_accumulation(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = leaf(device, 3)
        for scale in (1.0, 2.0, 3.0):
            (x * scale).sum().backward()
        kept = x.grad
        (x * x).sum().backward()
        same = x.grad is kept
        x.grad = None
        (x * 5).sum().backward()
        return same, kept, x.grad

    check(program, device)


def test_nothing_is_recorded(device: torch.device, mode: str) -> None:
    x = leaf(device, 3)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        x.add_(1)
    assert x.tolist() == [2, 3, 4]
    with torch.inference_mode():
        y = x * 2
        y[0] = 7
        assert y.is_inference()
    assert y.tolist() == [7, 6, 8]
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        (x * y).sum().backward()
    with torch.enable_grad():
        assert (x + 1).requires_grad
    assert not x.detach().requires_grad
    assert not torch.ones(2, device=device).requires_grad


REFUSED = {
    "write to a leaf": lambda x: x.add_(1),
    "write to a view of a leaf": lambda x: x[0].add_(1),
    "write over what backward needs": lambda x: (lambda y: (y * y, y.add_(1))[0].sum().backward())(x * 1),
    "second backward": lambda x: (lambda y: (y.backward(), y.backward()))((x * x).sum()),
    "backward of no number": lambda x: (x * x).backward(),
    "backward without gradient": lambda x: x.detach().sum().backward(),
    "gradient of integers": lambda x: x.long().requires_grad_(),
    "gradient of another shape": lambda x: setattr(x, "grad", torch.ones(7, device=x.device)),
    "out with gradient": lambda x: torch.add(x, x, out=torch.ones(3, device=x.device)),
}


@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED.keys())
def test_misuse_is_refused(wrong: object, device: torch.device, mode: str) -> None:
    check_refused(lambda device: wrong(leaf(device, 3)), device)  # type: ignore[operator]


def test_saved_tensors_hooks(device: torch.device, mode: str) -> None:
    x = leaf(device, 3)
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).sum()
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 4, 6]


def test_anomaly_mode_names_the_function(device: torch.device, mode: str) -> None:
    x = torch.zeros(1, device=device, requires_grad=True)
    with (
        pytest.warns(UserWarning, match="Error detected in"),
        pytest.raises(RuntimeError, match=r"SqrtBackward0.*nan"),
        torch.autograd.detect_anomaly(),
    ):
        (x.sqrt() * 0).sum().backward()


# ---- threads ---------------------------------------------------------------------------------------------------


def test_backward_in_threads(device: torch.device, mode: str) -> None:
    shared = leaf(device, 4)

    def work(number: int) -> list[float]:
        x = leaf(device, 4)
        for _ in range(5):
            (torch.tanh(x * number) * shared.detach()).sum().backward()
        assert x.grad is not None
        return x.grad.tolist()

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(work, range(8)))
    assert together == [pytest.approx(work(number)) for number in range(8)]


def test_many_threads_use_the_device(device: torch.device, mode: str) -> None:
    """They write to their own rows of one tensor, and read, allocate and free at the same time."""
    table = torch.zeros(6, 5, device=device)
    failures: list[BaseException] = []

    def work(row: int) -> None:
        try:
            for step in range(20):
                table[row].add_(1)
                x = torch.full((5,), float(step), device=device)
                assert (x + row).tolist() == [step + row] * 5
                if step % 5 == 0:
                    torch.tpu.synchronize()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)
    assert table.tolist() == [[20.0] * 5] * 6


def test_modes_change_under_threads(device: torch.device) -> None:
    def work(number: int) -> float:
        x = torch.full((3,), float(number), device=device)
        for _ in range(30):
            x = x + 1
        return x.sum().item()

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(work, number) for number in range(6)]
        for name in ("fused", "debug", "strict") * 4:
            torch.tpu.set_eager_mode(name)
        assert [future.result(60) for future in futures] == [3 * (number + 30) for number in range(6)]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize("dim", [0, 1, 2, None])
@pytest.mark.parametrize("parametrize", ["weight_norm", "parametrizations.weight_norm"])
def test_weight_norm(parametrize: str, dim: int | None, device: torch.device, mode: str) -> None:
    normalize = functools.reduce(getattr, parametrize.split("."), torch.nn.utils)
    plain = torch.nn.Conv1d(3, 4, 5)
    x = torch.randn(2, 3, 9)

    def program(device: torch.device) -> object:
        layer = normalize(copy.deepcopy(plain).to(device), dim=dim)
        layer(x.to(device)).square().sum().backward()
        return [parameter.grad for parameter in layer.parameters()]

    check(program, device)
