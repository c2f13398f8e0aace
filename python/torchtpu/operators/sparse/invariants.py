"""The check of a COO tensor's indices and values before a tensor is made of them.

PyTorch's check of the order of coalesced indices has kernels for the CPU and CUDA alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchtpu.operators.sparse.places import flat

_libraries: list[torch.library.Library] = []
_OPERATOR = torch.ops.aten._validate_sparse_coo_tensor_args.default


def register() -> None:
    """Registers the kernel. It precedes PyTorch's composite, also for tensors with `__torch_dispatch__`."""
    library = torch.library.Library("aten", "IMPL")
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        library.impl("_validate_sparse_coo_tensor_args", _validate, key)
    _libraries.append(library)


def _validate(
    indices: Tensor,
    values: Tensor,
    size: Sequence[int],
    is_coalesced: bool | None = None,
    check_pinning: bool | None = None,
) -> None:
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    _OPERATOR._op_dk(composite, indices, values, size, None, check_pinning)
    if not is_coalesced or indices.shape[1] < 2:
        return
    keys = flat(indices, size[: indices.shape[0]])
    if not (keys[1:] > keys[:-1]).all():
        raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")
