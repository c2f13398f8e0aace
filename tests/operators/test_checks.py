"""Checks of the data, such as indices in range, are made on the device. The next read raises the error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.helpers import check, check_refused

# The mode decides when an error is raised.
pytestmark = [pytest.mark.each_mode, pytest.mark.usefixtures("mode")]

# Functions of a 5×3 matrix and of indices, one of which is not a row.
CALLS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "index": lambda x, i: x[i],
    "index behind": lambda x, i: x[:, None, :][i, 0, -1],
    "index_put": lambda x, i: x.index_put((i,), x.new_ones(3)),
    "index_put accumulate": lambda x, i: x.index_put((i,), x.new_ones(3), accumulate=True),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[: len(i)]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[: len(i)]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[: len(i)], "prod"),
    "take": lambda x, i: x.take(i * 3),
    "put": lambda x, i: x.put(i * 3, x[0, : len(i)]),
    "embedding": lambda x, i: functional.embedding(i, x),
    "embedding_bag": lambda x, i: functional.embedding_bag(i[None], x),
    "nll_loss": lambda x, i: functional.nll_loss(x.T[: len(i)], i),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_index_out_of_range(device: torch.device, name: str) -> None:
    x, bad = torch.randn(5, 3), 5 + int(torch.randint(100, ()).item())
    good, index = torch.tensor([3, 0, 2]), torch.tensor([3, bad, 2])
    expected = CALLS[name](x, good)
    torch.testing.assert_close(CALLS[name](x.to(device), good.to(device)).cpu(), expected)
    with pytest.raises((IndexError, RuntimeError)) as of_cpu:
        CALLS[name](x, index)
    with pytest.raises(of_cpu.type, match=r" \[.*(line|test_checks.py:\d+)\]"):
        CALLS[name](x.to(device), index.to(device)).cpu()
    # It is raised once, and everything else continues to work.
    torch.tpu.synchronize()
    torch.testing.assert_close(CALLS[name](x.to(device), good.to(device)).cpu(), expected)


MASKS = (torch.tensor([True, True, True, False]), torch.tensor([True, True, False, False]))
# Functions of a 4×4 matrix and of masks, one with three and one with two true elements.
MASKED: dict[str, Callable[..., Any]] = {
    "too few values": lambda x, three, two: x.index_put((three,), x.new_ones(2, 4)),
    "too many values": lambda x, three, two: x.clone().__setitem__((slice(None), two), x.new_ones(4, 3)),
    "values in place": lambda x, three, two: x.clone().__setitem__(three, x[:2]),
    "values beside an index": lambda x, three, two: x.index_put((three, three.new_zeros(()).long()), x.new_ones(2)),
    "another mask": lambda x, three, two: x[three, two],
    "another index": lambda x, three, two: x[three, two.nonzero()[:, 0]],
    "values for another mask": lambda x, three, two: x.index_put((three, two), x.new_ones(3)),
    "values for another index": lambda x, three, two: x.index_put((two.nonzero()[:, 0], three), x.new_ones(2)),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_selects_another_number(device: torch.device, name: str) -> None:
    x = torch.randn(4, 4)
    with pytest.raises((IndexError, RuntimeError)) as of_cpu:
        MASKED[name](x, *MASKS)
    # With two masks, the message has the number of one of them.
    message = "shape mismatch" if "another" in name else re.escape(str(of_cpu.value))
    with pytest.raises(of_cpu.type, match=message):
        wait_for(lambda: MASKED[name](x.to(device), *(mask.to(device) for mask in MASKS)))


@pytest.mark.parametrize("values", [torch.ones(2, 4), torch.ones(4, 4)], ids=["too few", "too many"])
@pytest.mark.parametrize("second", [(), (torch.arange(4)[:, None],)], ids=["a mask", "a mask and an index"])
def test_a_refused_write_changes_nothing(values: Tensor, second: tuple[Tensor, ...], device: torch.device) -> None:
    x, three = torch.randn(4, 4), MASKS[0]
    written = x.to(device)
    index = (three.to(device), *(each.to(device) for each in second))
    with pytest.raises((IndexError, RuntimeError), match="shape mismatch"):
        wait_for(lambda: written.__setitem__(index, values.to(device)))
    torch.testing.assert_close(written.cpu(), x)


# Functions of a 2×0 matrix and of indices.
OF_NOTHING: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "index": lambda x, i: x[:, i],
    "write": lambda x, i: x[0].__setitem__(i, 3.0),
    "index_put": lambda x, i: x.index_put((i, i), x.new_ones(2)),
    "index_select": lambda x, i: x.index_select(1, i),
    "gather": lambda x, i: x.gather(1, i[:, None]),
    "scatter": lambda x, i: x.scatter(1, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(1, i[:, None], x.new_ones(2, 1)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(1, i[:, None], x.new_ones(2, 1), "amax"),
    "index_copy": lambda x, i: x.index_copy(1, i, x.new_ones(2, 2)),
    "index_fill": lambda x, i: x.index_fill(1, i, 1.0),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, x.new_ones(2)),
    "embedding": lambda x, i: functional.embedding(i, x.T),
    "embedding_bag": lambda x, i: functional.embedding_bag(i[None], x.T),
    "nll_loss": lambda x, i: functional.nll_loss(x, i),
}


@pytest.mark.parametrize("name", OF_NOTHING)
def test_an_index_into_nothing(name: str, device: torch.device) -> None:
    """The sizes alone show the error, so the call raises it."""
    call = OF_NOTHING[name]
    none = torch.empty(2, 0), torch.zeros(2, dtype=torch.long)
    check_refused(lambda on: call(*(each.to(on) for each in none)), device)


@pytest.mark.parametrize("index", [5, -1])
def test_an_index_beside_nothing(index: int, device: torch.device) -> None:
    """Only some operators look at the indices where the other dimension is empty."""
    x, place = torch.empty(3, 0), torch.tensor([index])
    for on in ("cpu", device):
        with pytest.raises(IndexError, match="index out of range in self"):
            wait_for(lambda on=on: x.to(on).index_reduce(0, place.to(on), x[:1].to(on), "mean"))
    for name in ("index_add", "index_copy"):
        check(lambda on, name=name: getattr(x.to(on), name)(0, place.to(on), x[:1].to(on)), device)


def test_no_index_into_nothing(device: torch.device) -> None:
    x, none = torch.empty(2, 0), torch.empty(0, dtype=torch.long)
    calls = (
        lambda d: x.to(d)[:, none.to(d)],
        lambda d: x.to(d).index_select(1, none.to(d)),
        lambda d: x.to(d).gather(1, none.to(d)[None]),
        lambda d: x.to(d).take(none.to(d)),
        lambda d: functional.embedding(none.to(d), x.T.to(d)),
    )
    for call in calls:
        torch.testing.assert_close(call(device).cpu(), call("cpu"))


@pytest.mark.parametrize("index", [7, -9])
def test_an_index_of_rows_without_elements(index: int, device: torch.device) -> None:
    """PyTorch looks at no index where the tensor has no elements, but the dimension has."""

    def program(device: torch.device) -> list[Tensor]:
        x, far = torch.ones(3, 0, device=device), torch.tensor([index], device=device)
        row, one = x[:1], torch.tensor(1.0, device=device)
        results = [x[far], x.index_put((far,), one), x.index_put((far,), one, accumulate=True)]
        results += [x.index_fill(0, far, 1.0), x.index_copy(0, far, row), x.index_add(0, far, row)]
        if device.type == "tpu":
            torch.tpu.synchronize()
        return results

    check(program, device)


@pytest.mark.parametrize("rows", [0, 3])
def test_indices_that_select_nothing_together(rows: int, device: torch.device) -> None:
    """No index is looked at where another one leaves nothing of the result."""

    def program(device: torch.device) -> list[Tensor]:
        x = torch.ones(rows, 3, 2, device=device)
        far = torch.full((2, 1), 7, device=device)
        none = torch.empty(0, dtype=torch.long, device=device)
        nothing = torch.zeros(3, dtype=torch.bool, device=device)[:0]
        y = x.clone()
        y[far, none] = 5.0
        y.index_put_((far, none), x.new_ones(2, 0, 2), accumulate=True)
        results = [x[far, none], x[far, :, none], y]
        return results if rows else [*results, x[nothing, far]]

    check(program, device)


def test_a_mask_selects_what_fits(device: torch.device) -> None:
    three, two = MASKS
    one = torch.tensor([False, True, False, False])
    x, columns = torch.randn(4, 4), torch.tensor([0, 2, 3])
    for call in (
        lambda d: x.to(d).index_put((three.to(d),), torch.ones(3, 4, device=d)),
        lambda d: x.to(d).index_put((three.to(d),), torch.ones(1, 4, device=d)),
        lambda d: x.to(d).index_put((two.to(d), one.to(d)), torch.tensor([5.0, 6.0], device=d)),
        lambda d: x.to(d)[three.to(d), columns.to(d)],
        lambda d: x.to(d)[one.to(d), columns.to(d)],
        lambda d: x.to(d)[one.to(d), two.to(d)],
    ):
        torch.testing.assert_close(call(device).cpu(), call("cpu"))


def wait_for(call: Callable[[], Any]) -> None:
    call()
    torch.tpu.synchronize()


def test_negative_indices(device: torch.device) -> None:
    x = torch.randn(5, 3, device=device)
    assert x[torch.tensor([-5, 4], device=device)].shape == (2, 3)
    with pytest.raises(IndexError, match="index -6 is out of bounds for dimension 0 with size 5"):
        x[torch.tensor([-6, 4], device=device)].cpu()
    with pytest.raises(RuntimeError, match="index -1 is out of bounds for dimension 1 with size 3"):
        x.gather(1, torch.full((5, 1), -1, device=device)).cpu()


def test_another_number_is_not_seen_before_the_error(device: torch.device, mode: str) -> None:
    x = torch.randn(4, device=device)
    if mode != "debug":
        spoilt = x[torch.tensor([4], device=device)]
        with pytest.raises(IndexError, match="index 4 is out of bounds"):
            (x.sum() + 1).item()
        del spoilt
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        wait_for(lambda: x[torch.tensor([5], device=device)])


def test_ignored_targets_and_masks(device: torch.device) -> None:
    x = torch.randn(4, 3)
    target = torch.tensor([0, -100, 2, 1])
    loss = functional.cross_entropy(x.to(device), target.to(device))
    torch.testing.assert_close(loss.cpu(), functional.cross_entropy(x, target))
    mask = x > 0
    torch.testing.assert_close(x.to(device)[mask.to(device)].cpu(), x[mask])


def test_weights_of_multinomial(device: torch.device) -> None:
    for weights, message in (
        ([1.0, -1.0], "either `inf`, `nan` or element < 0"),
        ([1.0, float("nan")], "either `inf`, `nan` or element < 0"),
        ([1.0, float("inf")], "either `inf`, `nan` or element < 0"),
        ([0.0, 0.0], "invalid multinomial distribution"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.multinomial(torch.tensor(weights, device=device), 1).item()


REFUSED: dict[str, Callable[[torch.device], Any]] = {
    "bernoulli": lambda d: torch.bernoulli(torch.tensor([0.5, 2.0], device=d)),
    "bernoulli_ of probabilities": lambda d: torch.empty(2, device=d).bernoulli_(torch.tensor([0.5, -1.0], device=d)),
    "bernoulli of NaN": lambda d: torch.bernoulli(torch.tensor([0.5, math.nan], device=d)),
    "normal": lambda d: torch.normal(torch.zeros(2, device=d), torch.tensor([1.0, -1.0], device=d)),
    "normal of a mean": lambda d: torch.normal(0.0, torch.tensor([1.0, -1.0], device=d)),
    "poisson": lambda d: torch.poisson(torch.tensor([1.0, -2.0], device=d)),
    "binary_cross_entropy": lambda d: functional.binary_cross_entropy(
        torch.tensor([0.5, 2.0], device=d), torch.ones(2, device=d)
    ),
    "binary_cross_entropy of a target": lambda d: functional.binary_cross_entropy(
        torch.full((2,), 0.5, device=d), torch.tensor([1.0, 2.0], device=d)
    ),
    "eig": lambda d: torch.linalg.eig(torch.tensor([[1.0, math.inf], [2.0, 3.0]], device=d)),
    "svd": lambda d: torch.linalg.svd(torch.tensor([[1.0, math.nan], [2.0, 3.0]], device=d)),
    "svd of a batch": lambda d: torch.linalg.svdvals(torch.stack([torch.eye(2), torch.eye(2) / 0]).to(d)),
    "pinv": lambda d: torch.linalg.pinv(torch.tensor([[1.0, math.nan], [2.0, 3.0]], device=d)),
    "eigh": lambda d: torch.linalg.eigh(torch.eye(3, device=d).index_fill(0, torch.tensor(2, device=d), math.nan)),
    "cholesky_inverse": lambda d: torch.cholesky_inverse(torch.ones(2, 2, device=d).tril(-1)),
    "cholesky_inverse of a batch": lambda d: torch.cholesky_inverse(
        torch.stack([torch.eye(2), torch.zeros(2, 2)]).to(d)
    ),
    "lu_solve": lambda d: lu_solve(torch.tensor([0, 1], dtype=torch.int32, device=d)),
    "lu_solve of large pivots": lambda d: lu_solve(torch.tensor([1, 3], dtype=torch.int32, device=d)),
    "lu_unpack": lambda d: torch.lu_unpack(torch.eye(2, device=d), torch.tensor([3, 1], dtype=torch.int32, device=d)),
    "ldl_solve": lambda d: torch.linalg.ldl_solve(
        torch.eye(2, device=d), torch.tensor([1, -3], dtype=torch.int32, device=d), torch.ones(2, 1, device=d)
    ),
    "multi_margin_loss": lambda d: functional.multi_margin_loss(
        torch.zeros(2, 3, device=d), torch.tensor([1, 3], device=d)
    ),
    "multilabel_margin_loss": lambda d: functional.multilabel_margin_loss(
        torch.zeros(1, 3, device=d), torch.tensor([[0, -2, 1]], device=d)
    ),
    "max_unpool1d": lambda d: functional.max_unpool1d(
        torch.ones(1, 1, 1, device=d), torch.full((1, 1, 1), 5, device=d), 2
    ),
    "max_unpool2d": lambda d: functional.max_unpool2d(
        torch.ones(1, 2, 1, 1, device=d), torch.tensor([3, -1], device=d).view(1, 2, 1, 1), 2
    ),
    "max_unpool3d": lambda d: functional.max_unpool3d(
        torch.ones(1, 1, 1, 1, 1, device=d), torch.full((1, 1, 1, 1, 1), 8, device=d), 2
    ),
    "embedding_bag begins late": lambda d: embedding_bag(torch.tensor([1], device=d)),
    "embedding_bag ends late": lambda d: embedding_bag(torch.tensor([0, 3], device=d)),
    "searchsorted": lambda d: torch.searchsorted(
        torch.tensor([1.0, 2.0], device=d), torch.ones(1, device=d), sorter=torch.tensor([0, 2], device=d)
    ),
    "repeat_interleave of more": lambda d: repeat_interleave(d, 2),
    "repeat_interleave of less": lambda d: repeat_interleave(d, 4),
    "histc of a bound": lambda d: torch.histc(torch.ones(2, device=d), min=0, max=math.inf),
}


def repeat_interleave(device: torch.device, size: int) -> Tensor:
    repeats = torch.tensor([1, 2], device=device)
    return torch.ones(2, device=device).repeat_interleave(repeats, output_size=size)


def lu_solve(pivots: Tensor) -> Tensor:
    return torch.linalg.lu_solve(torch.eye(2, device=pivots.device), pivots, torch.ones(2, 1, device=pivots.device))


def embedding_bag(offsets: Tensor) -> Tensor:
    words, table = torch.tensor([1, 2], device=offsets.device), torch.ones(3, 2, device=offsets.device)
    return functional.embedding_bag(words, table, offsets)


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_that_are_refused(device: torch.device, name: str) -> None:
    call = REFUSED[name]
    with pytest.raises(RuntimeError) as of_cpu:
        call(torch.device("cpu"))
    words = re.sub(r"\(error code: \d+\)\.|  \(Could this.*|\n\[ torch.*", "", str(of_cpu.value))
    with pytest.raises(of_cpu.type, match=re.escape(words)):
        wait_for(lambda: call(device))
    torch.tpu.synchronize()


HISTOGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "histc": torch.histc,
    "histogram": lambda x: torch.histogram(x, bins=3)[0],
    "histogramdd": lambda x: torch.histogramdd(x[:, None], bins=[3])[0],
}


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("name", HISTOGRAMS)
def test_a_range_that_is_not_finite(device: torch.device, name: str, number: float) -> None:
    # PyTorch's message has the range: "range [1, inf] is not finite".
    call, x = HISTOGRAMS[name], torch.tensor([1.0, number])
    with pytest.raises(RuntimeError, match="range .*is not finite"):
        call(x)
    with pytest.raises(RuntimeError, match="range .*is not finite"):
        call(x.to(device)).cpu()
    torch.testing.assert_close(torch.histc(x.to(device), 2, 0, 2).cpu(), torch.histc(x, 2, 0, 2))


def test_in_a_compiled_graph(device: torch.device) -> None:
    compiled = torch.compile(lambda x, i: x[i] * 2, dynamic=False)
    x = torch.randn(5, device=device)
    assert compiled(x, torch.tensor([4, 0], device=device)).shape == (2,)
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 5"):
        compiled(x, torch.tensor([9, 0], device=device)).cpu()

    @torch.compile
    def asserted(x: Tensor) -> Tensor:
        torch._assert_async((x > 0).all(), "all positive")
        return x + 1

    assert asserted(x.abs() + 1).shape == (5,)
    with pytest.raises(RuntimeError, match="all positive"):
        asserted(-x.abs()).cpu()


@pytest.mark.parametrize(
    "function",
    [
        lambda a: torch.linalg.eig(a),
        lambda a: torch.linalg.eigh(a),
        lambda a: torch.linalg.eigvalsh(a),
        lambda a: torch.linalg.svd(a),
        lambda a: torch.linalg.svdvals(a),
        lambda a: torch.linalg.pinv(a),
        lambda a: torch.linalg.cholesky(-a.nan_to_num()),
        lambda a: torch.linalg.cholesky_ex(-a.nan_to_num(), check_errors=True),
        lambda a: torch.linalg.inv(a.nan_to_num() * 0),
    ],
)
def test_factorizations_raise_at_the_call(
    function: Callable[[Tensor], object], device: torch.device, mode: str
) -> None:
    """Scripts catch the error and try another matrix."""
    a = torch.eye(3).index_fill(0, torch.tensor(2), math.nan).to(device)
    raised = False
    try:
        function(a)
    except RuntimeError:
        raised = True
    assert raised
    torch.testing.assert_close(torch.linalg.eigh(a.nan_to_num())[0].cpu(), torch.tensor([0.0, 1.0, 1.0]))


def test_many_unread(device: torch.device, mode: str) -> None:
    if mode == "debug":
        pytest.skip("the call itself raises")
    x, index = torch.randn(5, device=device), torch.tensor([1], device=device)
    for step in range(700):
        y = x[index + (4 if step == 100 else 0)]
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        y.cpu()


def test_exported_programs_have_no_such_results(device: torch.device) -> None:
    import torchtpu.export

    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(5, 3)

        def forward(self, words: Tensor) -> Tensor:
            return self.table(words)

    program = torch.export.export(Table(), (torch.tensor([1, 2]),))
    text = str(torchtpu.export.to_stablehlo(program))
    main = next(line for line in text.splitlines() if "@main" in line)
    assert "i64>)" not in main.split("->")[1]
