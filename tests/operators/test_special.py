"""Rows of crates/aten/src/ops/elementwise/special.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "igamma",
    "igammac",
    "lgamma",
    "mvlgamma.mvlgamma_p_1",
    "mvlgamma.mvlgamma_p_3",
    "mvlgamma.mvlgamma_p_5",
    "polygamma.polygamma_n_0",
    "polygamma.polygamma_n_1",
    "polygamma.polygamma_n_2",
    "polygamma.polygamma_n_3",
    "polygamma.polygamma_n_4",
    "special.entr",
    "special.erfcx",
    "special.log_ndtr",
    "special.ndtr",
    "special.ndtri",
    "special.polygamma.special_polygamma_n_0",
    "special.zeta",
)
