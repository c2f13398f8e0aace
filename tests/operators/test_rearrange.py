"""Rows of crates/aten/src/ops/shape/rearrange.rs."""

import pytest
import torch

from tests.operators.samples import samples

test_samples = samples(
    "_chunk_cat",
    "as_strided_scatter",
    "block_diag",
    "cartesian_prod",
    "cat",
    "clone",
    "column_stack",
    "contiguous",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal_scatter",
    "diff",
    "dstack",
    "flip",
    "fliplr",
    "flipud",
    "gradient",
    "hstack",
    "nn.functional.channel_shuffle",
    "nn.functional.pixel_shuffle",
    "nn.functional.pixel_unshuffle",
    "repeat",
    "roll",
    "rot90",
    "select_scatter",
    "slice_scatter",
    "stack",
    "tile",
    "trace",
    "tril",
    "tril_indices",
    "triu",
    "triu_indices",
    "vstack",
)


def test_block_diag_names_the_devices(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match=r"must all be on the same device. Input 0 is on device cpu and input 1"):
        torch.block_diag(torch.ones(2, 2), torch.ones(2, 2, device=device))
