"""Keeps to a rate: so many records a second, from the first on."""

from __future__ import annotations

import time


class Pace:
    """`wait()` before each step. A stall is not made up for by a burst. Without a rate it never waits."""

    def __init__(self, rate: float | None) -> None:
        self._step = 1 / rate if rate else 0.0
        self._due = 0.0

    def wait(self, records: int = 1) -> None:
        """Blocks until these records are due."""
        if not self._step:
            return
        now = time.monotonic()
        if self._due > now:
            time.sleep(self._due - now)
        self._due = max(self._due, now) + self._step * records
