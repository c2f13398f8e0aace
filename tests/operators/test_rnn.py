"""Rows of crates/aten/src/ops/nn/rnn.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "nn.GRU",
    "nn.GRUCell",
    "nn.LSTM",
    "nn.LSTMCell",
    "nn.RNN",
    "nn.RNNCell",
)
