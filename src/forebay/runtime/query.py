"""One view's streaming query: started, watched, started again when that helps, stopped between batches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from forebay import threads
from forebay.backoff import Backoff
from forebay.catalog import QueryState
from forebay.connectors.contract import Offsets, SourceConnector
from forebay.errors import (
    CheckpointError,
    ForebayError,
    NewFieldsError,
    QueryFailedError,
    WorkerLostError,
    from_text,
)
from forebay.runtime import changelog, checkpoints, events
from forebay.runtime.events import BatchReport
from forebay.runtime.lock import ViewLock
from forebay.runtime.spark_failures import reason
from forebay.runtime.view_positions import earlier
from forebay.telemetry.times import Times
from forebay.views.options import RETENTION_S
from forebay.views.paths import ViewPaths
from forebay.views.table import ViewTable

log = logging.getLogger("forebay.query")

BATCH_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Bounds of the histogram of how long batches take."""

MAX_WORKERS_LOST = 5  # in a row, without a batch in between: then it is the batch that kills them


@dataclass
class QueryProgress:
    """How the query fares, as of its last progress event."""

    batch: int = -1
    reported: int = -1  # the last batch that was counted, or was in the checkpoint when the query began
    records_per_second: float = 0.0
    batch_ms: int = 0
    lag: int | None = None  # before the first batch nobody knows it
    positions: dict[str, Offsets] = field(default_factory=dict)


class RunningQuery:
    """A view's query in this process. `build` makes the streaming DataFrame, anew for each start."""

    def __init__(
        self,
        name: str,
        paths: ViewPaths,
        connectors: Mapping[str, SourceConnector],
        build: Callable[[], DataFrame],
        *,
        output_mode: str,
        merge_keys: tuple[str, ...] | None,
        kept: str | None = None,
        retention_s: float = RETENTION_S,
        on_state: Callable[[str, QueryState, str], None],
        evolve: Callable[[str, int], None],
        session_lock: AbstractContextManager[Any],
    ) -> None:
        self.name = name
        self.paths = paths
        self.connectors = dict(connectors)
        self.table = ViewTable(paths.table, retention_s)
        self.starts: dict[str, Offsets] = {}  # where the view begins in each source
        self.progress = QueryProgress()
        self.batch_times = Times(BATCH_SECONDS)  # in this process, of batches with records
        self.error: ForebayError | None = None
        self._build = build
        self._output_mode = output_mode
        self._merge_keys = merge_keys
        self._kept = kept
        self._on_state = on_state
        self._evolve = evolve
        self._evolved: set[tuple[str, int]] = set()  # what was taken in: meeting it again would have no end
        self._session_lock = session_lock  # what starts a query reads and changes what is the session's
        self._query: StreamingQuery | None = None
        self.run: str | None = None  # Spark's id of what runs now; None once its end is dealt with
        self.lock = ViewLock(name, paths.lock)
        self._stopping = threading.Event()
        self._backoff = Backoff()
        self._workers_lost = 0
        self.changed = threading.Condition()
        self.state = QueryState.STARTING

    # -- starting ------------------------------------------------------------------------------------

    def prepare(self, frame: DataFrame) -> None:
        """Make the table, or make sure that table and checkpoint belong together."""
        if not self.table.exists():
            if checkpoints.exists(self.paths.checkpoint):
                raise CheckpointError(
                    f"the table of view '{self.name}' is gone, but its checkpoint is there",
                    remedy=f"DROP MATERIALIZED VIEW {self.name}, then create it again",
                )
            self.table.create(changelog.table_schema(frame.schema, self._kept))
        elif self.table.open().version() > 0 and not checkpoints.exists(self.paths.checkpoint):
            raise CheckpointError(
                f"the checkpoint of view '{self.name}' is gone, but its table is there: going on would write "
                "rows twice",
                remedy=f"DROP MATERIALIZED VIEW {self.name}, then create it again",
            )

    def start(self, frame: DataFrame) -> None:
        self.paths.drain.unlink(missing_ok=True)
        self.table.widen(changelog.table_schema(frame.schema, self._kept))
        checkpoints.sweep(self.paths.checkpoint)
        self._remember_checkpoint()
        self.progress.reported = self.progress.batch
        writer = (
            frame.writeStream.queryName(self.name)
            .outputMode(self._output_mode)
            .option("checkpointLocation", str(self.paths.checkpoint))
            .foreachBatch(self._write)
        )
        self._query = writer.start()
        self.run = str(self._query.runId)
        self._set_state(QueryState.RUNNING, "")

    def _remember_checkpoint(self) -> None:
        known = checkpoints.committed(self.paths.checkpoint)
        if known is not None:
            self.progress.batch = known.batch
            self.progress.positions = by_source(known.offsets)

    def _write(self, frame: DataFrame, batch: int) -> None:
        query_id = checkpoints.query_id(self.paths.checkpoint)
        if self.table.holds(query_id, batch):
            log.info("view '%s': batch %d is in the table already", self.name, batch)
            self.table.persist()  # whoever wrote it may have been killed before that
            # Its rows are still to be counted, and the state it leaves is what the next batch starts from.
            frame.write.format("noop").mode("overwrite").save()
        elif self._kept is not None:
            changelog.write(self.table, frame, self._kept, self._merge_keys or (), query_id, batch)
        elif self._merge_keys is None:
            self.table.append(frame, query_id, batch)
        else:
            self.table.merge(frame.toArrow(), self._merge_keys, query_id, batch)
        if self._kept == "rows":
            changelog.check(self.table, self.name)  # also of a batch that was there already

    # -- watching ------------------------------------------------------------------------------------

    def ended(self) -> tuple[bool, str | None]:
        """Whether Spark runs the query no more, and why."""
        query = self._query
        if query is None or query.isActive:
            return False, None
        return True, events.failure(query)

    def unheard(self) -> list[BatchReport]:
        """Spark's reports of batches that were not counted yet."""
        return [] if self._query is None else events.recent_reports(self._query, self.progress.reported)

    def on_progress(self, report: BatchReport, records: int) -> None:
        """A batch is in the checkpoint, and so many records of it are counted.

        Spark's own count is of the rows that came to it: the good ones, or what the source made of them.
        """
        ends = [source.end for source in report.sources if source.end]
        with self.changed:
            # A report may come late, after stop() has looked into the checkpoint: it must not lead back.
            if ends and report.batch >= self.progress.batch:
                self.progress.positions = {**self.progress.positions, **by_source(ends)}
            if any(source.latest for source in report.sources):
                self.progress.lag = self._lag(report)
            self.progress.reported = max(self.progress.reported, report.batch)
            if records:
                self.progress.batch = max(self.progress.batch, report.batch)
                self.progress.batch_ms = report.took_ms
                self.batch_times.add(report.took_ms / 1000)
                self._backoff.over()
                self._workers_lost = 0
            self.progress.records_per_second = records * 1000 / max(report.took_ms, 1)
            self.changed.notify_all()

    def _lag(self, report: BatchReport) -> int:
        return sum(
            self.connectors[source.end["source"]].count(source.end, source.latest)
            for source in report.sources
            if source.end and source.latest
        )

    def on_terminated(self, run: str, message: str | None) -> None:
        """A run ended. By itself, for a reason that may pass: start the query again after a while."""
        if run != self.run:
            return
        self.run = None
        if self.state in (QueryState.STOPPED, QueryState.FAILED):
            return
        if self._stopping.is_set() or message is None:
            self._set_state(QueryState.STOPPED, "")
            return
        self._on_failure(from_text(message) or _transient(message), message)

    def _on_failure(self, error: ForebayError | None, message: str) -> None:
        if isinstance(error, NewFieldsError) and (error.source, error.schema_id) not in self._evolved:
            self._set_state(QueryState.RETRYING, error.message)
            self._in_background("evolve", lambda: self._take_in(error))
            return
        self._workers_lost += isinstance(error, WorkerLostError)
        if error is not None and error.retryable and self._workers_lost <= MAX_WORKERS_LOST:
            self._set_state(QueryState.RETRYING, str(error))
            self._in_background("restart", self._restart)
            return
        self._fail(error or QueryFailedError(f"view '{self.name}' failed: {reason(message)}"))

    def _in_background(self, what: str, body: Callable[[], None]) -> None:
        threads.start(f"forebay-{what}-{self.name}", body, self._not_started)

    def _not_started(self, error: Exception) -> None:
        """The query could not be started again, for a reason that nobody foresaw."""
        if not self._stopping.is_set():
            self._fail(
                QueryFailedError(f"view '{self.name}' could not be started again: {reason(repr(error))}")
            )

    def _fail(self, error: ForebayError) -> None:
        self.lock.release()  # before anybody hears of it: whoever does may start the view again at once
        self.error = error
        self._set_state(QueryState.FAILED, str(error))

    def _take_in(self, error: NewFieldsError) -> None:
        """New fields become columns of the source, and the batch that met them is read again with these."""
        self._evolved.add((error.source, error.schema_id))
        log.info("view '%s': %s", self.name, error.message)
        self._start_again(lambda: self._evolve(error.source, error.schema_id))

    def _restart(self) -> None:
        if not self._stopping.wait(self._backoff.failed()):
            self._start_again(lambda: None)

    def _start_again(self, beforehand: Callable[[], None]) -> None:
        try:
            with self._session_lock:
                if self._stopping.is_set():
                    return
                beforehand()
                self.start(self._build())
        except (ForebayError, PySparkException) as error:
            if not self._stopping.is_set():  # else it was stopped while it was being started
                known = error if isinstance(error, ForebayError) else from_text(str(error))
                self._on_failure(known, str(error))

    def _set_state(self, state: QueryState, message: str) -> None:
        with self.changed:
            self.state = state
            self.changed.notify_all()
        self._on_state(self.name, state, message)

    def raise_if_failed(self) -> None:
        if self.error is not None:
            raise self.error

    # -- stopping ------------------------------------------------------------------------------------

    def stop(self, timeout_s: float = 60.0) -> None:
        """Finish the batch in flight, start no other, stop.

        Spark's own stop() would break into the batch. So the source learns that there is nothing
        more to read, and once Spark has seen that, the query is idle and stopping harms nothing.
        """
        self._stopping.set()
        query = self._query
        if query is not None and query.isActive:
            self.paths.drain.touch()
            self._await_idle(query, timeout_s)
            try:
                query.stop()
            except PySparkException as error:
                log.warning("view '%s' did not stop cleanly: %s", self.name, error)
            self.paths.drain.unlink(missing_ok=True)
        self._remember_checkpoint()
        if self.state not in (QueryState.STOPPED, QueryState.FAILED):
            self._set_state(QueryState.STOPPED, "")
        self.lock.release()

    def await_report(self, timeout_s: float) -> None:
        """After stop(): until Spark has reported the last batch, so that it is counted."""
        with self.changed:
            self.changed.wait_for(lambda: self.progress.reported >= self.progress.batch, timeout_s)

    def _await_idle(self, query: StreamingQuery, timeout_s: float) -> None:
        done = threading.Event()

        def wait() -> None:
            try:
                query.processAllAvailable()
            except PySparkException:
                log.debug("view '%s' ended while it was being stopped", self.name)
            finally:
                done.set()

        threads.start(f"forebay-drain-{self.name}", wait, lambda error: None)
        if not done.wait(timeout_s):
            log.warning(
                "view '%s': a batch did not end within %.0f s; it will be repeated", self.name, timeout_s
            )

    def wait_for(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        """Wait for a condition on this query's progress; raises if the query fails meanwhile."""
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


# What Spark says when a process of its own was slow or died, and the next try has every chance.
_TRANSIENT = (
    "Timed out while waiting for the Python worker",
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ExecutorLostFailure",
)


def _transient(message: str) -> ForebayError | None:
    if any(sign in message for sign in _TRANSIENT):
        return WorkerLostError(reason(message))
    return None
