"""Notices a query that does not get on: there is something to read, and no batch has ended for long.

By the monotonic clock alone, so that a clock that is set makes nobody stalled. Brokers are asked only of a query that
has been quiet for that long, and then no more often than its time-out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from forebay import threads
from forebay.catalog import QueryState
from forebay.errors import ForebayError
from forebay.runtime.stream_run import StreamRun

log = logging.getLogger("forebay.stalls")

EVERY_S = 1.0
CLOSE_S = 5.0


@dataclass
class _WatchedRun:
    batch: int  # the last that had ended when it was last looked at
    since: float
    asked_at: float


class StallWatch:
    """Looks after the streaming queries that `runs()` names, from its start until it is closed."""

    def __init__(
        self,
        runs: Callable[[], Iterable[StreamRun]],
        now: Callable[[], float] = time.monotonic,
        every_s: float = EVERY_S,
    ) -> None:
        self._runs = runs
        self._now = now
        self._every_s = every_s
        self._watched: dict[str, _WatchedRun] = {}
        self._closed = threading.Event()
        self._thread = threads.keep_running("forebay-stalls", self._run, self._closed)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            found = {run.run: run for run in self._runs() if run.run is not None}
            self._watched = {key: each for key, each in self._watched.items() if key in found}
            for key, run in found.items():
                try:
                    self._look(key, run)
                except Exception:
                    log.exception(
                        "%s could not be looked at", run.what
                    )  # the others are looked at all the same

    def _look(self, key: str, run: StreamRun) -> None:
        now, batch = self._now(), run.progress.reported
        known = self._watched.get(key)
        if known is None or known.batch != batch or run.state not in (QueryState.RUNNING, QueryState.STALLED):
            # It has got on; or it is meant to stand still, and is looked at anew from when it goes on.
            self._watched[key] = _WatchedRun(batch, now, now)
            if run.state is QueryState.STALLED:
                run.set_state(QueryState.RUNNING, "")
            return
        if now - max(known.since, known.asked_at) < run.stall_s:
            return
        known.asked_at = now
        message = self._stalled_by(run, now - known.since)
        if message is None:
            known.since = now
            if run.state is QueryState.STALLED:
                run.set_state(QueryState.RUNNING, "")
        elif run.state is QueryState.RUNNING and run.progress.reported == known.batch:
            log.warning("%s: %s", run.what, message)
            run.set_state(QueryState.STALLED, message)

    def _stalled_by(self, run: StreamRun, quiet_s: float) -> str | None:
        """What it waits for; None if there is nothing to read, or nothing that may be read now."""
        try:
            behind = run.unread()
        except ForebayError as error:
            return f"no batch for {quiet_s:.0f} s: it waits for its brokers: {error.message}"
        if not behind or run.held_back():
            return None
        return f"no batch for {quiet_s:.0f} s, and {behind:,} records to read: it waits for {run.waits_for()}"
