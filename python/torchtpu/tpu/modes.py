"""The eager modes: operators run one by one with a wait, one by one without, or fused."""

from __future__ import annotations

import enum
import threading
import weakref
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


# The mode is the process's. Contexts of several threads may end in another order than they began.
_changing = threading.Lock()
# The contexts that have not ended, in the order in which they set the mode.
_changes: list[weakref.ref[set_eager_mode]] = []


class set_eager_mode:
    """Sets the mode of the process at once. As a context manager, restores the previous mode at the end. Where
    contexts of several threads overlap, the last of them to begin decides, and the mode is the first one's previous
    mode when all have ended.

    `check_finite=True`, with "debug" only, checks every result for NaN and Inf, and raises an error with the
    operator and the line for the first.
    """

    def __init__(self, mode: EagerMode | str, check_finite: bool = False) -> None:
        chosen = EagerMode.of(mode)
        if check_finite and chosen is not EagerMode.DEBUG:
            raise ValueError(
                f"check_finite needs the debug mode, which waits for each operator, not {chosen.name.lower()}"
            )
        with _changing:
            self._previous = (_C.get_eager_mode(), _C.get_check_finite())
            _C.set_eager_mode(chosen.value, check_finite)
            _changes[:] = [change for change in _changes if change() is not None]
            _changes.append(weakref.ref(self))

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with _changing:
            later = _take_later(self)
            if later is None:
                _C.set_eager_mode(*self._previous)
            else:
                later._previous = self._previous

    def __repr__(self) -> str:
        return f"set_eager_mode({get_eager_mode().name.lower()!r})"


def _take_later(ended: set_eager_mode) -> set_eager_mode | None:
    """Removes a context. Returns the one that set the mode next and has not ended."""
    contexts = [context for context in (change() for change in _changes) if context is not None]
    at = next((i for i, context in enumerate(contexts) if context is ended), len(contexts))
    _changes[:] = [weakref.ref(context) for context in contexts if context is not ended]
    return contexts[at + 1] if at + 1 < len(contexts) else None


def get_eager_mode() -> EagerMode:
    """The current mode, the same as `torch.tpu.eager_mode`."""
    return EagerMode(_C.get_eager_mode())
