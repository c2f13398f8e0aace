"""Operators without a row of their own: traced once per signature through PyTorch's decompositions.

`trace` is what the core calls when the table cannot lower an operator. It runs the operator on meta tensors, takes down
the operators of the table that it comes to, and hands that graph to the core, which compiles it as one program.

    operator ─ tracing.py (make_fx, decompositions, no mutation left) ─ encoder.py (plain tuples) ─ _C.define_graph

The graph holds the values of arguments that are not tensors, so the core's key for a traced operator includes them:
a Python number that changes means another trace.
"""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload

from torchtpu import _C


def trace(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Traces a call into a graph of the table's operators; returns the core's handle of the graph.

    Raises NotImplementedError, naming what is missing, where PyTorch's decompositions do not lead to the table.
    """
    from torchtpu.graphs.encoder import encode
    from torchtpu.graphs.threads import on_a_clean_thread
    from torchtpu.graphs.tracing import trace_graph

    rows = frozenset(_C.table())
    # On a thread of its own: dispatch modes, autocast, inference mode, a default device and the dispatcher's exclusions
    # all belong to the thread that called the operator, and none of them may leak into what is traced.
    traced = on_a_clean_thread(lambda: encode(trace_graph(operator, args, kwargs, rows)))
    return _C.define_graph(*traced)
