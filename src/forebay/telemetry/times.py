"""How long things take, counted as Prometheus wants it: so many up to each bound."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Times:
    """A histogram of durations. One thread adds; any may look."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.total_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        return buckets(self._bounds, self._counts)


def buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """How many took no longer than each bound; the last of `counts` is of those that took longer than all."""
    running, found = 0, []
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        running += count
        found.append((bound, float(running)))
    return found
