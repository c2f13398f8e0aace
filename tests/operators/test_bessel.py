"""Rows of crates/aten/src/ops/elementwise/bessel.rs."""

import torch

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "i0",
    "special.airy_ai",
    "special.bessel_j0",
    "special.bessel_j1",
    "special.bessel_y0",
    "special.bessel_y1",
    "special.i0e",
    "special.i1",
    "special.i1e",
    "special.modified_bessel_i0",
    "special.modified_bessel_i1",
    "special.modified_bessel_k0",
    "special.modified_bessel_k1",
    "special.scaled_modified_bessel_k0",
    "special.scaled_modified_bessel_k1",
    "special.spherical_bessel_j0",
)


def test_airy_at_infinities(device: torch.device) -> None:
    values = [float("inf"), -float("inf"), float("nan"), 0.0, 1e30]
    for dtype in (torch.float32, torch.float64):
        check(
            lambda device, dtype=dtype: torch.special.airy_ai(torch.tensor(values, dtype=dtype, device=device)), device
        )
