"""The eager modes: operators run one by one with a wait, one by one without, or fused."""

from __future__ import annotations

import enum
import itertools
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


# Plain calls and contexts of several threads change the mode of the process in any order.
_changing = threading.Lock()
# The objects that set the mode of the process, and still live, in that order.
_changes: list[weakref.ref[set_eager_mode]] = []

# Identify the entered contexts.
_numbers = itertools.count()


class set_eager_mode:
    """Sets the eager mode: for the process if it is called, and for one thread if it is a context manager.

        torch.tpu.set_eager_mode("fused")  # all threads that are in no context, now and later
        with torch.tpu.set_eager_mode("debug"): ...  # this thread, until the end of the block

    A context also has effect on autograd's threads while they work for its thread. Other threads keep their mode.

    `check_finite=True`, with "debug" only, checks every result for NaN and Inf, and raises an error with the
    operator and the line for the first.

    Raises ValueError for a mode that does not exist.
    """

    def __init__(self, mode: EagerMode | str, check_finite: bool = False) -> None:
        chosen = EagerMode.of(mode)
        if check_finite and chosen is not EagerMode.DEBUG:
            raise ValueError(
                f"check_finite needs the debug mode, which waits for each operator, not {chosen.name.lower()}"
            )
        self._chosen = (chosen.value, check_finite)
        # The scope and the number of each time that this context was entered.
        self._entered: list[tuple[int, int]] = []
        with _changing:
            self._previous = _C.get_eager_mode(0)
            _C.set_eager_mode(*self._chosen)
            _changes[:] = [change for change in _changes if change() is not None]
            _changes.append(weakref.ref(self))

    def __enter__(self) -> None:
        self._give_back()
        self._entered.append((_C.scope_of_thread(), next(_numbers)))
        _C.begin_mode(*self._entered[-1], *self._chosen)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _C.end_mode(*self._entered.pop())

    def _give_back(self) -> None:
        """Gives the process the mode that it had before, unless a later call has set another one."""
        with _changing:
            contexts = [context for context in (change() for change in _changes) if context is not None]
            _changes[:] = [weakref.ref(context) for context in contexts if context is not self]
            if self not in contexts:
                return
            at = contexts.index(self)
            if at + 1 < len(contexts):
                contexts[at + 1]._previous = self._previous
            else:
                _C.set_eager_mode(*self._previous)

    def __repr__(self) -> str:
        return f"set_eager_mode({EagerMode(self._chosen[0]).name.lower()!r})"


def get_eager_mode() -> EagerMode:
    """The current mode of this thread, the same as `torch.tpu.eager_mode`."""
    return EagerMode(_C.get_eager_mode(_C.scope_of_thread())[0])
