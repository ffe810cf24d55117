"""A Spark streaming query: started, watched, started again when that helps, stopped between batches."""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from forebay import threads
from forebay.backoff import Backoff
from forebay.catalog import Catalog, QueryState
from forebay.connectors.contract import Offsets, SourceConnector
from forebay.errors import (
    CheckpointError,
    DiskFullError,
    ForebayError,
    NewFieldsError,
    QueryFailedError,
    StorageError,
    WorkerLostError,
    from_text,
)
from forebay.runtime import checkpoints, clusters, events
from forebay.runtime.checkpoint_places import CheckpointPath, checkpoint_away
from forebay.runtime.events import BatchReport
from forebay.runtime.live_run import LiveRun, by_source
from forebay.runtime.source_flow import state_of
from forebay.runtime.spark_failures import reason
from forebay.source.batch_size import Cause
from forebay.source.budget import InFlight
from forebay.source.flow_folder import FlowFolder

log = logging.getLogger("forebay.query")

MAX_WORKERS_LOST = 5  # in a row, without a batch in between: then it is the batch that kills them

OnCheckpoint = Callable[[str, int, Offsets], None]  # a source, a batch, and where it ended


class StreamRun(LiveRun):
    """What all streaming queries have in common. `what` names it in messages."""

    def __init__(
        self,
        name: str,
        what: str,
        checkpoint: CheckpointPath,
        drain: Path,
        *,
        read: str,
        flows: Mapping[str, FlowFolder],
        output_mode: str,
        on_state: Callable[[str, QueryState, str], None],
        evolve: Callable[[str, int], None],
        session_lock: AbstractContextManager[Any],
    ) -> None:
        super().__init__(name, on_state)
        self.what = what
        self.checkpoint = checkpoint
        self.read = read  # its name among the reads of a source
        self.flows = flows  # by source
        self.run: str | None = None  # Spark's id of what runs now; None once its end is dealt with
        self._drain = drain
        self._output_mode = output_mode
        self._evolve = evolve
        self._evolved: set[tuple[str, int]] = set()  # what was taken in: meeting it again would have no end
        self._session_lock = session_lock  # what starts a query reads and changes what is the session's
        self._query: StreamingQuery | None = None
        self._stopping = threading.Event()
        self._backoff = Backoff()
        self._workers_lost = 0
        self._writing: tuple[int, float] | None = None  # the batch that is being kept, and since when

    @abstractmethod
    def build(self) -> DataFrame:
        """The streaming DataFrame, anew for each start."""

    @abstractmethod
    def write(self, frame: DataFrame, batch: int) -> None:
        """Keep what a batch brought, once. Spark calls it, on a thread of its own."""

    @abstractmethod
    def record(self, report: BatchReport, catalog: Catalog, on_checkpoint: OnCheckpoint) -> None:
        """A batch is in the checkpoint. One that is known already changes nothing."""

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, SourceConnector]:
        """What it reads."""

    # -- starting ------------------------------------------------------------------------------------

    def start(self, frame: DataFrame) -> None:
        self.set_state(QueryState.STARTING, "")
        self._drain.unlink(missing_ok=True)
        checkpoints.sweep(self.checkpoint)
        for flow in self.flows.values():
            flow.forget(self.read)  # of a run before
        checkpoints.check(self.checkpoint)
        self._remember_checkpoint()
        self.progress.reported = self.progress.batch
        writer = (
            frame.writeStream.queryName(self.name)
            .outputMode(self._output_mode)
            .option("checkpointLocation", self.location(frame))
            .foreachBatch(self._write)
        )
        self._query = writer.start()
        self.run = str(self._query.runId)
        self.set_state(QueryState.RUNNING, "")

    def location(self, frame: DataFrame) -> str:
        """What Spark calls the checkpoint. On a cluster a path alone may mean one of its own file system."""
        local = clusters.is_local(frame.sparkSession.sparkContext.master)
        return (
            f"file://{self.checkpoint}"
            if isinstance(self.checkpoint, Path) and not local
            else str(self.checkpoint)
        )

    def _write(self, frame: DataFrame, batch: int) -> None:
        self._writing = (batch, time.monotonic())
        try:
            self.write(frame, batch)
        finally:
            self._writing = None

    def _remember_checkpoint(self) -> None:
        known = checkpoints.committed(self.checkpoint)
        if known is not None:
            self.progress.batch = known.batch
            self.progress.positions = by_source(known.offsets)

    def measured(self, source: str, batch: InFlight) -> None:
        """What a batch has brought of a source, for who plans the next one."""
        self.flows[source].measured(self.read, batch)

    def follow_flow(self) -> None:
        """Its state is what its reads say: it runs, its source is paused, or other reads have the budget in flight."""
        if self.state not in (
            QueryState.RUNNING, QueryState.PAUSED, QueryState.BACKPRESSURED, QueryState.STALLED,
        ):  # fmt: skip
            return
        plans = [(name, plan) for name, flow in self.flows.items() for plan in flow.plans()]
        state, hint = state_of([(name, plan) for name, plan in plans if plan.read == self.read])
        if self.state is QueryState.STALLED and state is QueryState.RUNNING:
            return  # whoever found it stalled says when that is over
        if state is not self.state:
            self.set_state(state, hint)

    # -- watching ------------------------------------------------------------------------------------

    def ended(self) -> tuple[bool, str | None]:
        """Whether Spark runs the query no more, and why."""
        query = self._query
        if query is None or query.isActive:
            return False, None
        return True, events.failure(query)

    def is_active(self) -> bool:
        """Whether Spark runs the query now, as far as it answers."""
        query = self._query
        try:
            return query is not None and bool(query.isActive)
        except Exception:  # Spark has ended
            return False

    def unheard(self) -> list[BatchReport]:
        """Spark's reports of batches that were not counted yet."""
        return [] if self._query is None else events.recent_reports(self._query, self.progress.reported)

    @property
    def stall_s(self) -> float:
        """So long may nothing end while there is something to read."""
        return max((each.stall_s for each in self.sources.values()), default=60.0)

    def unread(self) -> int:
        """Records that its sources have now and that no batch has had. Blocks while the brokers are asked."""
        return sum(
            connector.unread(position)
            for name, connector in self.sources.items()
            if (position := self.progress.positions.get(name)) is not None
        )

    def held_back(self) -> bool:
        """Whether it has nothing in flight because what there is to read is of partitions that wait for others."""
        plans = [plan for flow in self.flows.values() for plan in flow.plans() if plan.read == self.read]
        return any(plan.cause is Cause.ALIGNED and not plan.records for plan in plans)

    def waits_for(self) -> str:
        """What it is at, for people."""
        writing, query = self._writing, self._query
        if writing is not None:
            batch, since = writing
            return f"batch {batch}, which has been read and written for {time.monotonic() - since:.0f} s"
        if query is None or not query.isActive:
            return "its start"
        said, of_class, _ = str(query.status["message"]).partition(" org.apache.")
        return f"Spark, which says: {said[:1].lower()}{said[1:]}{' its source' if of_class else ''}"

    def made_progress(self) -> None:
        """A batch with records is done: what failed before is over."""
        self._backoff.over()
        self._workers_lost = 0

    def on_terminated(self, run: str, message: str | None) -> None:
        """A run ended. By itself, for a reason that may pass: start the query again after a while."""
        if run != self.run:
            return
        self.run = None
        if self.state in (QueryState.STOPPED, QueryState.FAILED):
            return
        if self._stopping.is_set() or message is None:
            self.set_state(QueryState.STOPPED, "")
            return
        self._on_failure(
            from_text(message) or clusters.not_set_up(message) or self._transient(message), message
        )

    def _on_failure(self, error: ForebayError | None, message: str) -> None:
        if isinstance(error, NewFieldsError) and (error.source, error.schema_id) not in self._evolved:
            self.set_state(QueryState.RETRYING, error.message)
            self._in_background("evolve", lambda: self._take_in(error))
            return
        self._workers_lost += isinstance(error, WorkerLostError)
        if error is not None and error.retryable and self._workers_lost <= MAX_WORKERS_LOST:
            self.set_state(QueryState.RETRYING, str(error))
            self._in_background("restart", self._restart)
            return
        self.fail(error or QueryFailedError(f"{self.what} failed: {reason(message)}"))

    def _transient(self, message: str) -> ForebayError | None:
        return _transient(message) or checkpoint_away(self.checkpoint, message)

    def _in_background(self, what: str, body: Callable[[], None]) -> None:
        threads.start(f"forebay-{what}-{self.name}", body, self._not_started)

    def _not_started(self, error: Exception) -> None:
        """The query could not be started again, for a reason that nobody foresaw."""
        if not self._stopping.is_set():
            self.fail(QueryFailedError(f"{self.what} could not be started again: {reason(repr(error))}"))

    def fail(self, error: ForebayError) -> None:
        self.error = error
        self.set_state(QueryState.FAILED, str(error))

    def _take_in(self, error: NewFieldsError) -> None:
        """New fields become columns of the source, and the batch that met them is read again with these."""
        self._evolved.add((error.source, error.schema_id))
        log.info("%s: %s", self.what, error.message)
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
                self.start(self.build())
        except (ForebayError, PySparkException, Py4JError, OSError) as error:
            if not self._stopping.is_set():  # else it was stopped while it was being started
                text = str(error)
                known = error if isinstance(error, ForebayError) else from_text(text) or self._transient(text)
                self._on_failure(known, text)

    # -- stopping ------------------------------------------------------------------------------------

    def begin_to_stop(self) -> None:
        """Begin no other batch. Returns at once."""
        self._stopping.set()
        self._drain.touch()

    def stop(self, timeout_s: float = 60.0) -> None:
        """Finish the batch in flight, start no other, stop.

        Spark's own stop() would break into the batch. So the source learns that there is nothing
        more to read, and once Spark has seen that, the query is idle and stopping harms nothing.
        """
        self._stopping.set()
        query = self._query
        if query is not None and query.isActive:
            self._drain.touch()
            self._await_idle(query, timeout_s)
            try:
                query.stop()
            except PySparkException as error:
                log.warning("%s did not stop cleanly: %s", self.what, error)
        self._drain.unlink(missing_ok=True)
        try:
            self._remember_checkpoint()
        except (
            CheckpointError,
            StorageError,
        ) as error:  # stopping ends all the same; whoever starts it again gets the error
            log.error("%s: %s", self.what, error.message)
        if self.state not in (QueryState.STOPPED, QueryState.FAILED):
            self.set_state(QueryState.STOPPED, "")

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
                log.debug("%s ended while it was being stopped", self.what)
            finally:
                done.set()

        threads.start(f"forebay-drain-{self.name}", wait, lambda error: None)
        if not done.wait(timeout_s):
            log.warning("%s: a batch did not end within %.0f s; it will be repeated", self.what, timeout_s)


# What Spark says when a process of its own was slow or died, and the next try has every chance.
_TRANSIENT = (
    "Timed out while waiting for the Python worker",
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ExecutorLostFailure",
)


# What the system says of a full disk, and SQLite.
_FULL = ("No space left on device", "Disk quota exceeded", "database or disk is full")


def _transient(message: str) -> ForebayError | None:
    if any(sign in message for sign in _FULL):
        return DiskFullError(f"a disk is full: {reason(message)}")
    if any(sign in message for sign in _TRANSIENT):
        return WorkerLostError(reason(message))
    return None
