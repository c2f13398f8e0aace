"""Rows of crates/aten/src/ops/shape/views.rs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "alias_copy",
    "as_strided",
    "as_strided.partial_views",
    "as_strided_copy",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_shapes",
    "broadcast_tensors",
    "broadcast_to",
    "chunk",
    "conj",
    "diagonal",
    "diagonal_copy",
    "dsplit",
    "expand",
    "expand_as",
    "expand_copy",
    "flatten",
    "H",
    "hsplit",
    "imag",
    "linalg.diagonal",
    "meshgrid.list_of_tensors",
    "meshgrid.variadic_tensors",
    "mH",
    "movedim",
    "mT",
    "narrow",
    "narrow_copy",
    "permute",
    "permute_copy",
    "ravel",
    "real",
    "reshape",
    "reshape_as",
    "resize_",
    "resize_as_",
    "resolve_conj",
    "resolve_neg",
    "select",
    "slice",
    "split",
    "split.list_args",
    "split_with_sizes",
    "split_with_sizes_copy",
    "squeeze",
    "squeeze.multiple",
    "squeeze_copy",
    "sum_to_size",
    "t",
    "T",
    "t_copy",
    "tensor_split",
    "transpose",
    "transpose_copy",
    "unbind",
    "unbind_copy",
    "unflatten",
    "unfold",
    "unfold_copy",
    "unsafe_chunk",
    "unsafe_split",
    "unsqueeze",
    "unsqueeze_copy",
    "view",
    "view_as",
    "view_as_complex",
    "view_as_real",
    "view_copy",
    "vsplit",
)


@pytest.mark.parametrize("sizes", [[6], [2, 4], [0]])
def test_copies_into_a_list_of_tensors(sizes: list[int], device: torch.device) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        parts = [torch.empty(size, 2, device=device) for size in sizes]
        whole = torch.arange(2.0 * sum(sizes), device=device).view(-1, 2)
        torch.split_with_sizes_copy(whole, sizes, out=parts)
        return parts

    check(program, device)


@pytest.mark.parametrize(
    "split",
    [
        lambda x: torch.unsafe_split(x, 2),
        lambda x: torch.unsafe_chunk(x, 3),
        lambda x: torch.unsafe_split_with_sizes(x, [2, 3, 1]),
    ],
    ids=["unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes"],
)
def test_unsafe_splits_share_memory(split: Callable[[torch.Tensor], list[torch.Tensor]], device: torch.device) -> None:
    def program(device: torch.device) -> tuple[torch.Tensor, list[torch.Tensor]]:
        x = torch.arange(12.0, device=device).view(6, 2)
        parts = list(split(x))
        parts[1].fill_(-1)
        return x, parts

    check(program, device)


PARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "t": lambda x: x.t(),
    "rows": lambda x: x[1:],
    "columns": lambda x: x[:, ::2],
    "expanded": lambda x: x[:, :1].expand(4, 4),
}


@pytest.mark.parametrize("name", PARTS)
def test_strided_copies_of_what_is_not_dense(device: torch.device, name: str) -> None:
    """They read and write the memory of a tensor, not its elements in order."""

    def program(d: torch.device) -> list[torch.Tensor]:
        x = PARTS[name](torch.arange(16.0, device=d).reshape(4, 4))
        source = -torch.ones(2, 2, device=d)
        results = [torch.as_strided_copy(x, (2, 2), (1, 2)), torch.as_strided_copy(x, (2, 2), (2, 1), 1)]
        if name != "expanded":
            results.append(torch.as_strided_scatter(x, source, (2, 2), (1, 2)))
        if x.is_contiguous():
            x, source = x.requires_grad_(), source.requires_grad_()
            scattered = torch.as_strided_scatter(x, source, (2, 2), (1, 2))
            results += torch.autograd.grad(scattered.square().sum(), (x, source))
        return results

    check(program, device)
