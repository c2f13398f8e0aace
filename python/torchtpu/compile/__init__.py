"""`torch.compile` for tpu tensors: the backend "tpu".

    Dynamo ─ AOTAutograd ─ backend.py ─ segments.py (one program, or several with host work between)
           ─ graphs/graph_encoder.py ─ _C.CompiledGraph ─ the table, the cache and the queue of eager

A compiled graph is called like an operator. The core looks its key up, lowers it through the same rows as eager, and
runs it as one program. So `torch.tpu.cache_stats()` counts it, errors are the same, and donation, random numbers and
the eager modes work as for operators.

`registration.py` registers the backend with Dynamo at Dynamo's first import.
"""

from __future__ import annotations

from torchtpu.compile.step import compile_step

__all__ = ["compile_step"]
