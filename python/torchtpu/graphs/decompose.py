"""Operators without a row: traced once per signature through PyTorch's decompositions.

The core calls `trace` if the table cannot lower an operator. It runs the operator on meta tensors, records the rows
that it calls, and passes this graph to the core, which compiles it as one program.

    operator ─ tracing.py (make_fx, decompositions, no mutation left) ─ encoder.py (plain tuples) ─ _C.define_graph

The graph contains the values of arguments that are not tensors, so the core's key of a traced operator includes them:
a new Python number gives a new trace.
"""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload

from torchtpu import _C


def trace(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Traces a call into a graph of rows and returns the core's handle of the graph.

    Raises NotImplementedError with the missing operators if PyTorch's decompositions do not lead to rows.
    """
    from torchtpu.graphs.encoder import encode
    from torchtpu.graphs.threads import on_a_clean_thread
    from torchtpu.graphs.tracing import trace_graph

    rows = frozenset(_C.table())
    # On another thread: dispatch modes, autocast, inference mode, a default device and the dispatcher's exclusions
    # belong to the thread that called the operator, and must not affect the trace.
    traced = on_a_clean_thread(lambda: encode(trace_graph(operator, args, kwargs, rows)))
    return _C.define_graph(*traced)
