"""Says that records are bad: one line a second at most for each source and kind, however many there are."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

log = logging.getLogger("forebay.errors")

EVERY_S = 1.0


@dataclass
class _Held:
    said_at: float = float("-inf")
    counts: dict[str, int] = field(default_factory=dict)  # by view: two meet the same records
    example: str | None = None


class Report:
    """For one process: the driver, which hears of every batch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[tuple[str, str], _Held] = {}
        self._lock = threading.Lock()

    def tell(self, source: str, view: str, kind: str, count: int, example: str | None) -> None:
        with self._lock:
            held = self._held.setdefault((source, kind), _Held())
            held.counts[view] = held.counts.get(view, 0) + count
            held.example = example if example and f": {kind}: " in example else held.example
            if self._clock() - held.said_at >= EVERY_S:
                self._say(source, kind, held)

    def flush(self) -> None:
        """What is still held back."""
        with self._lock:
            for (source, kind), held in self._held.items():
                if held.counts:
                    self._say(source, kind, held)

    def _say(self, source: str, kind: str, held: _Held) -> None:
        log.warning(
            "event=records_rejected source=%s kind=%s count=%d views=%s example=%r",
            source, kind, max(held.counts.values()), ",".join(sorted(held.counts)), held.example or "",
        )  # fmt: skip
        held.said_at, held.counts, held.example = self._clock(), {}, None


REPORT = Report()
