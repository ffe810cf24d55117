"""Follows the checkpoints of a session's queries: counts each batch, and has the groups' offsets committed.

Spark posts an event after a batch's entry in the commit log exists, which makes it the right moment to commit the
group's offsets. The event only says that there is news: a thread of our own does the work, so that Spark's queue of
events never waits, and it looks at the queries by itself now and then, so that an event that the queue dropped costs
nothing.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable

from pyspark.sql import SparkSession

from forebay import threads
from forebay.catalog import Catalog
from forebay.errors import StorageError
from forebay.runtime import checkpoints
from forebay.runtime.events import BatchReport, Events, SourceReport
from forebay.runtime.live_run import by_source
from forebay.runtime.stream_run import OnCheckpoint, StreamRun

log = logging.getLogger("forebay.progress")

LOOK_S = 0.4  # how often to look for news without an event: twice, and a second has not passed
QUIET_LOOK_S = 1.0  # the same where there has been no event for a while: nothing is under way that one could be missing of
QUIET_AFTER_S = 10.0
ASK_S = 1.0  # how often Spark is asked whether a query runs: that costs more than all the rest of a look
CLOSE_S = 5.0

_Event = tuple[str, BatchReport | str | None]  # a run, and its batch or why it ended


class ProgressFollower:
    """One for a session. `runs` are all streaming queries that it has now."""

    def __init__(
        self,
        spark: SparkSession,
        runs: Callable[[], Iterable[StreamRun]],
        catalog: Catalog,
        on_checkpoint: OnCheckpoint,
    ) -> None:
        self._runs = runs
        self._catalog = catalog
        self._on_checkpoint = on_checkpoint
        self._events: queue.SimpleQueue[_Event | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._ask_at = 0.0
        self._streams = spark.streams
        self._listener = Events(self._hear, self._hear)
        self._streams.addListener(self._listener)
        self._thread = threads.keep_running("forebay-progress", self._run, self._closed)

    def close(self) -> None:
        """Handle what was heard of so far, then stop."""
        self._streams.removeListener(self._listener)
        self._closed.set()
        self._events.put(None)
        self._thread.join(CLOSE_S)

    def _hear(self, run: str, news: BatchReport | str | None) -> None:
        self._events.put((run, news))

    def _run(self) -> None:
        look_at = heard_at = time.monotonic()
        behind: dict[str, int] = {}
        while True:
            try:
                event = self._events.get(timeout=max(0.0, look_at - time.monotonic()))
            except queue.Empty:
                if self._closed.is_set():
                    return
                behind = self._look(behind)
                now = time.monotonic()
                quiet = now - heard_at > QUIET_AFTER_S and not behind
                look_at = now + (QUIET_LOOK_S if quiet else LOOK_S)
                continue
            if event is None:
                return
            heard_at = time.monotonic()
            look_at = min(look_at, heard_at + LOOK_S)
            self._handle(*event)

    def _handle(self, run: str, news: BatchReport | str | None) -> None:
        """News of a run. It may come late: by then another view may have the name, or another run the view."""
        query = next((each for each in self._runs() if each.run == run), None)
        if query is None:
            return
        if isinstance(news, BatchReport):
            if news.batch > query.progress.reported + 1:
                self._catch_up(query)
            self._record(query, news)
        else:
            self._ended(query, run, news)

    def _look(self, behind: dict[str, int]) -> dict[str, int]:
        """Count what no event reported. One that is only under way has until the next look: `behind` was so before."""
        found: dict[str, int] = {}
        asks = time.monotonic() >= self._ask_at
        if asks:
            self._ask_at = time.monotonic() + ASK_S
        for query in self._runs():
            run = query.run
            if run is None:
                continue
            last = _last_batch(query)
            if last > query.progress.reported:
                found[run] = last
                if query.progress.reported < behind.get(run, -1):
                    self._catch_up(query)
            ended, reason = query.ended() if asks else (False, None)
            if ended:
                self._ended(query, run, reason)
            else:
                query.follow_flow()
        return found

    def _ended(self, query: StreamRun, run: str, reason: str | None) -> None:
        self._catch_up(query)
        query.on_terminated(run, reason)

    def _catch_up(self, query: StreamRun) -> None:
        """Up to the checkpoint: by the reports that the query still has, else by what the checkpoint says itself."""
        for report in query.unheard():
            self._record(query, report)
        try:
            done = checkpoints.committed(query.checkpoint)
        except StorageError as error:  # the next batch is counted from where these should have been
            log.warning("%s: %s", query.what, error.message)
            return
        if done is not None and done.batch > query.progress.reported:
            moved = tuple(SourceReport(end, None, moved=True) for end in by_source(done.offsets).values())
            self._record(query, BatchReport(done.batch, 0, 0, moved))

    def _record(self, query: StreamRun, report: BatchReport) -> None:
        try:
            query.record(report, self._catalog, self._on_checkpoint)
        except Exception:
            # The next batch is counted from where this one should have been: nothing is left out.
            log.exception("batch %d of %s could not be counted", report.batch, query.what)


def _last_batch(query: StreamRun) -> int:
    """By the checkpoint; -1 while its place is away."""
    try:
        return checkpoints.last_batch(query.checkpoint)
    except StorageError:
        return -1
