"""Operators with one tensor of another dtype than the rest. The device computes or refuses them as the CPU does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_flatten, tree_unflatten

from tests.conformance.places import CPU, Place
from tests.conformance.refusals import refused_with

# The dtypes that a tensor of a sample gets.
OTHERS = (torch.float64, torch.float16, torch.int64, torch.bool)


def variants(sample: SampleInput, dtype: torch.dtype) -> Iterator[SampleInput]:
    """The sample once for each of its strided tensors of `dtype` and each other dtype. Nothing for a single tensor."""
    leaves, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for place in places if len(places) > 1 else []:
        if leaves[place].dtype != dtype or leaves[place].layout != torch.strided:
            continue
        for other in OTHERS:
            changed = [*leaves[:place], leaves[place].to(other), *leaves[place + 1 :]]
            input, args, kwargs = tree_unflatten(changed, structure)
            yield SampleInput(input, args=args, kwargs=kwargs, output_process_fn_grad=sample.output_process_fn_grad)


def judged(program: Callable[[Place], Any]) -> Callable[[Place], Any] | None:
    """The program, or one that reports whether the device refuses it as the CPU does. None if it is not judged."""
    try:
        program(CPU)
    except NotImplementedError:
        # The CPU has no kernel for a dtype, which says nothing about the mixture: CUDA, and this device, may have one.
        return None
    except Exception as error:
        return refused_with(type(error), program)
    return program
