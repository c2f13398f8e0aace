"""`torch.library.opcheck` of operators whose tensors are on "tpu".

One of its checks, whether an operator's gradient is registered for autograd, knows the dispatch keys of the CPU, CUDA
and XPU, and refuses other devices. `docs/upstream/pytorch_opcheck_of_a_backend.patch` would make this file unnecessary.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchtpu.when_imported import call_when_imported

MODULE = "torch.testing._internal.optests.autograd_registration"


def take_device(name: str) -> None:
    """Makes the check take tensors of the device `name`, when other code imports it."""
    call_when_imported(MODULE, lambda module: _replace(module, name))


def _replace(module: Any, name: str) -> None:
    check_elsewhere = module.autograd_registration_check

    @functools.wraps(check_elsewhere)
    def autograd_registration_check(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        leaves = pytree.arg_tree_leaves(*args, **kwargs)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        is_here = any(tensor.device.type == name for tensor in tensors)
        if not is_here or not any(tensor.requires_grad for tensor in tensors):
            return check_elsewhere(op, args, kwargs)
        keys = ("AutogradPrivateUse1", "Autograd", "CompositeImplicitAutograd")
        if any(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in keys):
            return None
        # Autograd adds nothing to the results now, so that only the operator's own kernel can have recorded a graph.
        with module.set_autograd_fallback_mode("nothing"):
            outputs = pytree.tree_leaves(op(*args, **kwargs))
        inputs = {id(leaf) for leaf in leaves}
        if any(isinstance(x, torch.Tensor) and x.requires_grad and id(x) not in inputs for x in outputs):
            raise AssertionError(
                f"{op.name()}: at least one output of this operator has requires_grad=True but the operator does not "
                f"have an autograd kernel defined at an autograd key. A kernel for autograd is incorrectly registered "
                f"as the device's kernel, which may give wrong gradients. Register the gradient with "
                f"`torch.library.register_autograd`, or the operator as CompositeImplicitAutograd if it consists of "
                f"PyTorch's operators"
            )
        return None

    module.autograd_registration_check = autograd_registration_check
