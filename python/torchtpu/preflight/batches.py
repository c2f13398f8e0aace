"""The largest batch that fits a chip: what one recording lets expect, and a search that compiles each size it tries."""

from __future__ import annotations

from collections.abc import Callable, Mapping

# These grow with the batch. Parameters, gradients and states do not.
_CERTAIN = ("inputs", "activations")
# These may: a temporary can be a parameter's.
_PERHAPS = ("temporaries", "packing_loss")
# The compiler keeps more of a small batch in the chip's fast memory: nothing is expected of so much larger ones.
FAR = 4
# A search ends when the sizes that fit and those that do not are so near, or after so many sizes.
NEAR = 1 / 32
TRIALS = 10


def expected(rows: int, sizes: Mapping[str, int], limit: int) -> tuple[int, int | None] | None:
    """The largest batch that may be expected to fit: at the least, and at the most, None for more than `FAR` times the
    size that was recorded.

    `rows` is the batch of a step whose memory by role, in bytes, is `sizes`; `limit` is what the chip has. At the least
    all but parameters, gradients, states, buffers and gathered weights grow with the batch; at the most only inputs and
    activations do. None where nothing is known to grow.
    """
    certain = sum(sizes.get(role, 0) for role in _CERTAIN)
    if not rows or certain <= 0:
        return None
    growing = certain + sum(max(0, sizes.get(role, 0)) for role in _PERHAPS)
    total = sum(sizes.values())
    low, high = (max(0, int(rows * (1 + (limit - total) / each))) for each in (growing, certain))
    far = FAR * rows
    return min(low, far), high if high < far else None


def search(known: Mapping[int, int], first: int, limit: int, measure: Callable[[int], int | None]) -> None:
    """Measures batches until the largest one that fits is found, or nearly.

    `known` has the bytes of batches; `measure` gives those of another one, or None if they cannot be told, which ends
    the search. It begins with `first`, and goes on where a line through the two nearest sizes meets the limit.
    """
    bytes_of = dict(known)
    size, room = first, None
    while len(bytes_of) < len(known) + TRIALS:
        if size not in bytes_of:
            found = measure(size)
            if found is None:
                return
            bytes_of[size] = found
        fitting = max((each for each, taken in bytes_of.items() if taken <= limit), default=0)
        refused = min((each for each, taken in bytes_of.items() if taken > limit), default=None)
        if refused is None:
            size = _beyond(bytes_of, fitting, limit)
            continue
        before, room = room, refused - fitting
        step = max(1, int(fitting * NEAR))
        if room <= step:
            return
        # A line that is far off leaves most of the room: then the middle is next.
        is_slow = before is not None and room > before / 2
        size = (fitting + refused) // 2 if is_slow else _where(bytes_of, fitting, refused, limit)
        # A step across the guess, where that lies at an end, is the last one.
        size = min(max(size, fitting + step), refused - step)


def _beyond(bytes_of: Mapping[int, int], fitting: int, limit: int) -> int:
    """A size above all that fit, at most four times as large."""
    smaller = max((size for size in bytes_of if size < fitting), default=0)
    slope = (bytes_of[fitting] - bytes_of.get(smaller, 0)) / (fitting - smaller)
    guess = fitting + int((limit - bytes_of[fitting]) / slope) if slope > 0 else 4 * fitting
    return min(max(guess, fitting + 1), 4 * fitting)


def _where(bytes_of: Mapping[int, int], fitting: int, refused: int, limit: int) -> int:
    """Where the line through the sizes that are nearest to the limit meets it."""
    low, high = fitting, refused
    if fitting not in bytes_of:
        low, high = sorted(bytes_of)[0], sorted(bytes_of)[min(1, len(bytes_of) - 1)]
    slope = (bytes_of[high] - bytes_of[low]) / (high - low) if high > low else 0
    return low + int((limit - bytes_of[low]) / slope) if slope > 0 else (fitting + refused) // 2
