"""The process group of the device: "tpu", by that name and by the name "tpu_dist" that some libraries use.

PyTorch makes it for `init_process_group("tpu")`, and for `init_process_group()` on a machine with this device. Its
collectives take tensors of the device. Beside it stands Gloo for tensors of the CPU, so that objects, checkpoints and
scripts that only use the CPU have what they need; `"cpu:gloo,tpu:tpu"` says the same in full.
"""

from __future__ import annotations

import os
from typing import Any

import torch

__all__ = ["register", "topology_aware_mesh"]

NAMES = ("tpu", "tpu_dist")


def register() -> None:
    """Registers the process group. `import torch` has already imported all that this needs."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_gloo_available():
        for name in NAMES:
            distributed.Backend.register_backend(name, _create, extended_api=True, devices=["tpu"])


def _create(options: Any, backend_options: Any) -> Any:
    """The backend for the ranks that `options` describes.

    Collectives of the device and those of the CPU are numbered apart, so each has a Gloo of its own.
    """
    from torch.distributed import ProcessGroup, ProcessGroupGloo
    from torch.distributed.distributed_c10d import PrefixStore

    from torchtpu import _C

    # torchrun keeps its store when it starts ranks anew, with the addresses of those before.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    attempt_store = PrefixStore(f"attempt {attempt}/", options.store)

    def gloo(name: str) -> Any:
        store = PrefixStore(f"{name}/", attempt_store)
        backend = ProcessGroupGloo(store, options.group_rank, options.group_size, timeout=options.timeout)
        backend.options.global_ranks_in_group = options.global_ranks_in_group
        backend.options.group_name = options.group_id
        return backend

    group = options.process_group
    cpu = torch.device("cpu")
    if cpu not in group._device_types:
        group._register_backend(cpu, ProcessGroup.BackendType.GLOO, gloo("cpu"))
    reports = PrefixStore("reports/", attempt_store)
    return _C.process_group(gloo("tpu"), reports, int(options.timeout.total_seconds() * 1000))


def __getattr__(name: str) -> Any:
    # torch.distributed's mesh is not imported with torch.
    if name == "topology_aware_mesh":
        from torchtpu.distributed.mesh import topology_aware_mesh

        return topology_aware_mesh
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
