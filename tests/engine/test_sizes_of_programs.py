"""Programs as people write them, at sizes that change: after a few sizes nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.helpers import programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")

# No other test has made tensors of these sizes: a call that was made before has a program of its own.
SIZES = (211, 347, 283, 419, 263, 389, 313, 293, 367)
SETTLED = 5


def rotary(x: Tensor, weight: Tensor) -> Tensor:
    """Rotary positions by complex numbers."""
    angles = torch.outer(torch.arange(512.0), torch.tensor([1.0, 0.5, 0.1, 0.01])).to(x.device)
    turns = torch.polar(torch.ones_like(angles), angles)[: x.shape[0]]
    turned = torch.view_as_complex((x @ weight).reshape(-1, 4, 2)) * turns
    shown = torch.view_as_real(turned).flatten(1)
    return shown[1:] * shown[:-1] + turned.imag.sum(1, keepdim=True)[1:]


def graph_attention(x: Tensor, weight: Tensor) -> Tensor:
    nodes = x.shape[0]
    start = torch.arange(2 * nodes)
    source, target = torch.stack([start % nodes, (start * 7 + 3) % nodes]).to(x.device)
    message = (x @ weight)[source]
    score = F.leaky_relu((message * x[target]).sum(-1))
    highest = torch.full((nodes,), -1e9, device=x.device).scatter_reduce(0, target, score, "amax")
    share = (score - highest[target]).exp()
    total = x.new_zeros(nodes).index_add_(0, target, share)
    return x.new_zeros(x.shape).index_add_(0, target, message * (share / total[target])[:, None])


def merge_of_features(x: Tensor, weight: Tensor) -> Tensor:
    """As models of images and text put the features of images into the places of tokens."""
    is_image = torch.arange(x.shape[0]) % 3 == 1
    features = torch.linspace(-1, 1, 8 * int(is_image.sum())).reshape(-1, 8).to(x.device)
    mask = is_image.to(x.device)[:, None].expand_as(x)
    return (x @ weight).masked_scatter(mask, features * 3).tanh()


def distances(x: Tensor, weight: Tensor) -> Tensor:
    apart = torch.cdist(x @ weight, x.flip(0) + 1)
    return apart.topk(2, dim=1, largest=False).values + torch.erf(apart).mean(1, keepdim=True)


def spectrum(x: Tensor, weight: Tensor) -> Tensor:
    """Windows of a sound, of which there are as many as it is long."""
    return torch.fft.rfft((x @ weight) * torch.hann_window(8, device=x.device)).abs().square().clamp(min=1e-6).log()


def resized(x: Tensor, weight: Tensor) -> Tensor:
    """As many images as the batch has."""
    images = (x @ weight).reshape(-1, 1, 2, 4)
    return F.interpolate(images, scale_factor=2, mode="bicubic") + F.interpolate(images, size=(4, 8), mode="bilinear")


def pyramid(x: Tensor, weight: Tensor) -> Tensor:
    """Features of an image at half its size, brought back to its size and to a fixed one."""
    image = (x @ weight)[None, None]
    half = F.max_pool2d(image, 2)
    whole = F.interpolate(half, size=image.shape[-2:], mode="bilinear") + F.interpolate(half, scale_factor=2).mean()
    fixed = F.interpolate(image, size=(9, 5), mode="bicubic").sum() + F.adaptive_max_pool2d(image, (5, 3)).sum()
    return whole * fixed.tanh()


def bags(x: Tensor, weight: Tensor) -> Tensor:
    words = (torch.arange(2 * x.shape[0]) * 5 % 8).to(x.device)
    starts = torch.arange(x.shape[0]).to(x.device)
    joined = [F.embedding_bag(words, weight, 2 * starts, mode=mode) for mode in ("sum", "mean", "max")]
    return torch.stack(joined) * x


def speech(x: Tensor, weight: Tensor) -> Tensor:
    """The likelihood of labels, of which there are more in a longer sound."""
    labels = (torch.arange(x.shape[0] // 4) % 7 + 1)[None].to(x.device)
    log_probs = (x @ weight).log_softmax(-1)[:, None]
    return F.ctc_loss(log_probs, labels, [x.shape[0]], [labels.shape[1]])


def sampled(x: Tensor, weight: Tensor) -> Tensor:
    points = torch.linspace(-1.1, 1.1, 30).reshape(1, 5, 3, 2).to(x.device)
    image = (x @ weight)[None, None]
    return F.grid_sample(image, points, align_corners=False).sum() + F.avg_pool3d(image, (1, 3, 3), stride=2)


def windows(x: Tensor, weight: Tensor) -> Tensor:
    """Windows of a sound that overlap."""
    frames = (x @ weight).flatten().unfold(0, 32, 8) * torch.hann_window(32, device=x.device)
    return torch.fft.rfft(frames / 8).abs().square().mean(0)  # The loss takes the cosine of it.


def statistics(x: Tensor, weight: Tensor) -> Tensor:
    y = x @ weight
    turned = torch.linalg.cross(y[:, :3], y[:, 3:6]).tanh().sum(1, keepdim=True)
    return y.median() * y + y.take(y.argmax()) + turned * (y > 0).long().mode(0).values


def routed(x: Tensor, weight: Tensor) -> Tensor:
    """Each expert takes the rows that it gets, whose gradient goes into new zeros."""
    y = (torch.stack([x, x * 2]) @ weight).flatten(0, 1)
    result = torch.zeros_like(y)
    for expert in range(2):
        rows, _ = torch.where((y.detach()[:, :2].argmax(1) == expert)[:, None])
        result = result.index_add(0, rows, (y[rows] @ weight).tanh())
    return result


def segments(x: Tensor, weight: Tensor) -> Tensor:
    """Features of graphs, by the number of their nodes and by pairs of nodes."""
    y = x @ weight
    lengths = torch.tensor([x.shape[0] - 4, 4]).to(x.device)
    pairs = torch.arange(0, x.shape[0] + 1, 2).to(x.device)
    means = torch.segment_reduce(y, "mean", lengths=lengths)
    largest = torch.segment_reduce(y.tanh(), "max", offsets=pairs, initial=0)
    return means * largest.mean(0)


PROGRAMS = [
    rotary,
    graph_attention,
    merge_of_features,
    distances,
    spectrum,
    resized,
    pyramid,
    bags,
    speech,
    sampled,
    windows,
    statistics,
    routed,
    segments,
]


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_settle(program: Callable[[Tensor, Tensor], Tensor], device: torch.device, mode: str) -> None:
    torch.tpu.eager_mode = mode
    weight = torch.randn(8, 8)
    on_device = weight.to(device).requires_grad_()
    weight.requires_grad_()

    def step(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        result = program(x, weight)
        loss = (result * result.detach().cos()).mean()
        (gradient,) = torch.autograd.grad(loss, weight)
        return loss.detach(), gradient

    for number, size in enumerate(SIZES):
        x = torch.randn(size, 8)
        before = programs_made()
        loss, gradient = step(x.to(device), on_device)
        torch.tpu.synchronize()
        made = programs_made() - before
        expected, expected_gradient = step(x, weight)
        torch.testing.assert_close(loss.cpu(), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradient.cpu(), expected_gradient, rtol=1e-3, atol=1e-4)
        assert number < SETTLED or not made, f"{made} programs at size {size}"
