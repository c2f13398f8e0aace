"""Runs a function on a thread without the caller's modes and contexts, for tracing."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def on_a_clean_thread(function: Callable[[], T]) -> T:
    """The result of a function on a new thread, without the modes and contexts of the caller."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.extend((function(), None))
        except BaseException as error:
            outcome.extend((None, error))

    thread = threading.Thread(target=run, name="torchtpu-trace")
    thread.start()
    thread.join()
    result, error = outcome
    if error is not None:
        raise error
    return result


def keep_stand_in_for_cuda() -> None:
    """Has the stand-in for CUDA's device guard made on a thread that does not end.

    Where there is no GPU, tracing puts a stand-in in the place of CUDA's device guard, for all threads. PyTorch 2.11
    destroys it when the thread that has traced ends, and autograd then calls a function of freed memory.
    """
    make: Callable[[], None] = torch._C._ensureCUDADeviceGuardSet

    @functools.cache
    def make_once() -> None:
        is_made = threading.Event()

        def run() -> None:
            make()
            is_made.set()
            threading.Event().wait()

        threading.Thread(target=run, daemon=True, name="torchtpu-guard").start()
        is_made.wait()

    torch._C._ensureCUDADeviceGuardSet = make_once


if torch.__version__ < "2.14":
    keep_stand_in_for_cuda()
