"""Meshes by topology: the neighbours of a dimension are neighbours on the torus."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torchtpu.distributed.mesh import Place, arrange

from tests.helpers import check_python


def box(*sizes: int, seed: int = 0) -> list[Place]:
    """The places of ranks that were numbered at random."""
    places = list(itertools.product(*map(range, sizes)))
    random.Random(seed).shuffle(places)
    return places


def near(places: list[Place], shape: tuple[int, ...], sizes: tuple[int, ...], dim: int) -> float:
    """Of the pairs that follow each other along a dimension of the mesh, the share at distance 1 on the torus."""
    mesh = torch.tensor(arrange(places, shape)).reshape(shape).movedim(dim, -1).reshape(-1, shape[dim])
    pairs = [(int(a), int(b)) for row in mesh for a, b in itertools.pairwise(row)]

    def distance(a: int, b: int) -> int:
        steps = (abs(p - q) for p, q in zip(places[a], places[b], strict=True))
        return sum(min(step, size - step) for step, size in zip(steps, sizes, strict=True))

    return sum(distance(a, b) == 1 for a, b in pairs) / len(pairs)


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ((4, 4, 4, 1), (4, 16)),
        ((4, 4, 4, 1), (16, 4)),
        ((4, 4, 8, 1), (8, 4, 4)),
        ((16, 16, 1, 1), (16, 16)),
        ((4, 4, 4, 2), (64, 2)),
        ((4, 8, 1, 2), (4, 8, 2)),
    ],
)
def test_neighbours_of_a_mesh_are_neighbours_on_the_torus(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    places = box(*sizes)
    order = arrange(places, shape)
    assert sorted(order) == list(range(len(places)))
    assert [near(places, shape, sizes, dim) for dim in range(len(shape))] == [1.0] * len(shape)


def test_where_no_axes_fit_the_ranks_follow_their_places() -> None:
    places = box(4, 4, 1)
    assert [places[rank] for rank in arrange(places, (2, 8))] == sorted(places)
    holes = places[:-1]
    assert [holes[rank] for rank in arrange(holes, (3, 5))] == sorted(holes)


def test_a_mesh_sets_the_device_that_nobody_has_chosen() -> None:
    code = """
import torch
from torch import distributed

assert torch.accelerator.device_count() == 2
torch.manual_seed(0)
assert not torch.tpu.is_initialized()
device = torch.device("tpu:1")
distributed.init_process_group("tpu", store=distributed.HashStore(), rank=0, world_size=1, device_id=device)
assert torch.tpu.current_device() == 0
distributed.init_device_mesh("tpu", (1,))
assert torch.tpu.is_initialized()
print(torch.tpu.current_device(), torch.rand(2, device="tpu").device)
distributed.destroy_process_group()
"""
    assert check_python(code, LOCAL_RANK="1", TORCHTPU_NUM_DEVICES="2").split() == ["1", "tpu:1"]
