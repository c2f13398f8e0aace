"""Sizes that change: from the second or third set of sizes on, programs take them as inputs, with exact results.

Uploads whose sizes change are padded with NaN, so padding that affects a result is detected.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers import assert_same, check, check_started_python, programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")

LENGTHS = (5, 9, 13, 7, 11, 12)


def check_lengths(function: Callable[..., Tensor], device: torch.device, *shapes: tuple[int | None, ...]) -> None:
    """The function and its gradients equal the CPU's for each length in place of None."""
    generator = torch.Generator().manual_seed(0)
    for length in LENGTHS[:5]:
        given = [torch.randn([length if n is None else n for n in shape], generator=generator) for shape in shapes]
        on_cpu = [each.clone().requires_grad_() for each in given]
        on_device = [each.to(device).requires_grad_() for each in given]
        result, expected = function(*on_device), function(*on_cpu)
        if expected.requires_grad:
            grad = torch.randn(expected.shape, generator=generator)
            expected.backward(grad)
            result.backward(grad.to(device))
        assert_same(result, expected)
        for one, other in zip(on_device, on_cpu, strict=True):
            if other.grad is not None:
                assert_same(one.grad, other.grad)


class Model(nn.Module):
    """Embedding, attention and a loss of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.places = nn.Parameter(torch.randn(16, 8))
        self.register_buffer("mask", torch.ones(16, 16, dtype=torch.bool).triu(1))
        self.norm = nn.LayerNorm(8)
        self.join = nn.Linear(8, 24)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length = tokens.shape
        x = self.tokens(tokens) + self.places[:length]
        query, key, value = (
            each.view(batch, length, 2, 4).transpose(1, 2) for each in self.join(self.norm(x)).split(8, dim=2)
        )
        scores = (query @ key.transpose(-2, -1)).masked_fill(self.mask[:length, :length], -torch.inf)  # type: ignore[index]
        x = x + (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, 8)
        return self.head(x).flatten(0, 1)


@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_index_errors_name_the_size(device: torch.device, mode: str) -> None:
    """A program for all sizes up to a capacity has a message for each."""
    torch.tpu.set_eager_mode(mode)
    for length in LENGTHS:
        x, index = torch.randn(length, 3).to(device), torch.tensor([-length - 1, 0]).to(device)
        wrong = rf"index {-length - 1} is out of bounds for dimension 0 with size {length}\b"
        with pytest.raises(IndexError, match=wrong):
            x[index].cpu()
        wrong = rf"tried to access index {3 * length} on a tensor of {3 * length} elements"
        with pytest.raises(IndexError, match=wrong):
            x.take(index * 0 + 3 * length).cpu()


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_model_trains_on_all_lengths_with_one_set_of_programs(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    torch.manual_seed(0)
    reference = Model()
    model = copy.deepcopy(reference).to(device)
    both = [(each, torch.optim.SGD(each.parameters(), lr=0.1)) for each in (model, reference)]
    stats = torch.tpu.op_stats()
    for number, length in enumerate(LENGTHS):
        tokens, targets = (torch.randint(11, (3, length)) for _ in range(2))
        targets[0, 0] = -100
        before, losses = programs_made(), []
        for each, optimizer in both:
            place = next(each.parameters()).device
            optimizer.zero_grad()
            loss = F.cross_entropy(each(tokens.to(place)), targets.to(place).flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        assert_same(*losses)
        if number > 2:
            assert programs_made() == before, f"length {length}"
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert_same(one, other)
    after = torch.tpu.op_stats()
    assert after["padded"] == stats["padded"]
    assert after["unpadded"] == stats["unpadded"]


@pytest.mark.parametrize(("mode", "channels"), [("strict", 3), ("fused", 5)])
def test_images_of_changing_size_have_one_set_of_programs(device: torch.device, mode: str, channels: int) -> None:
    torch.tpu.set_eager_mode(mode)
    torch.manual_seed(0)
    reference = nn.Sequential(nn.Conv2d(2, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()).double()
    model = copy.deepcopy(reference).to(device)
    made = []
    for size in (20, 26, 31, 23, 29, 18):
        x, before = torch.randn(2, 2, size, size, dtype=torch.float64), programs_made()
        given = x.to(device)
        results = [each(at).mean((0, 2, 3)) for each, at in ((model, given), (reference, x))]
        for each, result in zip((model, reference), results, strict=True):
            each.zero_grad()
            (result * result).sum().backward()
        assert_same(*(result.detach() for result in results))
        made.append(programs_made() - before)
    for one, other in zip(model.state_dict().values(), reference.state_dict().values(), strict=True):
        assert_same(one, other)
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert_same(one.grad, other.grad)
    assert not any(made[3:]), made


def in_place(x: Tensor) -> Tensor:
    y = x.detach() * 1
    y[:, 0] = 2.0
    y[:, 1:].mul_(3)
    y[0].add_(y[1])
    return y.neg_()


def to_a_part(x: Tensor) -> Tensor:
    whole = torch.zeros(3, 16, 2, device=x.device)
    whole[:, 1 : x.shape[1] + 1] = x
    return whole


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(1) + x.mean(1) + x.amax(1) + x.prod(1),
        lambda x: x.softmax(1).log() * x.std(1, keepdim=True),
        lambda x: x.cumsum(1).flip(1),
        lambda x: x.argmax(1) + x.argmin(1),
        lambda x: x[:, -1] + x[:, 2],
        lambda x: x[:, 1:] * x[:, :-1],
        lambda x: torch.cat([x, x], 2).transpose(1, 2).contiguous(),
        lambda x: x.flatten(0, 1).t() @ x.reshape(-1, 2),
        lambda x: torch.where(x > 0, x, 0.5),
        lambda x: F.layer_norm(x.transpose(1, 2).contiguous().transpose(1, 2), (2,), eps=1.0),
        lambda x: x.gather(1, (x.detach() > 0).long()),
        lambda x: x.index_select(1, torch.tensor([3, 0], device=x.device)),
        lambda x: x.detach().clone().index_copy_(1, torch.tensor([2, 0], device=x.device), x.detach()[:, :2]),
        lambda x: x.masked_select(x > 0).sum(),
        lambda x: x[x.detach().sum((1, 2)) > -100].sum(),
        in_place,
        to_a_part,
    ],
    ids=lambda function: None,
)
def test_results_are_those_of_static_programs(function: Callable[[Tensor], Tensor], device: torch.device) -> None:
    check_lengths(function, device, (3, None, 2))


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_two_dimensions_change(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    for number, (batch, length) in enumerate([(3, 5), (6, 9), (4, 13), (7, 11), (5, 5), (9, 4)]):
        x = torch.randn(batch, length, 2)
        result = (x.to(device).relu().sum(1) @ torch.ones(2, 3, device=device)).softmax(0)
        assert_same(result, (x.relu().sum(1) @ torch.ones(2, 3)).softmax(0))
        del result, number


def test_a_parameter_that_is_overwritten_stays_exact(device: torch.device) -> None:
    for length in LENGTHS:
        x = torch.randn(length, 3).to(device)
        y = x * 2
    parameter = torch.zeros(LENGTHS[-1], 3, device=device)
    parameter.add_(1)
    unpadded = torch.tpu.op_stats()["unpadded"]
    parameter.copy_(y)
    assert torch.tpu.op_stats()["unpadded"] == unpadded + 1
    assert_same(parameter, y.cpu())


def new_programs(x: Tensor) -> bool:
    """Whether a call on a tensor of new sizes needs programs that were not needed before."""
    torch.tpu.synchronize()
    torch.tpu.reset_cache_stats()
    (x + 1).sum().item()
    stats = torch.tpu.cache_stats()
    return stats["requests"] > stats["hits"]


def test_weights_of_models_are_exact(device: torch.device) -> None:
    def module(rows: int) -> Tensor:
        return nn.Linear(37, rows).to(device).weight.detach()

    def state(rows: int) -> Tensor:
        model = nn.Linear(37, rows, device=device)
        model.load_state_dict(nn.Linear(37, rows).state_dict())
        return model.weight.detach()

    assert all(new_programs(module(rows)) for rows in (15, 19, 23, 27, 31))
    assert all(new_programs(state(rows)) for rows in (16, 20, 24, 28, 32))


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_one_other_size_is_enough(device: torch.device, mode: str) -> None:
    """The second length has programs for all lengths. Their capacity is that of the largest length."""
    torch.tpu.set_eager_mode(mode)

    def made(length: int) -> int:
        before, x = programs_made(), torch.randn(length, 45)
        assert_same((x.to(device) * 2).sum(0), (x * 2).sum(0))
        return programs_made() - before

    assert made(60) > 0
    assert made(9) > 0
    assert [made(length) for length in (61, 7, 60, 33)] == [0] * 4


def test_usual_sizes_stay_exact(device: torch.device) -> None:
    """The last batch of each epoch is smaller. The other batches keep their programs for exact sizes."""

    def has_padding(length: int) -> bool:
        before = torch.tpu.op_stats()["unpadded"]
        assert_same(torch.ones(length, 46).to(device) + 1, torch.full((length, 46), 2.0))
        return torch.tpu.op_stats()["unpadded"] > before

    for _ in range(3):
        assert [has_padding(length) for length in [32] * 10 + [20]] == [False] * 10 + [True]


def test_sizes_that_come_often_become_exact(device: torch.device) -> None:
    """A loop that goes on at another size gets programs for it. Sizes that the user has marked stay inputs."""

    def has_padding(x: torch.Tensor) -> bool:
        before = torch.tpu.op_stats()["unpadded"]
        assert_same(x + 1, torch.full(x.shape, 2.0))
        return torch.tpu.op_stats()["unpadded"] > before

    def upload(length: int) -> torch.Tensor:
        return torch.ones(length, 47).to(device)

    def upload_marked(length: int) -> torch.Tensor:
        x = torch.ones(length, 48).to(device)
        torch.tpu.mark_dynamic(x, 0)
        return x

    assert [has_padding(upload(length)) for length in (8, 8, 30)] == [False, False, True]
    assert [has_padding(upload(30)) for _ in range(140)].count(True) < 130
    # Other sizes have padding, and the size stays exact when it comes back.
    assert [has_padding(upload(length)) for length in (8, 25, 30, 30)] == [True, True, False, False]
    assert all(has_padding(upload_marked(30)) for _ in range(140))


def test_tensors_that_stay_are_exact(device: torch.device) -> None:
    for first in (5, 30, 55):
        kept = [torch.randn(rows, 39).to(device) for rows in range(first, first + 20)]
        assert all(new_programs(each) for each in kept[-3:])


def test_a_line_that_uploads_very_many_sizes_uploads_data(device: torch.device) -> None:
    """As a data set does whose samples all stay on the device."""
    kept = [torch.ones(rows, 53).to(device) for rows in range(2, 202)]
    assert all(new_programs(each) for each in kept[40:44])
    assert sum(new_programs(each) for each in kept[100:]) <= 4
    for each in kept[::50]:
        assert_same((each * 2).sum(0), torch.full((53,), 2.0 * len(each)))


def test_other_lines_are_not_affected(device: torch.device) -> None:
    for length in (5, 9, 13, 7):
        changing = torch.randn(length, 41).to(device)
        is_new = new_programs(changing)
    assert not is_new
    del changing
    assert new_programs(torch.randn(7, 43).to(device))
    assert new_programs(torch.zeros(7, 41, device=device))


def test_padding_is_no_infinity(device: torch.device) -> None:
    torch.tpu.set_eager_mode("debug", check_finite=True)
    for length in LENGTHS:
        x = torch.ones(length, 2).to(device)
        assert (x + 1).sum().item() == 4 * length
    x = torch.zeros(8, 2).to(device)
    with pytest.raises(RuntimeError, match="contains"):
        1 / x


def test_explain_says_why_sizes_are_constants(device: torch.device) -> None:
    for length in LENGTHS:
        x = torch.randn(length, 4).to(device)
        with torch.tpu.explain() as explanation:
            torch.linalg.svd(x)
    assert "the sizes are constants, because" in str(explanation)


def run_with(setting: str, code: str) -> str:
    return check_started_python(code, TORCHTPU_SIZES=setting)


def test_sizes_can_be_constants() -> None:
    code = (
        "import torch\n"
        "for n in (5, 9, 13, 7):\n"
        "    torch.tpu.reset_cache_stats()\n"
        "    (torch.ones(n).to('tpu') + 1).sum().item()\n"
        "print(torch.tpu.cache_stats()['requests'], torch.tpu.cache_stats()['hits'])\n"
    )
    assert run_with("static", code).split() == ["2", "0"]
    assert run_with("dynamic", code).split() == ["2", "2"]


def test_random_programs_with_padding() -> None:
    """Every upload is padded, so that all lines of the programs meet padding."""
    run_with("padded", "from tests.fuzz.test_property import compare\nfor seed in range(6): compare(seed, 'tpu')")


def test_compiled_graphs_take_what_is_padded(device: torch.device, fresh_dynamo: None) -> None:
    """As an input whose sizes do not change in the graph, beside one whose sizes do."""

    def upload(given: Tensor) -> Tensor:
        return given.to(device)

    for length in LENGTHS:
        upload(torch.ones(length))
    compiled = torch.compile(lambda x, weight: x * weight)
    for length in LENGTHS:
        x, weight = torch.randn(length, 3), torch.randn(3)
        given = x.to(device)
        torch._dynamo.mark_dynamic(given, 0, min=3, max=19)
        assert_same(compiled(given, upload(weight)), x * weight)


def test_many_changing_dimensions_take_little_memory(device: torch.device) -> None:
    """Five dimensions of about ten elements, where programs for a hundred exist: padding in all would be 2^37 bytes."""
    for length in LENGTHS[:5]:
        assert_same(torch.ones(100 + length).to(device) + 1, torch.full((100 + length,), 2.0))
    for number in range(5):
        exact = torch.randn(9 + number, 10 + number, 11 + number, 12 + number, 13 + number)
        assert_same(exact.to(device) * 2, exact * 2)


def test_a_result_of_many_changing_dimensions_takes_little_memory(device: torch.device) -> None:
    for length in LENGTHS[:5]:
        vectors = [torch.randn(length + 2 * i) for i in range(5)]
        on_device = [each.to(device) for each in vectors]
        result, expected = on_device[0], vectors[0]
        for one, other in zip(on_device[1:], vectors[1:], strict=True):
            result, expected = result.unsqueeze(-1) * one, expected.unsqueeze(-1) * other
        assert_same(result, expected)


GIVEN_RESULTS: dict[str, Callable[..., Tensor]] = {
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "add": lambda x, out: torch.add(x, 1, out=out),
    "sum": lambda x, out: torch.sum(x, 1, out=out),
    "arange": lambda x, out: torch.arange(float(len(x)), out=out),
    "full": lambda x, out: torch.full((len(x), 2), 7.0, out=out),
}


@pytest.mark.filterwarnings("ignore:The number of elements in the out tensor", "ignore:An output with one or more")
@pytest.mark.parametrize("name", GIVEN_RESULTS)
def test_given_results_are_resized(name: str, device: torch.device, mode: str) -> None:
    """The sizes of a result given as out= change with those of the arguments, or stay."""
    function = GIVEN_RESULTS[name]
    for length in (6, 5, 7, 8, 9, 6, 10, 3):
        x = torch.randn(length, 3)
        for sizes in ((12,), (0,), (length, 3), (length,), (20, 2), (12,)):
            actual, expected = torch.full(sizes, -1.0, device=device), torch.full(sizes, -1.0)
            function(x.to(device), actual)
            assert_same(actual, function(x, expected))


def test_exact_values_for_a_program_that_takes_sizes(device: torch.device) -> None:
    """A call on padded values that needs exact ones may find the program of an earlier call on exact values, with
    sizes as inputs."""

    def gradient(make: Callable[[Tensor], Tensor], shape: tuple[int, ...], device: torch.device) -> Tensor:
        x = torch.linspace(-2, 3, math.prod(shape)).view(shape).to(device).requires_grad_()
        made = make(x)
        return torch.autograd.grad((made * made.detach().cos()).sum(), x)[0]

    def columns(size: int, stride: int) -> Callable[[Tensor], Tensor]:
        return lambda x: F.unfold(x, size, padding=(1, stride), stride=(1, stride))

    def pooled(x: Tensor) -> Tensor:
        return F.max_pool1d(x, 3, 2, 1)

    calls = [
        (columns(2, 2), (13, 11, 3, 3)),
        (columns(7, 7), (7, 3, 5, 5)),
        (pooled, (2, 2, 6)),
        (pooled, (2, 2, 5)),
    ]
    for make, shape in calls:
        check(functools.partial(gradient, make, shape), device)


def test_an_argument_of_several_changing_dimensions_takes_little_memory(device: torch.device) -> None:
    """The scores of attention: the padding of the length multiplies with itself."""
    for batch, length in [(4, 1024), (256, 16), (3, 1000), (200, 24), (256, 77), (250, 70)]:
        x = torch.randn(batch, length, 4)
        torch.tpu.reset_peak_memory_stats()
        before = torch.tpu.memory_allocated()
        given = x.to(device)
        scores = given @ given.transpose(1, 2)
        assert_same(scores.softmax(-1) @ given, (x @ x.transpose(1, 2)).softmax(-1) @ x)
        assert torch.tpu.max_memory_allocated() - before < 16 * scores.numel() * scores.element_size() + (64 << 20)
