"""One process is rank 0 of a mesh of chips. Its process groups send nothing; what they would send is counted.

A script for torchrun finds the variables that torchrun sets. Its `init_process_group` makes PyTorch's fake groups, in
which a collective is done at once. Collectives pass through the operators of `c10d`, or for DTensor those of
`_c10d_functional`, where their bytes are noted.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
import torch.distributed as dist

from torchtpu.preflight.chips import find
from torchtpu.preflight.modules import ModuleNames

# Of the bytes of the whole tensor, what each of n ranks sends in a ring, by a part of the operator's name.
_SENT: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("allreduce", lambda n: 2 * (n - 1) / n),
    ("allgather", lambda n: (n - 1) / n),
    ("reducescatter", lambda n: (n - 1) / n),
    ("alltoall", lambda n: (n - 1) / n),
    ("gather", lambda n: (n - 1) / n),
    ("scatter", lambda n: (n - 1) / n),
    ("broadcast", lambda n: 1.0),
    ("reduce", lambda n: 1.0),
    ("send", lambda n: 1.0),
)
# The time that a message takes from one chip to the next, in seconds.
_HOP = 1e-6


@dataclasses.dataclass(frozen=True)
class Mesh:
    """The axes of a mesh, the last of which changes first from rank to rank, on a topology of chips."""

    axes: tuple[tuple[str, int], ...]
    topology: str

    @property
    def devices(self) -> int:
        """The number of ranks."""
        return prod(size for _, size in self.axes)

    def axis_of(self, ranks: Sequence[int]) -> str:
        """The axes that the ranks of a group lie along: "fsdp", or "fsdp, tp" for several."""
        places = [self._place(rank) for rank in ranks]
        along = [name for index, (name, _) in enumerate(self.axes) if len({place[index] for place in places}) > 1]
        return ", ".join(along)

    def _place(self, rank: int) -> list[int]:
        place = []
        for _, size in reversed(self.axes):
            rank, index = divmod(rank, size)
            place.append(index)
        return place[::-1]

    def group_of_first(self, axes: str) -> list[int]:
        """The ranks of the group of rank 0 along axes."""
        names, along = [name for name, _ in self.axes], set(axes.split(", "))
        places = {rank: self._place(rank) for rank in range(self.devices)}
        return [
            rank
            for rank, place in places.items()
            if not any(index for name, index in zip(names, place, strict=True) if name not in along)
        ]

    def bandwidth(self, axes: str) -> float:
        """Bytes per second that a chip sends in a ring along axes: over each dimension of the chips' torus that they
        cover, two ways where the dimension is closed to a ring, else one."""
        chip = find(self.topology)
        dims = _chips(self.topology)
        links = 0
        # The last axis lies along the last dimensions of the torus.
        ends = {}
        covered = 1
        for name, size in reversed(self.axes):
            ends[name] = (covered, covered * size)
            covered *= size
        low = min(ends[name][0] for name in axes.split(", "))
        high = max(ends[name][1] for name in axes.split(", "))
        inner = chip.devices
        for size in reversed(dims):
            outer = inner * size
            if size > 1 and inner < high and outer > low:
                links += 2 if size % chip.closed == 0 else 1
            inner = outer
        return chip.link_bandwidth * max(1, links)


def parse(text: str, topology: str) -> Mesh | None:
    """The mesh of a text such as "fsdp=8,tp=2" on a topology such as "v5e:4x4". An empty text is one axis.
    None for one device. ValueError for another form, and if the topology has another number of devices."""
    count = devices_of(topology)
    axes = []
    for part in filter(None, text.split(",")):
        name, _, size = part.partition("=")
        if not name.isidentifier() or not size.isdecimal() or int(size) < 1:
            raise ValueError(f"--mesh takes axes such as fsdp=8,tp=2, not {text}")
        axes.append((name, int(size)))
    if len({name for name, _ in axes}) < len(axes):
        raise ValueError(f"--mesh names an axis twice: {text}")
    mesh = Mesh(tuple(axes) or (("all", count),), topology)
    if mesh.devices != count:
        raise ValueError(f"the mesh {text} has {mesh.devices} ranks, and {topology} has {count} devices")
    return mesh if count > 1 else None


def on(mesh: Mesh | None, topology: str) -> Mesh | None:
    """The mesh on another topology. ValueError if that has another number of devices, or is none."""
    if mesh is None:
        find(topology)
        return None
    return parse(",".join(f"{name}={size}" for name, size in mesh.axes), topology)


def devices_of(topology: str) -> int:
    """The number of PJRT devices of a topology; 1 for a generation's name."""
    chip = find(topology)
    return prod(_chips(topology)) * chip.devices if ":" in topology else 1


def _chips(topology: str) -> list[int]:
    dims = topology.partition(":")[2]
    if not re.fullmatch(r"\d+(x\d+){1,2}", dims) or "0" in dims.split("x"):
        raise ValueError(f"a topology is a chip and its sizes, such as v5e:4x4, not {topology}")
    return [int(size) for size in dims.split("x")]


@dataclasses.dataclass
class Sent:
    """A collective of rank 0."""

    axis: str
    bytes: float
    """What a rank sends."""
    ranks: int
    line: str
    step: int
    """How many optimizer steps were done before."""
    module: str = ""
    """The module that it was called in."""


@dataclasses.dataclass
class Traffic:
    """What a step sends along axes of the mesh."""

    axis: str
    bytes: float
    seconds: float
    collectives: float
    lines: list[str]
    modules: dict[str, float] = dataclasses.field(default_factory=dict)
    """The seconds by module."""


def traffic(sent: Sequence[Sent], mesh: Mesh, steps: int) -> list[Traffic]:
    """What a step sends, the mean of those after the first, which may set up more."""
    first = 1 if steps > 1 else 0
    count = max(1, steps - first)
    found: dict[str, Traffic] = {}
    for each in sent:
        if not first <= each.step < max(1, steps):
            continue
        along = found.setdefault(each.axis, Traffic(each.axis, 0.0, 0.0, 0.0, []))
        along.bytes += each.bytes / count
        seconds = (each.bytes / mesh.bandwidth(each.axis) + (each.ranks - 1) * _HOP) / count
        along.seconds += seconds
        along.modules[each.module] = along.modules.get(each.module, 0.0) + seconds
        along.collectives += 1 / count
        if each.line not in along.lines:
            along.lines.append(each.line)
    return sorted(found.values(), key=lambda each: -each.seconds)


@contextmanager
def ranks(mesh: Mesh | None, names: ModuleNames) -> Iterator[list[Sent]]:
    """A context in which this process is rank 0 of a mesh. Gives the list of its collectives; `names` learns what was
    gathered. Without a mesh nothing changes."""
    sent: list[Sent] = []
    if mesh is None:
        yield sent
        return
    import torch.testing._internal.distributed.fake_pg

    count = str(mesh.devices)
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ.update({**variables, "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
    libraries = []
    for namespace in ("c10d", "_c10d_functional"):
        libraries.append(torch.library.Library(namespace, "IMPL"))
        for name in sorted(filter(_share, _operators(namespace))):
            _note(libraries[-1], name, mesh, sent, names)
    original = dist.init_process_group

    def init(*_: Any, **__: Any) -> None:
        original("cpu:fake,tpu:fake", store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=mesh.devices)

    replaced = [*_replace(original, init), *_trust_ddp()]
    try:
        yield sent
    finally:
        for owner, attribute, old in replaced:
            setattr(owner, attribute, old)
        for library in libraries:
            library._destroy()


def _operators(namespace: str) -> set[str]:
    names = torch._C._dispatch_get_all_op_names()
    return {name.partition("::")[2].partition(".")[0] for name in names if name.startswith(f"{namespace}::")}


def _share(name: str) -> Callable[[int], float] | None:
    """What each rank sends, by the name of an operator; None if that is no collective."""
    return next((share for part, share in _SENT if part in name.replace("_", "")), None)


def _trust_ddp() -> list[tuple[Any, str, Any]]:
    """Keeps DDP from comparing the sizes of parameters and the order of gradients between ranks: it would read them
    from the device, where they are invented. The ranks of one process agree. Gradients stay in the buckets of the first
    step."""
    reducer, module = torch._C._distributed_c10d.Reducer, vars(dist)
    old = reducer._rebuild_buckets
    setattr(reducer, "_rebuild_buckets", lambda _: False)  # noqa: B010
    verify = module["_verify_params_across_processes"]
    return [(reducer, "_rebuild_buckets", old), *_replace(verify, lambda *_: None)]


def _replace(old: Any, new: Any) -> list[tuple[Any, str, Any]]:
    """Replaces a function in all modules of torch.distributed that have it. Returns what was replaced."""
    places = [
        (module, attribute, old)
        for name, module in list(sys.modules.items())
        if name.startswith("torch.distributed") and module is not None
        for attribute, value in list(vars(module).items())
        if value is old
    ]
    for module, attribute, _ in places:
        setattr(module, attribute, new)
    return places


def _note(library: torch.library.Library, name: str, mesh: Mesh, sent: list[Sent], names: ModuleNames) -> None:
    operator = getattr(getattr(torch.ops, library.ns), name).default
    share = _share(name)
    assert share is not None
    # These take the part of a rank, and return those of all.
    is_part = library.ns != "c10d" and "all_gather" in name

    def noting(keys: Any, *args: Any, **kwargs: Any) -> Any:
        group = next(filter(None, map(_group, args)), None)
        if group is not None:
            members = dist.get_process_group_ranks(group)
            axis = mesh.axis_of(members)
            if axis:
                payload = max(_bytes(each) for each in args) * (len(members) if is_part else 1)
                line = _line()
                sent.append(
                    Sent(axis, payload * share(len(members)), len(members), line, names.steps, names.current() or "")
                )
                if "allgather" in name and not is_part:
                    names.add_gathered(args[0], f"{name.strip('_')} over {axis}", line)
        with torch._C._AutoDispatchBelowAutograd():
            result = operator.redispatch(keys & torch._C._after_autograd_keyset, *args, **kwargs)
        return result if library.ns == "_c10d_functional" else _with_results(result)

    library.impl(name, noting, "AutogradPrivateUse1", with_keyset=True)


def _with_results(result: Any) -> Any:
    """The result of a collective, whose work knows it, too: that of the fake group has no value, and DDP and hooks of
    communication read the reduced gradients from it."""
    if not isinstance(result, tuple):
        return result
    *tensors, _ = result
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list) else tensors)
    return (*tensors, torch._C._distributed_c10d._create_work_from_future(future).boxed())


def _group(value: Any) -> dist.ProcessGroup | None:
    """The group that an argument is, or that it names."""
    if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value._type()):
        return dist.ProcessGroup.unbox(value)
    known = torch.distributed.distributed_c10d._world.pg_names.items() if isinstance(value, str) else ()
    return next((group for group, name in known if name == value), None)


def _bytes(value: Any) -> int:
    """The bytes of the tensors in an argument."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0


# With the separator: torchvision is not a part of torch.
_OURS = os.path.join(os.path.dirname(__file__), "")
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")


def _line() -> str:
    """The innermost line that is of neither torch nor preflight."""
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith((_OURS, _TORCH, "<")):
            return f"{frame.filename}:{frame.lineno}"
    return ""
