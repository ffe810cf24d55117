"""Keeps to a rate: so many records a second, from the first on."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """`wait()` before each step. A stall is not made up for by a burst. Without a rate it never waits."""

    def __init__(self, rate: float | None, sleep: Callable[[float], object] = time.sleep) -> None:
        """`sleep` may return before its time, to end a wait."""
        self._sleep = sleep
        self._step = 1 / rate if rate else 0.0
        self._due = 0.0

    def wait(self, records: int = 1) -> None:
        """Blocks until these records are due."""
        if not self._step:
            return
        now = time.monotonic()
        if self._due > now:
            self._sleep(self._due - now)
        self._due = max(self._due, now) + self._step * records
