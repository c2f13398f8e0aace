"""Rows of crates/aten/src/ops/nn/embedding.rs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.helpers import check_refused
from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.embedding",
    "nn.functional.embedding_bag",
)


@pytest.mark.parametrize("shape", [(2,), (2, 2, 2)])
@pytest.mark.parametrize(
    "call",
    [
        torch.embedding_bag,
        torch._embedding_bag,
        torch._embedding_bag_forward_only,
        lambda weight, words, offsets: F.embedding_bag(words, weight, offsets),
    ],
    ids=["embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", "functional"],
)
def test_bags_of_weights_that_are_no_matrix(
    call: Callable[[Tensor, Tensor, Tensor], object], shape: tuple[int, ...], device: torch.device
) -> None:
    def program(device: torch.device) -> object:
        numbers = torch.zeros(2, dtype=torch.int64, device=device)
        return call(torch.zeros(shape, device=device), numbers, numbers)

    assert "weight has to be a 2D Tensor" in str(check_refused(program, device))


def test_words_of_a_wrong_dtype_are_refused_before_devices_are_compared(device: torch.device) -> None:
    """PyTorch compares devices in the kernels of a device, and this is a composite."""
    weight = torch.ones(3, 2)
    error = check_refused(lambda device: F.embedding(torch.ones(2, device=device), weight), device)
    assert "scalar types: Long, Int" in str(error)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.embedding(torch.ones(2, dtype=torch.int64, device=device), weight)
    # Nothing is written to tensors of the CPU before that.
    with pytest.raises(RuntimeError, match="device"):
        torch._foreach_add_([weight], [torch.ones(3, 2, device=device)])
    assert weight.eq(1).all()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_padded_words(mode: str, device: torch.device) -> None:
    """Each row of words is a bag. The words are padded within the flat list of them."""
    weight = torch.arange(36.0).sin().reshape(12, 3)
    rows = torch.arange(30).reshape(5, 6) * 7 % 12
    words = rows.to(device)
    torch.tpu.mark_dynamic(words, 1, max=8)
    torch.testing.assert_close(
        F.embedding_bag(words, weight.to(device), mode=mode).cpu(), F.embedding_bag(rows, weight, mode=mode)
    )


def test_words_out_of_range_have_the_words_of_the_cpu(device: torch.device, mode: str) -> None:
    weight = torch.ones(10, 2)
    for words in (torch.tensor([[-1, 1]]), torch.tensor([[3, 12]])):
        for on in (torch.device("cpu"), device):
            with pytest.raises(RuntimeError, match="but found idx to be (-1|12)"):
                F.embedding_bag(words.to(on), weight.to(on), padding_idx=0, mode="max").cpu()


def test_segments_of_padded_data(device: torch.device) -> None:
    rows = torch.arange(30.0).reshape(5, 6).sin()
    data = rows.to(device)
    torch.tpu.mark_dynamic(data, 1, max=8)
    lengths = torch.tensor([4, 0, 17, 9])
    actual = torch.segment_reduce(data.flatten(), "sum", lengths=lengths.to(device), unsafe=True)
    torch.testing.assert_close(actual.cpu(), torch.segment_reduce(rows.flatten(), "sum", lengths=lengths))
