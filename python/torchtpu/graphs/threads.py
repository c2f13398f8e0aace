"""Runs a function on a thread without the caller's modes and contexts, for tracing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

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
