"""Operators without a row of their own: traced once per signature through PyTorch's decompositions.

`trace` is what the core calls when the table cannot lower an operator. It runs the operator on meta tensors, takes down
the operators of the table that it comes to, and hands that graph to the core, which compiles it as one program.

    operator ─ tracing.py (make_fx, decompositions, no mutation left) ─ encoding.py (plain tuples) ─ _C.define_graph

The graph holds the values of arguments that are not tensors, so the core's key for a traced operator includes them:
a Python number that changes means another trace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from torch._ops import OpOverload

from torchtpu import _C

T = TypeVar("T")


def trace(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Traces a call into a graph of the table's operators; returns the core's handle of the graph.

    Raises NotImplementedError, naming what is missing, where PyTorch's decompositions do not lead to the table.
    """
    from torchtpu.decompose.encoding import encode
    from torchtpu.decompose.tracing import trace_graph

    rows = frozenset(_C.table())
    # On a thread of its own: dispatch modes, autocast, inference mode, a default device and the dispatcher's exclusions
    # all belong to the thread that called the operator, and none of them may leak into what is traced.
    traced = on_a_clean_thread(lambda: encode(trace_graph(operator, args, kwargs, rows)))
    return _C.define_graph(*traced)


def on_a_clean_thread(function: Callable[[], T]) -> T:
    """What the function returns on a thread of its own, where no mode and no context of the caller is on."""
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
