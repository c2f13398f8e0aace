"""Keeps weights that a script makes on the CPU from taking memory.

What `torch.empty` returns takes no memory until it is written to, and the device that computes nothing reads nothing of
what is uploaded. So large tensors on the CPU are not initialized until the script calls a module for the first time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import module as module_hooks

# What initializers of `torch.nn.init` and of libraries call on a tensor.
_WRITES = (
    "normal_",
    "uniform_",
    "random_",
    "bernoulli_",
    "exponential_",
    "log_normal_",
    "cauchy_",
    "fill_",
    "zero_",
    "mul_",
    "div_",
    "add_",
    "sub_",
    "clamp_",
    "erfinv_",
)
_CONVERSIONS = ("to", "bfloat16", "half", "float", "double")
# Elements of a tensor that is large.
_LARGE = 2**18


class UntouchedWeights:
    """While it is entered, and until a module is called, large floating-point tensors on the CPU are not written to:
    initializers do nothing, and conversions return memory that was not touched."""

    def __init__(self) -> None:
        self._hook: Any = None

    def __enter__(self) -> UntouchedWeights:
        for name in _WRITES:
            setattr(Tensor, name, _skipping_large(getattr(Tensor, name)))
        for name in _CONVERSIONS:
            setattr(Tensor, name, _converting_nothing(getattr(Tensor, name)))
        self._hook = module_hooks.register_module_forward_pre_hook(self._end)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self, *_: Any) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
            for name in (*_WRITES, *_CONVERSIONS):
                # The method of the base class, written in C++, is seen again.
                delattr(Tensor, name)


def _skipping_large(write: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(write)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self if _is_large(self) else write(self, *args, **kwargs)

    return method


def _converting_nothing(convert: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(convert)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if _is_large(self) and not (self.requires_grad and torch.is_grad_enabled()):
            like = convert(torch.empty(0, dtype=self.dtype), *args, **kwargs)
            if like.dtype != self.dtype:
                # The device takes the converted memory, which nothing has touched either.
                return torch.empty_like(self, dtype=like.dtype).to(like.device)
        return convert(self, *args, **kwargs)

    return method


def _is_large(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype in _FLOATS and tensor.numel() >= _LARGE


_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
