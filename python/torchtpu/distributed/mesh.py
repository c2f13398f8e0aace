"""Meshes that follow the network of a TPU: ranks that communicate most are neighbours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch.distributed.device_mesh import DeviceMesh

from torchtpu import tpu

Place = tuple[int, ...]


def topology_aware_mesh(shape: Sequence[int], names: Sequence[str], *, device_type: str = "tpu") -> DeviceMesh:
    """A mesh of all ranks, ordered by the coordinates of their chips. Every rank calls it, after `init_process_group`.

    `shape` has the size of each dimension, and `names` its name. The product of the sizes is the number of ranks. The
    last dimension should be the one that communicates most, such as tensor parallel: it gets whole axes of the TPU's
    torus if some have its size, else consecutive chips. If devices have no coordinates, as with the CPU plugin, ranks
    keep their order.

    Raises ValueError if the sizes do not multiply to the number of ranks, or if names and sizes differ in number.
    """
    from torch import distributed

    ranks = distributed.get_world_size()
    if len(shape) != len(names):
        raise ValueError(f"{len(shape)} sizes and {len(names)} names: a mesh needs a name for each dimension")
    if math.prod(shape) != ranks:
        raise ValueError(f"a mesh of shape {tuple(shape)} needs {math.prod(shape)} ranks, and there are {ranks}")
    places: list[Place | None] = [None] * ranks
    if ranks > 1:
        distributed.all_gather_object(places, _own_place())
    known = [place for place in places if place is not None]
    order = arrange(known, shape) if len(known) == ranks else list(range(ranks))
    return DeviceMesh(device_type, torch.tensor(order).reshape(tuple(shape)), mesh_dim_names=tuple(names))


def _own_place() -> Place | None:
    """The coordinates of this rank's chip, and the number of its core there."""
    attributes = tpu.get_device_properties().attributes
    coordinates = attributes.get("coords")
    return None if coordinates is None else (*coordinates, attributes.get("core_on_chip", 0))


def arrange(places: Sequence[Place], shape: Sequence[int]) -> list[int]:
    """The ranks in the order of a mesh, row by row. `places[rank]` has the coordinates of a rank's chip.

    Each dimension of the mesh, from the last to the first, gets the fewest whole axes of the box of chips whose sizes
    have its size as their product. The cores of a chip are the last axis, which is used first. If no axes fit, or the
    chips do not fill a box, the ranks are sorted by their coordinates.
    """
    sizes = [max(column) - min(column) + 1 for column in zip(*places, strict=True)]
    lowest = [min(column) for column in zip(*places, strict=True)]
    if math.prod(sizes) != len(places) or len(set(places)) != len(places):
        return sorted(range(len(places)), key=lambda rank: places[rank])
    left = [axis for axis in reversed(range(len(sizes))) if sizes[axis] > 1]
    taken: list[tuple[int, ...]] = []
    for size in reversed(shape):
        fits = (
            axes
            for count in range(len(left) + 1)
            for axes in itertools.combinations(left, count)
            if math.prod(sizes[axis] for axis in axes) == size
        )
        axes = next(fits, None)
        if axes is None:
            return sorted(range(len(places)), key=lambda rank: places[rank])
        taken.insert(0, axes)
        left = [axis for axis in left if axis not in axes]

    def position(rank: int) -> list[int]:
        """The place in the mesh. A walk along several axes reverses at each end, so that its steps are short."""
        place = [each - low for each, low in zip(places[rank], lowest, strict=True)]
        return [_step_of(place, sizes, axes) for axes in taken]

    return sorted(range(len(places)), key=position)


def _step_of(place: Sequence[int], sizes: Sequence[int], axes: Sequence[int]) -> int:
    """The number of a place on a walk through the box of these axes. Each step of the walk goes to a neighbour."""
    step = 0
    for axis in axes:
        turned = step % 2 == 1
        step = step * sizes[axis] + (sizes[axis] - 1 - place[axis] if turned else place[axis])
    return step
