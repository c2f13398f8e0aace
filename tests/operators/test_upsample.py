"""Rows of crates/aten/src/ops/nn/upsample.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "_upsample_bilinear2d_aa",
    "nn.functional.interpolate.area",
    "nn.functional.interpolate.bicubic",
    "nn.functional.interpolate.bilinear",
    "nn.functional.interpolate.linear",
    "nn.functional.interpolate.nearest",
    "nn.functional.interpolate.nearest-exact",
    "nn.functional.interpolate.trilinear",
    "nn.functional.upsample_bilinear",
    "nn.functional.upsample_nearest",
)
