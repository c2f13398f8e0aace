"""What is published of each generation of TPUs, for one PJRT device."""

from __future__ import annotations

from typing import NamedTuple

from torchtpu import _C


class Chip(NamedTuple):
    """One device of a generation. v4 and tpu7x have two devices to a chip."""

    name: str
    flops: float
    """Multiplications and additions of bfloat16 per second."""
    memory_bandwidth: float
    """Bytes per second between HBM and the chip."""
    memory: int
    """The bytes of HBM that programs can use: the limit in libtpu's refusals."""
    clock: float
    """Cycles per second: the published peak over what a cycle can do."""
    link_bandwidth: float
    """Bytes per second that a link between chips carries one way."""
    closed: int
    """A dimension of a slice is a ring if its size is a multiple of this."""
    devices: int
    """PJRT devices of a chip."""


def _chip(
    name: str, teraflops: float, gigabytes: float, gigahertz: float, link: float, closed: int, devices: int
) -> Chip:
    memory = _C.chip_memory(name) or 0
    return Chip(name, teraflops * 1e12, gigabytes * 1e9, memory, gigahertz * 1e9, link * 1e9, closed, devices)


# Google's pages of each chip (cloud.google.com/tpu/docs); the memory is that of the dry device.
CHIPS = {
    chip.name: chip
    for chip in (
        _chip("v4", 137.5, 614, 1.05, 50, 4, 2),
        _chip("v5e", 197, 819, 1.5, 50, 16, 1),
        _chip("v5p", 459, 2765, 1.75, 100, 4, 1),
        _chip("v6e", 918, 1638, 1.75, 100, 16, 1),
        _chip("tpu7x", 1153.5, 3690, 2.2, 100, 4, 2),
    )
}


def find(topology: str) -> Chip:
    """The chip of a topology such as "v5e:1x1". ValueError, with the names that there are."""
    name = topology.partition(":")[0]
    if name not in CHIPS:
        raise ValueError(f"there is no chip {name!r}: it must be one of {', '.join(CHIPS)}")
    return CHIPS[name]


def topology_of(name: str) -> str:
    """The topology for which the programs of one device of a generation are compiled. ValueError if there is none."""
    chip = find(name)
    return f"{chip.name}:1x1" if chip.name in ("v5e", "v6e") else f"{chip.name}:2x2x1"
