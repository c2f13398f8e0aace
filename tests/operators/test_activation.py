"""Rows of crates/aten/src/ops/elementwise/activation.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.celu",
    "nn.functional.elu",
    "nn.functional.gelu",
    "nn.functional.glu",
    "nn.functional.hardshrink",
    "nn.functional.hardsigmoid",
    "nn.functional.hardswish",
    "nn.functional.hardtanh",
    "nn.functional.leaky_relu",
    "nn.functional.logsigmoid",
    "nn.functional.mish",
    "nn.functional.prelu",
    "nn.functional.relu",
    "nn.functional.relu6",
    "nn.functional.rrelu",
    "nn.functional.selu",
    "nn.functional.silu",
    "nn.functional.softplus",
    "nn.functional.softshrink",
    "nn.functional.softsign",
    "nn.functional.tanhshrink",
    "nn.functional.threshold",
)
