"""What runs in this process, as those see it who wait for it or show it: a state, how it fares, why it failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from forebay.catalog import QueryState
from forebay.connectors.contract import Offsets
from forebay.errors import ForebayError
from forebay.runtime.view_positions import earlier
from forebay.telemetry.times import Times

BATCH_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Bounds of the histogram of how long batches take."""


@dataclass
class QueryProgress:
    """How it fares, as of its last progress event."""

    batch: int = -1
    reported: int = -1  # the last batch that was counted, or was in the checkpoint when the query began
    records_per_second: float = 0.0
    batch_ms: int = 0
    lag: int | None = None  # before the first batch nobody knows it
    positions: dict[str, Offsets] = field(default_factory=dict)
    watermark_ms: int | None = None  # by which Spark has closed windows, of a query with a control stream


class LiveRun:
    """A streaming query, or a view that one serves. `on_state` hears of each state and why it came."""

    def __init__(self, name: str, on_state: Callable[[str, QueryState, str], None]) -> None:
        self.name = name
        self.progress = QueryProgress()
        self.batch_times = Times(BATCH_SECONDS)  # in this process, of batches with records
        self.error: ForebayError | None = None
        self.changed = threading.Condition()
        self.state = QueryState.CREATED
        self.message = ""  # why it is in this state
        self._told: tuple[QueryState, str] | None = None
        self._on_state = on_state

    def set_state(self, state: QueryState, message: str) -> None:
        with self.changed:
            self.state, self.message = state, message
            self.changed.notify_all()
        # A view hears from whoever starts it and from its read: its history has each state once.
        if self._told != (state, message):
            self._told = (state, message)
            self._on_state(self.name, state, message)

    def raise_if_failed(self) -> None:
        if self.error is not None:
            raise self.error

    def wait_for(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        """Wait for a condition on its progress; raises if it fails meanwhile."""
        with self.changed:
            while not condition():
                self.raise_if_failed()
                if self.state is QueryState.STOPPED:
                    return False
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self.changed.wait(1.0 if left is None else min(1.0, left))
        return True


def by_source(offsets: Iterable[Offsets]) -> dict[str, Offsets]:
    """Positions by the name of the source; of a source that is read twice, the one that is behind."""
    found: dict[str, Offsets] = {}
    for position in offsets:
        name = position["source"]
        known = found.get(name)
        found[name] = position if known is None else earlier(known, position)
    return found
