"""The sizes of the GPTs of the benchmarks, for PyTorch's and for JAX's."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    """A GPT, and a batch of a training step."""

    vocabulary: int
    width: int
    heads: int
    layers: int
    positions: int
    batch: int
    length: int


GPTS = {
    "gpt": Shape(vocabulary=512, width=128, heads=4, layers=4, positions=256, batch=4, length=128),
    # That of a GPT-2 of 124 M parameters, with 32,768 tokens. It keeps a GPU busy.
    "gpt2": Shape(vocabulary=32768, width=768, heads=12, layers=12, positions=1024, batch=8, length=1024),
}
