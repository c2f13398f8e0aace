"""Rows of crates/aten/src/ops/elementwise/polynomial.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "special.chebyshev_polynomial_t",
    "special.chebyshev_polynomial_u",
    "special.chebyshev_polynomial_v",
    "special.chebyshev_polynomial_w",
    "special.hermite_polynomial_h",
    "special.hermite_polynomial_he",
    "special.laguerre_polynomial_l",
    "special.legendre_polynomial_p",
    "special.shifted_chebyshev_polynomial_t",
    "special.shifted_chebyshev_polynomial_u",
    "special.shifted_chebyshev_polynomial_v",
    "special.shifted_chebyshev_polynomial_w",
)
