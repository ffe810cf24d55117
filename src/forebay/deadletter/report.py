"""Says that records are bad, and what became of them, however many there are.

One line a second at most for each source and kind, and for each source and thing that was done with them.
"""

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
        self._held: dict[tuple[str, str], _Held] = {}  # by source, and by kind or what was done
        self._lock = threading.Lock()

    def tell(self, source: str, view: str, kind: str, count: int, example: str | None) -> None:
        with self._lock:
            held = self._held.setdefault((source, kind), _Held())
            held.counts[view] = held.counts.get(view, 0) + count
            held.example = example if example and f": {kind}: " in example else held.example
            if self._clock() - held.said_at >= EVERY_S:
                self._say(source, kind, held)

    def done(self, source: str, view: str, event: str, count: int) -> None:
        """So many bad records were dealt with: `letters_written`, `letters_kept_out`."""
        self.tell(source, view, event, count, None)

    def flush(self) -> None:
        """What is still held back."""
        with self._lock:
            for (source, kind), held in self._held.items():
                if held.counts:
                    self._say(source, kind, held)

    def _say(self, source: str, kind: str, held: _Held) -> None:
        count, views = max(held.counts.values()), ",".join(sorted(held.counts))
        if kind == "letters_kept_out":
            log.warning(
                "event=%s source=%s count=%d views=%s remedy='forebay dlq recover --source %s'",
                kind, source, count, views, source,
            )  # fmt: skip
        elif kind.startswith("letters_"):
            log.info("event=%s source=%s count=%d views=%s", kind, source, count, views)
        else:
            example = f" example={held.example!r}" if held.example else ""
            log.warning(
                "event=records_rejected source=%s kind=%s count=%d views=%s%s",
                source, kind, count, views, example,
            )  # fmt: skip
        held.said_at, held.counts, held.example = self._clock(), {}, None


REPORT = Report()
