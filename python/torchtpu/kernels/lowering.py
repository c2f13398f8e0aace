"""A call of a kernel as nodes of a graph: the row `torchtpu::call`, by which a program has a module's functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchtpu.kernels.calls import Call, Spec
from torchtpu.kernels.store import is_64_bit, text_of

INT32 = torch.iinfo(torch.int32)


def add_call(encoder: Any, call: Call, tensors: Sequence[tuple[int, torch.dtype, tuple[int, ...]]]) -> list[int]:
    """Adds the nodes of a call to an encoder's; returns the numbers of the results.

    Of each tensor: its number, its dtype and its shape, which has capacities if the kernel takes padding.

    JAX's integers have 32 bits: int64 tensors are converted, and a number beyond is an error when it is next read.
    """
    from torchtpu.graphs.encoder import SCALAR_TYPES

    specs = [Spec(dtype, shape) for _, dtype, shape in tensors]
    text = text_of(call, specs)
    if text.takes == ():  # the one tensor only says where the call runs
        tensors, specs = [], []
    inputs = []
    for i, ((number, *_), spec) in enumerate(zip(tensors, specs, strict=True)):
        dtype = spec.dtype
        if text.takes is not None:
            dtype = text.takes[i]
        elif dtype is torch.int64 and not is_64_bit():
            _check_range(encoder, number, call.kernel.name)
            dtype = torch.int32
        if dtype is not spec.dtype or not spec.shape:  # what has no dimensions may be a number
            arguments = [("self", ("v", number)), ("dtype", ("d", SCALAR_TYPES[dtype]))]
            number = encoder.add("_to_copy", arguments, 1)[0]
        inputs.append(number)
    like = []
    for spec in text.results:
        size, zero = ("size", ("is", list(spec.shape))), ("fill_value", ("n", 0))
        like += encoder.add("full", [size, zero, ("dtype", ("d", SCALAR_TYPES[spec.dtype]))], 1)
    module: list[tuple[str, Any]] = [("functions", ("s", text.functions)), ("entry", ("s", text.entry))]
    if call.kernel.padding is not None:
        module.append(("padding", ("s", call.kernel.padding)))
    results: list[int] = encoder.add(
        "torchtpu::call", [*module, ("inputs", ("vs", inputs)), ("like", ("vs", like))], len(like)
    )
    return results


def _check_range(encoder: Any, number: int, name: str) -> None:
    message = f"{name}: a tensor of int64 holds a number that int32 does not, which JAX computes in"
    bounds = [
        encoder.add(row, [("self", ("v", number)), ("other", ("n", bound))], 1)[0]
        for row, bound in (("ge.Scalar", INT32.min), ("le.Scalar", INT32.max))
    ]
    both = encoder.add("logical_and", [("self", ("v", bounds[0])), ("other", ("v", bounds[1]))], 1)[0]
    every = encoder.add("all", [("self", ("v", both))], 1)[0]
    encoder.add("_assert_async.msg", [("self", ("v", every)), ("assert_msg", ("s", message))], 0)
