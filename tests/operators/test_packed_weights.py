"""Decompositions of python/torchtpu/operators/decompositions/packed_weights.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor


def packed_weight(rows: int, columns: int, device: torch.device, tiles: int = 2) -> tuple[Tensor, Tensor]:
    """Random weights of 4 bits as numbers from 0 to 15, and packed on the device."""
    weight = torch.randint(0, 16, (rows, columns), dtype=torch.uint8)
    in_bytes = (weight[:, ::2] << 4) | weight[:, 1::2]
    return weight, torch._convert_weight_to_int4pack(in_bytes.to(device), tiles)


@pytest.mark.parametrize("tiles", [2, 4, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_weights_of_4_bits(dtype: torch.dtype, group: int, tiles: int, mode: str, device: torch.device) -> None:
    weight, packed = packed_weight(16, 256, device, tiles)
    assert packed.shape == (2, 256 // (tiles * 16), 32, tiles // 2)
    x, scales, zeros = torch.randn(5, 256).to(dtype), torch.rand(256 // group, 16), torch.randn(256 // group, 16)
    together = torch.stack([scales, zeros], dim=2).to(dtype)
    wide = [numbers.double().T.repeat_interleave(group, dim=1) for numbers in together.unbind(2)]
    expected = (x.double() @ ((weight.double() - 8) * wide[0] + wide[1]).to(dtype).double().T).to(dtype)
    actual = torch._weight_int4pack_mm(x.to(device), packed, group, together.to(device))
    torch.testing.assert_close(actual.cpu(), expected, atol=1e-2, rtol=1.6e-2)


def test_weights_of_4_bits_that_do_not_fit(device: torch.device) -> None:
    def refused(why: str, weight: Tensor, x: Tensor, group: int, scales: Tensor) -> None:
        with pytest.raises(RuntimeError, match=why):
            torch._weight_int4pack_mm(x, weight, group, scales)

    _, packed = packed_weight(16, 256, device)
    x, scales = torch.ones(5, 256, device=device), torch.ones(8, 16, 2, device=device)
    refused("qGroupSize must be", packed, x, 48, scales)
    refused("needs an input", packed, x, 64, scales)
    refused("needs an input", packed, x[:, :128], 32, scales)
    with pytest.raises(RuntimeError, match="must be divisible by 8"):
        torch._convert_weight_to_int4pack(torch.zeros(12, 64, dtype=torch.uint8, device=device), 2)
    with pytest.raises(RuntimeError, match="innerKTiles must be"):
        torch._convert_weight_to_int4pack(torch.zeros(16, 64, dtype=torch.uint8, device=device), 3)
