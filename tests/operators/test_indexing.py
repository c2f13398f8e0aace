"""Rows of crates/aten/src/ops/index/indexing.rs."""

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "__getitem__",
    "combinations",
    "gather",
    "index_put",
    "index_select",
    "nn.functional.one_hot",
    "put",
    "take",
    "take_along_dim",
    "unravel_index",
)


def test_the_index_of_index_select_is_a_vector(device: torch.device) -> None:
    for shape in [(2, 1), (2, 0), (0, 2), (1, 1, 1)]:
        index = torch.zeros(shape, dtype=torch.long)
        check_refused(lambda on, index=index: torch.ones(3, 3, device=on).index_select(0, index.to(on)), device)


def test_values_of_another_dtype_are_refused(device: torch.device) -> None:
    """A write of one number to all elements of a mask is a fill, which takes other dtypes."""
    rows, mask = torch.tensor([1]), torch.tensor([True, False, True])

    def written(on: torch.device, index: torch.Tensor, values: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
        return torch.ones(3, 4, device=on).index_put((index.to(on),), values.to(on), accumulate)

    for given in [
        (rows, torch.ones(1, 4, dtype=torch.float64)),
        (rows, torch.ones((), dtype=torch.int64), True),
        (rows, torch.ones(4, dtype=torch.float16)),
        (mask, torch.ones(2, 4, dtype=torch.float64)),
        (mask, torch.ones((), dtype=torch.int64), True),
    ]:
        check_refused(lambda on, given=given: written(on, *given), device)
    check(lambda on: written(on, mask, torch.tensor(7)), device)
    for count, words in [(2, "source and destination dtypes match"), (3, r"of shape \[3, 4\].* of shape \[2, 4\]")]:
        values = torch.ones(count, 4, dtype=torch.int64)
        for on in (torch.device("cpu"), device):
            with pytest.raises(RuntimeError, match=words):
                written(on, mask, values)


def test_small_writes_at_separated_indices_move_no_dimension(device: torch.device) -> None:
    """XLA's scatter would copy the whole tensor to bring the indexed dimensions to the front."""
    for shape, index, accumulate in [
        ((64, 2, 8, 16), (torch.tensor([3, -1, 0]), slice(None), torch.tensor([1, 7, -8])), False),
        ((64, 2, 8, 16), (torch.tensor([[3, 9], [5, 5]]), slice(None), torch.tensor([1, 2])), True),
        ((4, 64, 32), (slice(None), torch.tensor([3, 60])), False),
        ((2, 64, 3, 8, 4), (slice(None), torch.tensor([5, 6]), slice(None), torch.tensor([0, 3])), False),
        ((64, 2, 8), (torch.arange(64) == 9, slice(None), torch.tensor([2])), False),
    ]:
        expected = torch.randn(shape)
        values = torch.randn_like(expected[index])
        places = tuple(each.to(device) if isinstance(each, torch.Tensor) else each for each in index)
        result = expected.to(device)
        given = [None if isinstance(each, slice) else each for each in index]
        torch.ops.aten.index_put_(expected, given, values, accumulate)
        given = [None if isinstance(each, slice) else each for each in places]
        torch.ops.aten.index_put_(result, given, values.to(device), accumulate)
        torch.testing.assert_close(result.cpu(), expected)

    def write(x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, values: torch.Tensor) -> None:
        x[rows, :, columns] = values

    index = torch.arange(3, device=device)
    for width, dims in [(64, "[0, 1, 2]"), (1, "[0, 2]")]:
        x = torch.zeros(8, 2, 8, width, device=device)
        text = torch.tpu.stablehlo(write, x, index, index, torch.ones(3, 2, width, device=device))
        assert f"scatter_dims_to_operand_dims = {dims}" in text


def test_a_tensor_on_the_cpu_is_written_at_indices_of_the_device(device: torch.device) -> None:
    """PyTorch's kernel moves the indices to the tensor that it writes, on CUDA too."""
    rows, mask = torch.tensor([1, -1]), torch.tensor([True, False, True])

    def written(on: torch.device) -> torch.Tensor:
        tensor = torch.zeros(3, 4)
        tensor[rows.to(on)] = torch.arange(8.0).reshape(2, 4)
        tensor[:, rows.to(on)] = torch.ones(2)
        tensor[mask.to(on)] = torch.tensor(5.0, device=on)
        tensor[rows.to(on), 0] = 7
        return tensor.index_put_((rows.to(on), rows), torch.ones(2), accumulate=True)

    def added(on: torch.device) -> torch.Tensor:
        return torch.zeros(3, 4).index_put((rows.to(on),), torch.ones(4), accumulate=True)

    for operation in (written, added):
        assert operation(device).device.type == "cpu"
        check(operation, device)


def test_a_tensor_on_the_cpu_is_not_read_at_indices_of_the_device(device: torch.device) -> None:
    tensor, rows = torch.zeros(3, 4), torch.tensor([1, 0], device=device)
    with pytest.raises(RuntimeError, match=r"either on cpu or on the same device as the indexed tensor \(cpu\)"):
        tensor[rows]
    with pytest.raises(RuntimeError, match="on the same device"):
        tensor[rows] = torch.ones(2, 4, device=device)


def test_writes_to_expanded_tensors_warn_at_each_call(device: torch.device) -> None:
    rows = torch.tensor([0])
    for write in [
        lambda x, rows: x.index_fill_(0, rows, 1.0),
        lambda x, rows: x.masked_fill_(x > 0, torch.tensor(1.0)),
        lambda x, rows: x.index_put_((rows,), x.new_ones(1)),
        lambda x, rows: x.__setitem__(rows, 2.0),
    ]:
        words = []
        for on in (torch.device("cpu"), device, device):
            with pytest.warns(UserWarning, match="on expanded tensors is deprecated") as given:
                write(torch.ones(1, device=on).expand(6), rows.to(on))
            words.append([str(each.message).partition(" (Triggered")[0] for each in given])
        assert words[0] == words[1] == words[2]


def with_a_mask(on: torch.device, name: str, rows: int, chosen: int) -> torch.Tensor:
    """Reads or writes at a mask and at an index that another mask has chosen."""
    generator = torch.Generator().manual_seed(rows * chosen)
    x = torch.randn(rows, 7, 6, generator=generator).to(on)
    order = torch.randperm(rows, generator=generator)
    places, others = (
        torch.zeros(rows, dtype=torch.bool).index_fill(0, order[s][:chosen], True)
        for s in (slice(rows), slice(1, rows))
    )
    mask, labels = places.to(on), torch.randint(0, 6, (rows,), generator=generator).to(on)
    first = (torch.arange(rows) == 3).to(on)
    column = labels[others.to(on)]
    if name == "fill":
        x[mask, column] = 1.0
    elif name == "write":
        x[mask, :, column] = x[:, :, 0][others.to(on)]
    elif name == "add":
        x.index_put_((mask, column), torch.ones((), device=on), accumulate=True)
    elif name == "one element of the mask":
        x[first, column] = 2.0
    elif name == "one element of the index":
        x[mask, labels[first]] = 2.0
    else:
        return x[mask, :, column]
    return x


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize(
    "name", ["fill", "write", "add", "read", "one element of the mask", "one element of the index"]
)
def test_a_mask_beside_an_index_of_as_many_elements(name: str, device: torch.device, mode: str) -> None:
    """Detectors assign the labels of the matched boxes so. How many there are depends on the data."""
    for rows, chosen in [(40, 7), (40, 9), (40, 12), (40, 1), (33, 8), (50, 11), (40, 0)]:
        check(lambda on, rows=rows, chosen=chosen: with_a_mask(on, name, rows, chosen), device)


def test_a_mask_beside_an_index_of_another_number_of_elements(device: torch.device, mode: str) -> None:
    labels = torch.arange(40, device=device) % 6
    for chosen in (7, 9, 12):
        x, mask = torch.zeros(40, 7, device=device), labels.new_zeros(40, dtype=torch.bool)
        mask[:chosen] = True
        with pytest.raises(IndexError, match=rf"could not be broadcast together with shapes \[{chosen}\]"):
            x[mask, labels[labels.roll(1) * mask > 2]].cpu()
