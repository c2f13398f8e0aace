"""The process group of the device: the backend "tpu". Some libraries call it "tpu_dist".

PyTorch creates it for `init_process_group("tpu")`, and for `init_process_group()` on a machine with this device. Its
collectives take tensors of the device. A Gloo group is created with it for tensors of the CPU, which objects,
checkpoints and scripts that only use the CPU need; `"cpu:gloo,tpu:tpu"` means the same.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch

from torchtpu.when_imported import call_when_imported

__all__ = ["register", "spmd_safe", "topology_aware_mesh"]

NAMES = ("tpu", "tpu_dist")


def register() -> None:
    """Registers the backend. `import torch` has already imported all modules that this needs."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_gloo_available():
        for name in NAMES:
            distributed.Backend.register_backend(name, _create, extended_api=True, devices=["tpu"])
        # In a group of any backend, `barrier(device_ids=[...])` takes the accelerator's device, and scripts that only
        # use the CPU call it. Gloo refuses tensors of the device itself.
        _add_device("gloo")
        # It registers the backend "fake".
        call_when_imported("torch.testing._internal.distributed.fake_pg", lambda _: _add_device("fake"))


def _add_device(backend: str) -> None:
    """Makes the groups of a backend of PyTorch's have the device "tpu"."""
    devices = torch.distributed.Backend.backend_capability.get(backend, ["tpu"])
    if "tpu" not in devices:
        devices.append("tpu")


def _create(options: Any, backend_options: Any) -> Any:
    """Creates the backend for the ranks that `options` describes.

    Collectives of the device and those of the CPU are numbered separately, so each has its own Gloo group.
    """
    from torch.distributed import ProcessGroup, ProcessGroupGloo, distributed_c10d
    from torch.distributed.distributed_c10d import PrefixStore

    from torchtpu import _C
    from torchtpu.distributed import processes

    # torchrun keeps its store when it restarts ranks. It then has the addresses of the earlier ranks.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    attempt_store = PrefixStore(f"attempt {attempt}/", options.store)

    def gloo(name: str) -> Any:
        store = PrefixStore(f"{name}/", attempt_store)
        backend = ProcessGroupGloo(store, options.group_rank, options.group_size, timeout=options.timeout)
        backend.options.global_ranks_in_group = options.global_ranks_in_group
        backend.options.group_name = options.group_id
        return backend

    # Before the ranks connect: a rank that is refused would end while others connect to it.
    world = distributed_c10d.get_world_size() if distributed_c10d.is_initialized() else options.group_size
    processes.meet(PrefixStore("processes/", attempt_store), options.group_rank, options.group_size, world)
    group = options.process_group
    # With `init_process_group(device_id=...)` a mesh would split this group. It makes new groups for a group without.
    group.bound_device_id = None
    cpu = torch.device("cpu")
    if cpu not in group._device_types:
        group._register_backend(cpu, ProcessGroup.BackendType.GLOO, gloo("cpu"))
    reports = PrefixStore("reports/", attempt_store)
    ranks = options.global_ranks_in_group or range(options.group_size)
    timeout = int(options.timeout.total_seconds() * 1000)
    return _C.process_group(gloo("tpu"), reports, timeout, processes.of_ranks(ranks))


def __getattr__(name: str) -> Any:
    # `import torch` does not import the module of meshes.
    if name == "topology_aware_mesh":
        from torchtpu.distributed.mesh import topology_aware_mesh

        return topology_aware_mesh
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@contextlib.contextmanager
def spmd_safe() -> Iterator[None]:
    """The calls in this block become one program with their collectives, as in `torch.tpu.compile_step(spmd=True)`.

    The same promise holds for the block: all ranks run the same program. A function can have it as a decorator.
    """
    from torchtpu.compile.step import joined

    with joined(spmd=True):
        yield
