"""The scope of a thread: what its calls have in common with those of the autograd threads that work for it."""

from __future__ import annotations

# The key of the scope in the thread-local objects, as in csrc/graph.cpp.
SCOPE = "torchtpu.scope"


def scope_of_thread() -> int:
    """The scope of this thread, which is the address of an object. Autograd copies it to its own threads."""
    import torch

    if not torch._C._is_key_in_tls(SCOPE):
        torch._C._stash_obj_in_tls(SCOPE, object())
    return id(torch._C._get_obj_in_tls(SCOPE))
