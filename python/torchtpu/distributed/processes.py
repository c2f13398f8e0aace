"""One client of libtpu for all ranks: each process uses one chip, and knows the addresses of the others.

libtpu reads this from environment variables when it is opened. They follow from torchrun's variables and one exchange
of addresses through the store, inside `init_process_group`. So the device must not be used before. Addresses that are
set already are kept.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtpu import _C

# The chips of one host, by their number.
HOSTS = {1: (1, 1, 1), 2: (1, 2, 1), 4: (2, 2, 1), 8: (2, 4, 1)}

# The process of each rank of the world, once the ranks have met.
_processes: list[int] = []
_afterwards: list[Callable[[], None]] = []


def after_meeting(call: Callable[[], None]) -> None:
    """Runs `call`, which opens the plugin, once the ranks have met.

    A process that has one chip of several may use its device's number before: `set_device` opens no plugin there.
    """
    _afterwards.append(call)


def meet(store: Any, rank: int, size: int, world: int) -> None:
    """Exchanges addresses with the other ranks, and sets libtpu's variables. Only for the first group of all ranks, and
    only if libtpu is the plugin.

    Raises RuntimeError on all ranks if the device was used before on one of them, or has another number.
    """
    if _processes or size != world or size == 1 or _C.plugin_kind() != "tpu":
        return
    is_given = "TPU_PROCESS_ADDRESSES" in os.environ
    if "LOCAL_RANK" not in os.environ:
        os.environ.update(local_variables(store, rank, size))
    refusal = _refusal(rank, is_given)
    process = own_process(os.environ, rank)
    port = os.environ.get("TPU_PROCESS_PORT") or str(_free_port())
    lines = _exchange(store, "process", f"{process} {_own_host(size)}:{port} {refusal}", rank, size)
    ranks = [line.split(" ", 2) for line in lines]
    refusals = [f"rank {number}: {text}" for number, (_, _, text) in enumerate(ranks) if text]
    if refusals:
        _let_others_read(store, rank, size)
        raise RuntimeError(refusal or refusals[0])
    processes = [int(number) for number, *_ in ranks]
    if sorted(processes) != list(range(size)):
        raise RuntimeError(
            f"the processes of the {size} ranks must have the numbers 0 to {size - 1}, not {processes}: "
            f"CLOUD_TPU_TASK_ID or TPU_WORKER_ID is set wrongly"
        )
    if not is_given:
        addresses = [address for _, address, _ in sorted(ranks, key=lambda each: int(each[0]))]
        os.environ.update(variables(os.environ, process, size, port, addresses))
    _processes[:] = processes
    _C.device_name(_C.current_device())  # opens the plugin
    calls, _afterwards[:] = list(_afterwards), []
    for call in calls:
        call()


def _refusal(rank: int, is_given: bool) -> str:
    """Why this process cannot take part, or nothing."""
    if _C.is_initialized() and not is_given:
        return (
            "init_process_group must be called before the first use of a tpu device: the TPU is open already, for this "
            "process alone"
        )
    current, local = _C.current_device(), int(os.environ["LOCAL_RANK"])
    if int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > 1 and current != local:
        return (
            f"tpu:{current} was set as the current device, but rank {rank} has tpu:{local}: its number among the ranks "
            f"of this host is {local}"
        )
    return ""


def _let_others_read(store: Any, rank: int, size: int) -> None:
    """Keeps rank 0, which may have the store, until the other ranks have read why they end, for a few seconds."""
    read = store.add("read", 1)
    deadline = time.monotonic() + 5
    while rank == 0 and read < size and time.monotonic() < deadline:
        time.sleep(0.01)
        read = store.add("read", 0)


def _exchange(store: Any, name: str, value: str, rank: int, size: int) -> list[str]:
    """The values of all ranks. One rank reads them all, so that each other one reads one value of the store."""
    store.set(f"{name} of {rank}", value)
    if rank == 0:
        store.set(f"{name} of all", "\n".join(store.get(f"{name} of {each}").decode() for each in range(size)))
    values: list[str] = store.get(f"{name} of all").decode().split("\n")
    return values


def local_variables(store: Any, rank: int, size: int) -> dict[str, str]:
    """torchrun's variables about the ranks of a host, for processes that were started in another way, as by
    `torch.multiprocessing.spawn`. Ranks of one host have its name."""
    hosts = _exchange(store, "host", socket.gethostname(), rank, size)
    on_host = [each for each, host in enumerate(hosts) if host == hosts[rank]]
    return {"LOCAL_RANK": str(on_host.index(rank)), "LOCAL_WORLD_SIZE": str(len(on_host))}


def of_ranks(ranks: Sequence[int]) -> list[int]:
    """The process of each of these ranks in the client, or nothing if it has only this process."""
    return [_processes[rank] for rank in ranks] if _processes else []


def own_process(environment: Mapping[str, str], rank: int) -> int:
    """The number of this process. Hosts with a number in the TPU are in the order of these numbers."""
    if "CLOUD_TPU_TASK_ID" in environment:
        return int(environment["CLOUD_TPU_TASK_ID"])
    host = environment.get("TPU_WORKER_ID")
    if not host:
        return rank
    return int(host) * int(environment.get("LOCAL_WORLD_SIZE", 1)) + int(environment.get("LOCAL_RANK", 0))


def variables(
    environment: Mapping[str, str], process: int, size: int, port: str, addresses: Sequence[str]
) -> dict[str, str]:
    """libtpu's variables for a process with one chip."""
    return {
        "TPU_PROCESS_BOUNDS": ",".join(map(str, _bounds(environment, size))),
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_ADDRESSES": ",".join(addresses),
        "TPU_PROCESS_PORT": port,
        "CLOUD_TPU_TASK_ID": str(process),
        "TPU_VISIBLE_CHIPS": environment.get("TPU_VISIBLE_CHIPS") or environment.get("LOCAL_RANK", "0"),
    }


def _bounds(environment: Mapping[str, str], size: int) -> tuple[int, ...]:
    """The chips along each axis of the TPU: from what the machine says, or of one host."""

    def of(name: str, separator: str) -> tuple[int, ...]:
        sizes = tuple(int(each) for each in environment.get(name, "").split(separator) if each)
        return (*sizes, *(1 for _ in range(3 - len(sizes))))

    candidates = [
        of("TPU_TOPOLOGY", "x"),
        *(
            tuple(one * other for one, other in zip(of(chips, ","), of(hosts, ","), strict=True))
            for chips, hosts in (
                ("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_PROCESS_BOUNDS"),
                ("TPU_CHIPS_PER_HOST_BOUNDS", "TPU_HOST_BOUNDS"),
            )
        ),
    ]
    if int(environment.get("LOCAL_WORLD_SIZE", size)) == size and size in HOSTS:
        candidates.append(HOSTS[size])
    for bounds in candidates:
        if math.prod(bounds) == size:
            return bounds
    raise RuntimeError(
        f"how the chips of {size} ranks are arranged is not known: start one process for each chip, or set "
        f"TPU_TOPOLOGY, such as 4x4, or TPU_PROCESS_BOUNDS, such as 4,4,1"
    )


def _own_host(size: int) -> str:
    """The address at which the ranks, of this number, find this host."""
    if int(os.environ.get("LOCAL_WORLD_SIZE", 1)) == size:
        return "localhost"
    master = os.environ.get("MASTER_ADDR", "localhost"), int(os.environ.get("MASTER_PORT", 1))
    family = socket.getaddrinfo(*master, type=socket.SOCK_DGRAM)[0][0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        # Sends nothing. The kernel chooses the address for the route.
        probe.connect(master)
        host: str = probe.getsockname()[0]
    return f"[{host}]" if ":" in host else host


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])
