"""Tensors of one element: programs do not depend on the number of dimensions with which they were made."""

from __future__ import annotations

import random

import pytest
import torch

from tests.helpers import programs_made

pytestmark = pytest.mark.usefixtures("mode")


def made(way: int, device: str) -> torch.Tensor:
    """A tensor of shape [1, 1] with the number `way`, made in one of six ways."""
    number = torch.full((3,), float(way), device=device)
    match way:
        case 0:
            return number.sum().view(1, 1)
        case 1:
            return number.mean(0, keepdim=True).view(1, 1)
        case 2:
            return torch.tensor([[2.0]], device=device)
        case 3:
            return torch.tensor(3.0).to(device).view(1, 1)
        case 4:
            return torch.zeros(1, device=device).fill_(4).view(1, 1)
        case _:
            written = torch.zeros(1, 1, 1, device=device)
            written.view(1).copy_(number[:1])
            return written.squeeze(0)


def test_a_list_of_them_is_one_program() -> None:
    draws = random.Random(0)
    orders = [[draws.randrange(6) for _ in range(9)] for _ in range(12)]
    lists = [[made(way, "tpu") for way in order] for order in orders]
    torch.tpu.synchronize()
    torch.cat(lists[0]).cpu()
    before = programs_made()
    results = [torch.cat(tensors).cpu() for tensors in lists]
    assert programs_made() == before
    torch.testing.assert_close(results, [torch.cat([made(way, "cpu") for way in order]) for order in orders])


@pytest.mark.parametrize("way", range(6))
def test_their_views_and_writes(way: int) -> None:
    cpu, tpu = made(way, "cpu"), made(way, "tpu")
    for tensor in (cpu, tpu):
        tensor.view(-1)[0] += 1
        tensor.expand(1, 1).mul_(2)
        tensor[0, 0:1].sub_(0.5)
    torch.testing.assert_close(tpu.cpu(), cpu)
    for view in (
        lambda x: x.view(torch.int32),
        lambda x: x.view(torch.uint8),
        lambda x: x.expand(3, 1),
        lambda x: x[:, :0],
        lambda x: x.as_strided((1, 1, 1), (7, 5, 3)),
        lambda x: x.unfold(0, 1, 1),
        lambda x: x.T.flatten(),
        lambda x: x.squeeze(),
    ):
        assert view(tpu).shape == view(cpu).shape
        torch.testing.assert_close(view(tpu).cpu(), view(cpu))
        torch.testing.assert_close((view(tpu) + 1).cpu(), view(cpu) + 1)
    cpu.resize_(2, 1)[1] = 7
    tpu.resize_(2, 1)[1] = 7
    torch.testing.assert_close(tpu.cpu(), cpu)


def test_a_length_that_starts_at_one() -> None:
    """A value of one element is the first of a size that changes."""
    cpu, tpu = torch.ones(1), torch.ones(1, device="tpu")
    for step in range(12):
        cpu = torch.cat([cpu, cpu[-1:] * 0.5 + step])
        tpu = torch.cat([tpu, tpu[-1:] * 0.5 + step])
        torch.testing.assert_close(tpu.cpu(), cpu)
        torch.testing.assert_close((tpu * tpu.new_ones(len(tpu))).cumsum(0).cpu(), cpu.cumsum(0))


def test_gradients_and_compiled_functions() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.view(1, 1, 1) * y.view(1)).exp().reshape(1, 1)

    x = torch.tensor([0.5], requires_grad=True)
    on_tpu = x.detach().to("tpu").requires_grad_()
    function(x, x.detach()[None]).backward()
    function(on_tpu, on_tpu.detach()[None]).backward()
    torch.testing.assert_close(on_tpu.grad.cpu(), x.grad)
    compiled = torch.compile(function)
    y = torch.tensor([[2.0]])
    torch.testing.assert_close(compiled(on_tpu, y.to("tpu")).cpu(), function(x, y))
    torch.testing.assert_close(compiled(on_tpu, (y.to("tpu") * 1).sum().view(1, 1)).cpu(), function(x, y))
