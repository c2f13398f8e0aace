"""What `init_process_group()` without a backend gives on a machine with this device.

PyTorch asks for the default backend of the accelerator then, and keeps a map of them to which a device adds its own.
This one gives CPU tensors Gloo, in a group such as PyTorch makes where there is no accelerator: a script that only uses
the CPU does what it does without torchtpu. Collectives of the device's tensors are not implemented; PyTorch says so.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "tpu"


def register() -> None:
    """Registers the device's default backend. `import torch` has already imported all that this needs."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_gloo_available():
        distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=NAME)


def _create(options: Any, backend_options: Any) -> torch.distributed.ProcessGroup:
    """The group for the ranks that `options` describes. PyTorch uses it in place of the empty one that it has made."""
    from torch.distributed import ProcessGroup, ProcessGroupGloo

    group = ProcessGroup(options.store, options.group_rank, options.group_size)
    gloo = ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_id
    group._set_default_backend(ProcessGroup.BackendType.GLOO)
    group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, gloo)
    return group
