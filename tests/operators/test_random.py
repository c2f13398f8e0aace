"""Random numbers: the distributions, and that the seed determines every number in every mode."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.settings import MODES

# Many of these test that the seed determines the numbers in each mode.
pytestmark = pytest.mark.each_mode

COUNT = 20_000
# A correct sampler exceeds this Kolmogorov distance about once in 10^9 tests.
FAR = 3.3 / math.sqrt(COUNT)
# The number of standard errors from which a mean is wrong; equally rare.
ERRORS = 6.2


def _distance(sample: Tensor, distribution: Callable[[Tensor], Tensor]) -> float:
    """Kolmogorov's distance between a sample and a continuous distribution function."""
    ordered = sample.double().flatten().sort().values
    expected = distribution(ordered)
    steps = torch.arange(len(ordered) + 1, dtype=torch.float64) / len(ordered)
    return max((steps[1:] - expected).abs().max().item(), (steps[:-1] - expected).abs().max().item())


def _empty(device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(COUNT, device=device, dtype=dtype)


def _normal_cdf(mean: float, deviation: float) -> Callable[[Tensor], Tensor]:
    return lambda x: 0.5 * (1 + torch.erf((x - mean) / (deviation * math.sqrt(2))))


CONTINUOUS: dict[str, tuple[Callable[[torch.device], Tensor], Callable[[Tensor], Tensor]]] = {
    "rand": (lambda d: torch.rand(COUNT, device=d), lambda x: x),
    "rand_float64": (lambda d: torch.rand(COUNT, device=d, dtype=torch.float64), lambda x: x),
    "uniform": (lambda d: _empty(d).uniform_(-3, 5), lambda x: (x + 3) / 8),
    "randn": (lambda d: torch.randn(COUNT, device=d), _normal_cdf(0, 1)),
    "randn_float64": (lambda d: torch.randn(COUNT, device=d, dtype=torch.float64), _normal_cdf(0, 1)),
    "normal_in_place": (lambda d: _empty(d).normal_(2, 3), _normal_cdf(2, 3)),
    "normal_sizes": (lambda d: torch.normal(2.0, 3.0, (COUNT,), device=d), _normal_cdf(2, 3)),
    "normal_tensors": (
        lambda d: torch.normal(torch.full((COUNT,), 2.0, device=d), torch.full((COUNT,), 3.0, device=d)),
        _normal_cdf(2, 3),
    ),
    "normal_mean_tensor": (lambda d: torch.normal(torch.full((COUNT,), 2.0, device=d), 3.0), _normal_cdf(2, 3)),
    "normal_std_tensor": (lambda d: torch.normal(2.0, torch.full((COUNT,), 3.0, device=d)), _normal_cdf(2, 3)),
    "complex_real_part": (
        lambda d: torch.randn(COUNT, device=d, dtype=torch.complex64).real,
        _normal_cdf(0, math.sqrt(0.5)),
    ),
    "trunc_normal": (
        lambda d: torch.nn.init.trunc_normal_(_empty(d), std=1.0, a=-1.0, b=1.0),
        lambda x: (_normal_cdf(0, 1)(x) - 0.15865525393145707) / 0.6826894921370859,
    ),
    "exponential": (lambda d: _empty(d).exponential_(2.0), lambda x: 1 - torch.exp(-2 * x)),
    "cauchy": (lambda d: _empty(d).cauchy_(1.0, 2.0), lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi),
    "log_normal": (lambda d: _empty(d).log_normal_(0.5, 0.7), lambda x: _normal_cdf(0.5, 0.7)(x.log())),
    "gamma_small": (
        lambda d: torch._standard_gamma(torch.full((COUNT,), 0.3, device=d)),
        lambda x: torch.special.gammainc(torch.tensor(0.3).double(), x),
    ),
    "gamma_large": (
        lambda d: torch._standard_gamma(torch.full((COUNT,), 7.5, device=d)),
        lambda x: torch.special.gammainc(torch.tensor(7.5).double(), x),
    ),
    "gumbel": (
        lambda d: torch.distributions.Gumbel(torch.zeros((), device=d), torch.ones((), device=d)).sample((COUNT,)),
        lambda x: torch.exp(-torch.exp(-x)),
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distribution(name: str, device: torch.device) -> None:
    draw, distribution = CONTINUOUS[name]
    sample = draw(device).cpu()
    assert sample.isfinite().all()
    assert _distance(sample, distribution) < FAR
    # Neighbours and halves are independent.
    centred = distribution(sample.double()) - 0.5
    for shift in (1, 2, 4, COUNT // 2):
        correlation = (centred[shift:] * centred[:-shift]).mean() * 12
        assert abs(correlation) < ERRORS / math.sqrt(COUNT - shift)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_uniform_stays_in_its_range(dtype: torch.dtype, device: torch.device) -> None:
    unit = torch.rand(300_000, device=device, dtype=dtype)
    assert unit.dtype == dtype
    assert unit.min() >= 0
    assert unit.max() < 1
    moved = torch.empty(300_000, device=device, dtype=dtype).uniform_(100, 101)
    assert moved.min() >= 100
    assert moved.max() < 101


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (torch.float32, -3.5e38, 0.0),
        (torch.float32, -3e38, 3e38),
        (torch.float32, 0.0, math.inf),
        (torch.float32, math.nan, 1.0),
        (torch.float16, 0.0, 70_000.0),
        (torch.float64, 2.0, 1.0),
    ],
)
def test_uniform_refuses_what_is_no_range(dtype: torch.dtype, low: float, high: float, device: torch.device) -> None:
    x = torch.empty(3, dtype=dtype, device=device).uniform_(0, 1)
    before = x.cpu()
    with pytest.raises(RuntimeError) as on_cpu:
        torch.empty(3, dtype=dtype).uniform_(low, high)
    with pytest.raises(RuntimeError, match=re.escape(str(on_cpu.value))):
        x.uniform_(low, high)
    assert torch.equal(x.cpu(), before)
    assert x.uniform_(-10_000, 10_000).isfinite().all()


DISCRETE: dict[str, tuple[Callable[[torch.device], Tensor], float, float]] = {
    "bernoulli_tensor": (lambda d: torch.bernoulli(torch.full((COUNT,), 0.3, device=d)), 0.3, 0.21),
    "bernoulli_number": (lambda d: _empty(d).bernoulli_(0.3), 0.3, 0.21),
    "bernoulli_functional": (lambda d: torch.bernoulli(_empty(d), 0.3), 0.3, 0.21),
    "bernoulli_in_place": (lambda d: _empty(d).bernoulli_(torch.full((COUNT,), 0.3, device=d)), 0.3, 0.21),
    "bernoulli_bool": (lambda d: _empty(d, torch.bool).bernoulli_(0.3), 0.3, 0.21),
    "geometric": (lambda d: _empty(d).geometric_(0.25), 4.0, 12.0),
    "geometric_int": (lambda d: _empty(d, torch.int64).geometric_(0.25), 4.0, 12.0),
    "poisson_small": (lambda d: torch.poisson(torch.full((COUNT,), 2.5, device=d)), 2.5, 2.5),
    "poisson_medium": (lambda d: torch.poisson(torch.full((COUNT,), 17.0, device=d)), 17.0, 17.0),
    "poisson_large": (lambda d: torch.poisson(torch.full((COUNT,), 2e4, device=d)), 2e4, 2e4),
    "binomial_small": (
        lambda d: torch.binomial(torch.full((COUNT,), 9.0, device=d), torch.full((COUNT,), 0.3, device=d)),
        2.7,
        1.89,
    ),
    "binomial_large": (
        lambda d: torch.binomial(torch.full((COUNT,), 400.0, device=d), torch.full((COUNT,), 0.7, device=d)),
        280.0,
        84.0,
    ),
    "randint": (lambda d: torch.randint(-3, 8, (COUNT,), device=d), 2.0, 10.0),
    "randint_power_of_two": (lambda d: torch.randint(16, (COUNT,), device=d, dtype=torch.int32), 7.5, 21.25),
    "randint_float": (lambda d: torch.randint(0, 10, (COUNT,), device=d, dtype=torch.float32), 4.5, 8.25),
    "randint_wide": (
        lambda d: torch.randint(0, 2**40, (COUNT,), device=d).double() / 2**40,
        0.5,
        1 / 12,
    ),
    "random_to": (lambda d: _empty(d, torch.int64).random_(7), 3.0, 4.0),
    "random_uint8": (lambda d: _empty(d, torch.uint8).random_(), 127.5, 5461.25),
    "random_int64": (lambda d: _empty(d, torch.int64).random_().double() / 2.0**63, 0.5, 1 / 12),
    "random_bool": (lambda d: _empty(d, torch.bool).random_(), 0.5, 0.25),
    "random_float": (lambda d: _empty(d).random_() / 2**24, 0.5, 1 / 12),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distribution(name: str, device: torch.device) -> None:
    draw, mean, variance = DISCRETE[name]
    sample = draw(device).cpu().double()
    assert abs(sample.mean() - mean) < ERRORS * math.sqrt(variance / COUNT)
    # Four standard errors of a sample variance are below this for all of these distributions.
    assert abs(sample.var() - variance) < 0.12 * variance
    assert torch.equal(sample, sample.round()) or name in ("randint_wide", "random_int64", "random_float")


def test_extreme_parameters(device: torch.device) -> None:
    ends = torch.tensor([0.0, 1.0], device=device)
    assert torch.bernoulli(ends.repeat(1000)).view(1000, 2).sum(0).tolist() == [0, 1000]
    assert torch.poisson(torch.zeros(10, device=device)).eq(0).all()
    count = torch.full((100,), 30.0, device=device)
    assert torch.binomial(count, torch.zeros(100, device=device)).eq(0).all()
    assert torch.binomial(count, torch.ones(100, device=device)).eq(30).all()
    assert torch.rand(0, 3, device=device).shape == (0, 3)
    assert torch.poisson(torch.rand(0, device=device)).shape == (0,)
    assert torch.randperm(0, device=device).tolist() == []
    assert torch.randint(3, 4, (5,), device=device).tolist() == [3] * 5
    whole = torch.empty(1000, dtype=torch.int64, device=device).random_(-(2**63), None)
    assert 300 < whole.lt(0).sum() < 700


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
@pytest.mark.parametrize("n", [1, 7, 5000])
def test_randperm(n: int, dtype: torch.dtype, device: torch.device) -> None:
    permutation = torch.randperm(n, device=device, dtype=dtype)
    assert permutation.dtype == dtype
    assert torch.equal(permutation.cpu().sort().values, torch.arange(n, dtype=dtype))
    if n == 5000:
        assert permutation.cpu().ne(torch.arange(n)).sum() > n - 50


def test_randperm_is_fair(device: torch.device) -> None:
    draws = 1000
    first = torch.stack([torch.randperm(3, device=device) for _ in range(draws)]).cpu()
    orders = first[:, 0] * 2 + (first[:, 1] > first[:, 2])
    counts = torch.bincount(orders, minlength=6).double()
    assert (counts / draws - 1 / 6).abs().max() < ERRORS * math.sqrt(5 / 36 / draws)


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_multinomial(replacement: bool, dtype: torch.dtype, device: torch.device) -> None:
    weights = torch.tensor([[1.0, 0.0, 3.0, 6.0], [5.0, 5.0, 0.0, 0.0]], dtype=dtype)
    rows = weights.to(device).repeat(5000, 1)
    first = torch.multinomial(rows, 2, replacement).cpu()
    assert first.dtype == torch.int64
    frequencies = torch.stack([torch.bincount(first[row::2, 0], minlength=4) for row in range(2)]) / 5000
    assert (frequencies - weights / 10).abs().max() < ERRORS * 0.5 / math.sqrt(5000)
    assert frequencies[weights == 0].eq(0).all()
    repeated = first[:, 0].eq(first[:, 1]).double().mean()
    assert (0.4 < repeated < 0.6) if replacement else repeated == 0
    assert torch.multinomial(weights[0].to(device), 1).shape == (1,)
    many = torch.multinomial(weights[0].to(device), COUNT, True).cpu()
    assert (torch.bincount(many, minlength=4) / COUNT - weights[0] / 10).abs().max() < ERRORS * 0.5 / math.sqrt(COUNT)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout(p: float, mode: str, device: torch.device) -> None:
    x = torch.ones(COUNT, device=device, requires_grad=True)
    y = torch.nn.functional.dropout(x, p)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient.cpu(), y.detach().cpu())
    kept = y.detach().cpu().ne(0)
    assert abs(kept.double().mean() - (1 - p)) <= ERRORS * math.sqrt(p * (1 - p) / COUNT)
    assert p == 1.0 or torch.allclose(y.detach().cpu()[kept], torch.tensor(1 / (1 - p)))


def test_other_dropouts(mode: str, device: torch.device) -> None:
    channels = torch.nn.functional.dropout2d(torch.ones(64, 32, 3, 3, device=device), 0.25).cpu()
    assert channels.flatten(2).std(dim=2).eq(0).all()
    assert abs(channels.ne(0).double().mean() - 0.75) < ERRORS * math.sqrt(0.25 * 0.75 / 2048)
    alpha = torch.nn.functional.alpha_dropout(torch.randn(COUNT, device=device), 0.2, training=True).cpu()
    assert abs(alpha.mean()) < 0.1
    assert abs(alpha.std() - 1) < 0.1


def test_rrelu(device: torch.device) -> None:
    x = torch.randn(COUNT, device=device, requires_grad=True)
    y = torch.nn.functional.rrelu(x, 0.1, 0.4, training=True)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    slopes, negative = gradient.cpu(), x.detach().cpu() < 0
    assert slopes[~negative].eq(1).all()
    assert _distance(slopes[negative], lambda s: (s - 0.1) / 0.3) < 3.3 / math.sqrt(negative.sum())
    torch.testing.assert_close(y.detach().cpu(), x.detach().cpu() * slopes)
    calm = torch.nn.functional.rrelu(x, 0.1, 0.4).detach().cpu()
    torch.testing.assert_close(calm, torch.nn.functional.leaky_relu(x.detach().cpu(), 0.25))


# ---- seeds and states --------------------------------------------------------------------------------------------


def _draws(device: torch.device) -> list[Tensor]:
    return [
        torch.rand(7, device=device),
        torch.randn(3, 5, device=device),
        torch.randint(100, (6,), device=device),
        torch.empty(9, device=device).exponential_(),
        torch.randperm(10, device=device),
        torch.nn.functional.dropout(torch.ones(20, device=device), 0.5),
        torch.poisson(torch.full((4,), 20.0, device=device)),
        torch.multinomial(torch.ones(8, device=device), 3),
    ]


def _host(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.cpu() for tensor in tensors]


def test_seed_decides_in_every_mode(seed: int, device: torch.device) -> None:
    results = []
    for mode in MODES:
        with torch.tpu.set_eager_mode(mode):
            torch.manual_seed(seed)
            results.append(_host(_draws(device)))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-6, atol=0)


def test_draws_differ(seed: int, mode: str, device: torch.device) -> None:
    streams = torch.stack([torch.rand(1000, device=device) for _ in range(6)]).cpu().double()
    correlations = torch.corrcoef(streams) - torch.eye(6)
    assert correlations.abs().max() < ERRORS / math.sqrt(1000)
    # No block of a draw is repeated in the next.
    assert len(streams.flatten().unique()) > 5990
    torch.tpu.manual_seed(seed)
    assert not torch.equal(torch.rand(4, device=device).cpu(), streams[1, :4].float())


def test_state_can_be_put_back(mode: str, device: torch.device) -> None:
    torch.rand(3, device=device)
    state = torch.tpu.get_rng_state()
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    first = _host(_draws(device))
    torch.tpu.set_rng_state(state)
    torch.testing.assert_close(_host(_draws(device)), first, rtol=0, atol=0)


def test_fork_rng(seed: int, mode: str, device: torch.device) -> None:
    torch.tpu.manual_seed(seed)
    expected = torch.rand(5, device=device).cpu()
    for fork in (torch.tpu.fork_rng(), torch.random.fork_rng(devices=[0], device_type="tpu")):
        torch.tpu.manual_seed(seed)
        with fork:
            torch.tpu.manual_seed(1)
            torch.rand(100, device=device)
        assert torch.equal(torch.rand(5, device=device).cpu(), expected)


def test_seed_functions(device: torch.device) -> None:
    torch.manual_seed(5)
    assert torch.tpu.initial_seed() == 5
    first = torch.rand(5, device=device).cpu()
    torch.tpu.manual_seed_all(5)
    assert torch.equal(torch.rand(5, device=device).cpu(), first)
    torch.tpu.manual_seed(6)
    assert not torch.equal(torch.rand(5, device=device).cpu(), first)
    chosen = torch.tpu.seed()
    assert torch.tpu.initial_seed() == chosen


def test_generator_objects(seed: int, mode: str, device: torch.device) -> None:
    generator = torch.Generator(device=device)
    assert generator.device.type == "tpu"
    generator.manual_seed(seed)
    before = torch.tpu.get_rng_state()
    calls: list[Callable[[], Tensor]] = [
        lambda: torch.rand(5, device=device, generator=generator),
        lambda: torch.randn(5, device=device, generator=generator),
        lambda: torch.randint(9, (5,), device=device, generator=generator),
        lambda: torch.randperm(9, device=device, generator=generator),
        lambda: torch.empty(5, device=device).normal_(generator=generator),
        lambda: torch.bernoulli(torch.full((5,), 0.5, device=device), generator=generator),
        lambda: torch.multinomial(torch.ones(5, device=device), 2, generator=generator),
        lambda: torch.poisson(torch.full((5,), 3.0, device=device), generator=generator),
    ]
    first = _host([call() for call in calls])
    assert torch.equal(torch.tpu.get_rng_state(), before), "the default generator is left alone"
    generator.manual_seed(seed)
    torch.testing.assert_close(_host([call() for call in calls]), first, rtol=0, atol=0)
    state = generator.get_state()
    later = torch.rand(5, device=device, generator=generator).cpu()
    other = torch.Generator(device=device)
    other.set_state(state)
    assert torch.equal(torch.rand(5, device=device, generator=other).cpu(), later)
    assert generator.initial_seed() == seed


def test_new_seed_and_parameters_do_not_recompile(device: torch.device) -> None:
    def draw(seed: int, p: float) -> None:
        torch.manual_seed(seed)
        x = torch.empty(64, device=device).normal_(p, p + 1).uniform_(p, p + 1).bernoulli_(p)
        torch.nn.functional.dropout(x, p)
        torch.tpu.synchronize()

    for i in range(3):
        draw(i, 0.1 + 0.1 * i)
    compiled = torch.tpu.cache_stats()["compiles"]
    for i in range(3):
        draw(10 + i, 0.6 + 0.1 * i)
    assert torch.tpu.cache_stats()["compiles"] == compiled


def test_initialisation(mode: str, device: torch.device) -> None:
    layer = torch.nn.Linear(100, 200, device=device)
    bound = 1 / math.sqrt(100)
    weight = layer.weight.detach().cpu()
    assert _distance(weight, lambda w: (w + bound) / (2 * bound)) < FAR
    for fill, deviation in (
        (lambda w: torch.nn.init.xavier_normal_(w), math.sqrt(2 / 300)),
        (lambda w: torch.nn.init.kaiming_normal_(w), math.sqrt(2 / 100)),
    ):
        filled = fill(torch.empty(200, 100, device=device)).cpu()
        assert _distance(filled, _normal_cdf(0, deviation)) < FAR


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_of_categories_in_two_dimensions_that_change(replacement: bool, device: torch.device) -> None:
    for rows, columns in ((5, 7), (7, 5), (6, 8), (9, 4), (8, 8)):
        weights = torch.arange(1.0, rows * columns + 1).view(rows, columns)
        flat = weights.to(device).mul(2).flatten()
        torch.manual_seed(1)
        drawn = torch.multinomial(flat, 3, replacement)
        torch.manual_seed(1)
        assert drawn.tolist() == torch.multinomial((weights * 2).flatten().to(device), 3, replacement).tolist()
