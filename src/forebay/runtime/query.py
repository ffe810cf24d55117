"""A view with a streaming query of its own: what it needs, only Spark can do."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame

from forebay.catalog import Catalog, QueryState
from forebay.connectors.contract import Offsets, SourceConnector
from forebay.deadletter.policy import SourceFolder
from forebay.errors import CheckpointError, ForebayError
from forebay.runtime import changelog, checkpoints
from forebay.runtime.batch_spans import BatchSpans
from forebay.runtime.checkpoint_places import checkpoint_of
from forebay.runtime.counting import BatchToCount, count, recount
from forebay.runtime.events import BatchReport
from forebay.runtime.live_run import by_source
from forebay.runtime.lock import ViewLock
from forebay.runtime.recovery import gone
from forebay.runtime.shared_view import END
from forebay.runtime.state_server import StateServer
from forebay.runtime.stream_run import OnCheckpoint, StreamRun
from forebay.runtime.task_accounts import AccountCollector, TaskAccount, hand_on, judge, newest_times
from forebay.source import accounts, watermarks
from forebay.source.budget import InFlight
from forebay.source.flow_folder import FlowFolder, view_read
from forebay.source.watermarks import Decision
from forebay.views.options import RETENTION_S
from forebay.views.paths import ViewPaths
from forebay.views.table import ViewTable

log = logging.getLogger("forebay.query")


class RunningQuery(StreamRun):
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
        folders: Mapping[str, SourceFolder] | None = None,
        retention_s: float = RETENTION_S,
        on_state: Callable[[str, QueryState, str], None],
        evolve: Callable[[str, int], None],
        session_lock: AbstractContextManager[Any],
    ) -> None:
        super().__init__(
            name,
            f"view '{name}'",
            checkpoint_of(paths.root),
            paths.drain,
            read=view_read(name, shared=False),
            flows={source: FlowFolder.of(folder.root) for source, folder in (folders or {}).items()},
            output_mode=output_mode,
            on_state=on_state,
            evolve=evolve,
            session_lock=session_lock,
        )
        self.paths = paths
        self.connectors = dict(connectors)
        self.table = ViewTable(paths.table, retention_s)
        self.state_server: StateServer | None = (
            None  # on a cluster: how tasks reach what Spark keeps for the view
        )
        self.starts: dict[str, Offsets] = {}  # where the view begins in each source
        self.recovering = False  # its table's word on where it stands is taken
        self.closes_windows = False  # its rows come when the watermark of its sources has passed
        self.lock = ViewLock(name, paths)
        self._frame = build
        self._merge_keys = merge_keys
        self._kept = kept
        self._folders = dict(folders or {})
        self._accounts: dict[str, AccountCollector] = {}
        self._tasks: dict[str, list[TaskAccount]] = {}  # of the batch that is kept, by source

    def build(self) -> DataFrame:
        return self._frame()

    @property
    def sources(self) -> Mapping[str, SourceConnector]:
        return self.connectors

    # -- starting ------------------------------------------------------------------------------------

    def prepare(self, frame: DataFrame) -> None:
        """Make the table, or make sure that table and checkpoint belong together."""
        if not self.table.exists():
            if checkpoints.exists(self.checkpoint):
                raise CheckpointError(
                    f"the table of view '{self.name}' is gone, but its checkpoint is there",
                    remedy=f"DROP MATERIALIZED VIEW {self.name}, then create it again",
                )
            self.table.create(changelog.table_schema(frame.schema, self._kept))
        elif (
            not self.recovering
            and self.table.open().version() > 0
            and not checkpoints.exists(self.checkpoint)
        ):
            raise gone(self.name, recoverable=END in self.table.newest_metadata())

    def start(self, frame: DataFrame) -> None:
        self.table.widen(changelog.table_schema(frame.schema, self._kept))
        super().start(frame)

    def location(self, frame: DataFrame) -> str:
        if self.state_server is None or not isinstance(self.checkpoint, Path):
            return super().location(frame)
        return self.state_server.url(self.checkpoint)

    def accounts(self, source: str, context: SparkContext) -> int:
        """Where tasks over a source send what they read."""
        if source not in self._accounts:
            self._accounts[source] = AccountCollector(context)
        return self._accounts[source].id

    def write(self, frame: DataFrame, batch: int) -> None:
        spans = {name: BatchSpans(name, each, batch) for name, each in self.connectors.items()}
        self._keep(frame, batch)
        for source, each in spans.items():
            tasks = self._tasks.pop(source, [])
            each.kept([self.name], tasks, lambda source=source: self._folders[source].read_policy())  # type: ignore[misc]

    def _keep(self, frame: DataFrame, batch: int) -> None:
        query_id = checkpoints.query_id(self.checkpoint)
        self.lock.check()
        if self.table.holds(query_id, batch):
            log.info("view '%s': batch %d is in the table already", self.name, batch)
            self.table.persist()  # whoever wrote it may have been killed before that
            # Its rows are still to be counted, and the state it leaves is what the next batch starts from.
            frame.write.format("noop").mode("overwrite").save()
            self._take_accounts()
        elif self._kept is not None:
            rows = changelog.changes(frame, self._kept)
            self._take_accounts()
            changelog.write(self.table, rows, self._kept, self._merge_keys or (), query_id, batch)
        elif self._merge_keys is None:
            written = self.table.written(frame, batch)
            self._take_accounts()
            ends = by_source(checkpoints.offsets(self.checkpoint, batch))
            self.table.add(written, query_id, batch, {END: json.dumps(ends)})
        else:
            rows = frame.toArrow()
            self._take_accounts()
            self.table.merge(rows, self._merge_keys, query_id, batch)
        if self._kept == "rows":
            changelog.check(self.table, self.name)  # also of a batch that was there already

    def account_folders(self, source: str) -> Sequence[Path]:
        return (self.paths.accounts_of(source),)

    def _take_accounts(self) -> None:
        """What the tasks of this batch read, which is known once its rows are here. It is judged before any is kept."""
        for source, collector in self._accounts.items():
            forms = collector.take()
            tasks = [TaskAccount.of(form) for form in forms.values()]
            self._tasks[source] = tasks
            read = InFlight.sum(InFlight(task.account.records, task.account.bytes) for task in tasks)
            self.measured(source, read)
            judge(source, self._folders[source], tasks)
            for name, form in forms.items():
                accounts.write(self.paths.accounts_of(source), name, form)
            hand_on(self._folders[source], self.paths.health_of(source), tasks)
            watermarks.remember(self.paths.event_times_of(source), newest_times(tasks))

    # -- watching ------------------------------------------------------------------------------------

    def record(self, report: BatchReport, catalog: Catalog, on_checkpoint: OnCheckpoint) -> None:
        """Count a batch, and have the offsets committed that it moved to."""
        moved = {each.end["source"]: each.end for each in report.sources if each.end and each.moved}
        # Rows that came too late are known for the whole query, so they are put down to one source only.
        late, records = report.late, 0
        for name, end in moved.items():
            records += count(catalog, self, name, end, BatchToCount(report.batch, late, report.took_ms))
            late = 0
        # Whoever waits for the query to get here, and then for the commit, must find that one waiting.
        with self.changed:
            self.on_progress(report, records)
            for name, end in moved.items():
                on_checkpoint(name, report.batch, end)

    def recount(self, catalog: Catalog) -> None:
        """Count the batches that are done but were not counted, because a process ended before Spark reported them."""
        done = checkpoints.committed(self.checkpoint)
        if done is not None:
            recount(catalog, self, done.batch, by_source(done.offsets))

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
            self.progress.watermark_ms = report.watermark_ms or self.progress.watermark_ms
            if records:
                self.progress.batch = max(self.progress.batch, report.batch)
                self.progress.batch_ms = report.took_ms
                self.batch_times.add(report.took_ms / 1000)
                self.made_progress()
            self.progress.records_per_second = records * 1000 / max(report.took_ms, 1)
            self.changed.notify_all()

    def _lag(self, report: BatchReport) -> int:
        return sum(
            self.connectors[source.end["source"]].count(source.end, source.latest)
            for source in report.sources
            if source.end and source.latest
        )

    def due(self) -> float | None:
        """The watermark that follows from what was read so far, in milliseconds; None where it is not decided yet."""
        found: list[float] = []
        for source, connector in self.connectors.items():
            decision = Decision.read(self.paths.watermark_of(source))
            position = self.progress.positions.get(source)
            if decision is None or position is None or not connector.reached(decision.position, position):
                return None  # it was decided before this was read
            found.append(-math.inf if decision.watermark_ms is None else decision.watermark_ms)
        return min(found)

    def has_closed(self, due_ms: float) -> bool:
        """Whether all windows are closed that end before this watermark."""
        return (self.progress.watermark_ms or 0) >= due_ms

    # -- ending --------------------------------------------------------------------------------------

    def fail(self, error: ForebayError) -> None:
        self.table.settle()
        self.lock.release()  # before anybody hears of it: whoever does may start the view again at once
        super().fail(error)

    def stop(self, timeout_s: float = 60.0) -> None:
        super().stop(timeout_s)
        self.table.settle()
        self.lock.release()
