"""Random numbers: one counter-based generator per device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import torch

from torchtpu import _C
from torchtpu.tpu.devices import Device, device_count, get_device_index
from torchtpu.tpu.lazy import _lazy_call, _lazy_init


class _DefaultGenerators(Sequence[torch.Generator]):
    """The generator of each device. Accessing one opens the plugin."""

    def __len__(self) -> int:
        return device_count()

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[torch.Generator]: ...
    def __getitem__(self, index: int | slice) -> torch.Generator | Sequence[torch.Generator]:
        _lazy_init()
        if isinstance(index, slice):
            return [_C.default_generator(each) for each in range(*index.indices(len(self)))]
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"there are {count} tpu devices, so no generator {index}")
        return _C.default_generator(index % count)


default_generators = _DefaultGenerators()


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator. Does not open the plugin: before the first use of the device, the seed
    is kept."""
    seed = int(seed)
    device = _C.current_device()
    _lazy_call(lambda: _seed(device, seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device's generator. Does not open the plugin: before the first use of the device, the seed is
    kept."""
    seed = int(seed)

    def seed_every_device() -> None:
        for device in range(device_count()):
            _seed(device, seed)

    _lazy_call(seed_every_device)


def seed() -> int:
    """Seeds the current device's generator with a number from the operating system and returns it."""
    return default_generators[_C.current_device()].seed()


def seed_all() -> int:
    """Seeds every device's generator with the same number from the operating system and returns it."""
    value = seed()
    manual_seed_all(value)
    return value


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return default_generators[_C.current_device()].initial_seed()


def get_rng_state(device: Device = "tpu") -> torch.Tensor:
    """The state of a device's generator, as a ByteTensor on the CPU."""
    return default_generators[get_device_index(device)].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The state of every device's generator."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: Device = "tpu") -> None:
    """Sets a device's generator to a state from `get_rng_state`."""
    default_generators[get_device_index(device)].set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets every device's generator to a state from `get_rng_state_all`."""
    for device, state in enumerate(new_states):
        set_rng_state(state, device)


@contextlib.contextmanager
def fork_rng(devices: Iterable[Device] | None = None, enabled: bool = True) -> Iterator[None]:
    """Restores the random state of the CPU and of the devices (by default all) at the end of the block."""
    if not enabled:
        yield
        return
    chosen = range(device_count()) if devices is None else [get_device_index(device) for device in devices]
    host = torch.random.get_rng_state()
    states = {device: get_rng_state(device) for device in chosen}
    try:
        yield
    finally:
        torch.random.set_rng_state(host)
        for device, state in states.items():
            set_rng_state(state, device)


def _seed(device: int, seed: int) -> None:
    _C.default_generator(device).manual_seed(seed)
