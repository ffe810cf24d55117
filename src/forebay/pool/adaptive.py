"""How many workers are worthwhile: more as long as handlers do not get slower by it."""

from __future__ import annotations

FIRST = 8
SUFFERS = 1.5  # times the best latency: what is called behind the handlers has begun to queue
RECOVERS = 0.8  # of the workers are kept then


class Adaptive:
    """Hears now and then what was done; says how many workers there may be from now on."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._best_s: float | None = None
        self._completed = 0
        self._total_s = 0.0
        self.limit = min(FIRST, most)

    def step(self, completed: int, total_s: float, *, saturated: bool) -> int:
        """`completed` handlers took `total_s` since the start; saturated: records waited for a worker."""
        count, spent_s = completed - self._completed, total_s - self._total_s
        if not count:
            return self.limit
        self._completed, self._total_s = completed, total_s
        latency_s = spent_s / count
        best_s = self._best_s = min(latency_s, self._best_s or latency_s)
        if latency_s > best_s * SUFFERS:
            if self.limit <= FIRST:
                self._best_s = latency_s  # with so few it is not us: handlers take longer than they once did
            self.limit = max(1, int(self.limit * RECOVERS))
        elif saturated:
            self.limit = min(self._most, self.limit + max(1, self.limit // 4))
        return self.limit
