"""The eager modes: operators run one by one with a wait, one by one without, or fused."""

from __future__ import annotations

import enum
from types import TracebackType

from torchtpu import _C


class EagerMode(enum.Enum):
    """When a recorded operator runs. The numbers are the same in each, up to the order of additions."""

    DEBUG = 0
    """Each operator runs at once, and the call waits for it, so an error is raised at the line that caused it."""
    STRICT = 1
    """Each operator runs at once, and the call does not wait. The default."""
    FUSED = 2
    """Operators are recorded and run in fused chunks: at a read, at `synchronize`, or when a chunk is large."""

    # The names in Google's torch_tpu, so that scripts written for it work.
    DEFER_NEVER_AND_LAUNCH_BLOCKING = 0
    DEFER_NEVER = 1
    DEFER_AND_FUSE = 2

    @classmethod
    def of(cls, mode: EagerMode | str) -> EagerMode:
        """The mode itself, or the mode with this name ("debug", "strict", "fused" or a member's name)."""
        if isinstance(mode, EagerMode):
            return mode
        if isinstance(mode, str) and mode.upper() in cls.__members__:
            return cls.__members__[mode.upper()]
        raise ValueError(f"eager mode must be 'debug', 'strict', 'fused' or an EagerMode, not {mode!r}")


class set_eager_mode:
    """Sets the mode at once. As a context manager, restores the previous mode at the end.

    `check_finite=True`, with "debug" only, checks every result for NaN and Inf, and raises an error with the
    operator and the line for the first.
    """

    def __init__(self, mode: EagerMode | str, check_finite: bool = False) -> None:
        chosen = EagerMode.of(mode)
        if check_finite and chosen is not EagerMode.DEBUG:
            raise ValueError(
                f"check_finite needs the debug mode, which waits for each operator, not {chosen.name.lower()}"
            )
        self._previous = (_C.get_eager_mode(), _C.get_check_finite())
        _C.set_eager_mode(chosen.value, check_finite)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _C.set_eager_mode(*self._previous)

    def __repr__(self) -> str:
        return f"set_eager_mode({get_eager_mode().name.lower()!r})"


def get_eager_mode() -> EagerMode:
    """The current mode, the same as `torch.tpu.eager_mode`."""
    return EagerMode(_C.get_eager_mode())
