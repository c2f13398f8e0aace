"""Rows of crates/aten/src/ops/elementwise/bessel.rs."""

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
