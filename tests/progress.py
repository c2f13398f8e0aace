"""How far long work is."""

from __future__ import annotations

import sys
import time


class Progress:
    """A line on standard error. It is overwritten on a terminal, and printed rarely elsewhere."""

    def __init__(self, total: int, done: int = 0) -> None:
        self.total, self.done, self.start, self.failures, self.next = total, done, time.monotonic(), 0, 0.0
        self.resumed = done

    def step(self, name: str, *, is_failure: bool) -> None:
        self.done += 1
        self.failures += is_failure
        is_terminal = sys.stderr.isatty()
        now = time.monotonic()
        if now < self.next and self.done < self.total:
            return
        self.next = now + (0.2 if is_terminal else 30)
        left = (now - self.start) / (self.done - self.resumed) * (self.total - self.done)
        bar = "█" * (20 * self.done // self.total)
        line = f"{bar:░<20} {self.done}/{self.total}  {self.failures} failed  {left / 60:.0f} min left  {name}"
        print(f"\r\x1b[K{line[:118]}" if is_terminal else line, end="" if is_terminal else "\n", file=sys.stderr)
        if is_terminal and self.done == self.total:
            print(file=sys.stderr)
