"""The ways in which eager operators run: one at a time with a wait, one at a time without, or fused."""

from __future__ import annotations

import enum
from types import TracebackType

from torchtpu import _C


class EagerMode(enum.Enum):
    """When a recorded operator runs. The numbers are the same in each, up to the order of additions."""

    DEBUG = 0
    """Each operator runs at once and is waited for, so an error appears at the line that caused it."""
    STRICT = 1
    """Each operator runs at once and is not waited for. The default."""
    FUSED = 2
    """Operators are recorded and run in fused chunks: at a read, at `synchronize`, or when a chunk has grown large."""

    # The names that Google's torch_tpu uses, so that scripts written for it keep working.
    DEFER_NEVER_AND_LAUNCH_BLOCKING = 0
    DEFER_NEVER = 1
    DEFER_AND_FUSE = 2

    @classmethod
    def of(cls, mode: EagerMode | str) -> EagerMode:
        """The mode itself, or the one of that name ("debug", "strict", "fused" or a member's name)."""
        if isinstance(mode, EagerMode):
            return mode
        if isinstance(mode, str) and mode.upper() in cls.__members__:
            return cls.__members__[mode.upper()]
        raise ValueError(f"eager mode must be 'debug', 'strict', 'fused' or an EagerMode, not {mode!r}")


class set_eager_mode:
    """Sets the mode, at once; as a context manager, puts the previous one back at the end.

    `check_finite=True`, with "debug" only, looks for NaN and Inf in every result and raises at the first, naming the
    operator and the line.
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
    """The mode that is set now; `torch.tpu.eager_mode` is the same."""
    return EagerMode(_C.get_eager_mode())
