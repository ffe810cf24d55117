"""Any connector as a Spark data source: `spark.readStream.format("forebay").option("topic", …)`.

It takes the options of CREATE SOURCE under the same names, `connector` among them (kafka unless given),
and the columns as `.schema(…)`. The keys that start with `forebay.` are the session's own.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from forebay.backoff import with_backoff
from forebay.connectors.contract import Offsets, SourceBatch, SourceConfig, SourceConnector, Split
from forebay.connectors.registry import default_registry
from forebay.errors import OptionConflictError, OptionError, UnsupportedSqlError
from forebay.files import FollowedFile
from forebay.hiding import Mask
from forebay.source import accounts
from forebay.source.spark_types import from_spark, to_spark
from forebay.source.watermarks import WATERMARK, Marks, without_marks

if TYPE_CHECKING:
    from forebay.source.batch_size import BatchSize
    from forebay.source.flow import ReadFlow
    from forebay.source.serving import ReadState, Serving
    from forebay.source.treatment import TreatingRouter, Treatment
    from forebay.source.watermark_planning import WatermarkPlanner

# What only a reading task needs is imported by it: the processes that plan are started anew for every query.

log = logging.getLogger("forebay.source")

QUIET_S = 1.0  # how long Spark is kept waiting where there is nothing new: its other sources wait, too
ALONE_QUIET_S = (
    5.0  # the same of a query that has one source: being asked again costs the JVM most of what idling costs
)
WAITS_S = 0.02  # a connector that takes so long to find nothing has waited for something
HELD_S = 0.02  # how soon it is noticed that a source is resumed, or that the budget in flight has room

FORMAT = "forebay"
SOURCE_NAME = "forebay.source"  # the source's name in the catalog
ACCOUNTS = "forebay.accounts"  # the number of the accumulator that takes the tasks' accounts
ERRORS = "forebay.errors"  # the source's folder, where its error policy is: for who plans
HEALTH = "forebay.health"  # the folder where it is kept how partitions fared: for who plans
DRAIN_FILE = "forebay.drain"  # while this file exists there is nothing new to read
PARALLELISM = "forebay.parallelism"  # how many tasks can run at a time
START = "forebay.start"  # where to start without a checkpoint, as worked out by the driver
COLUMNS = "forebay.columns"  # the declared columns as JSON: Spark's schema may have lost their NOT NULL
CONDITION = "forebay.condition"  # what rows must meet to be sent to Spark, as JSON
PARTIAL = "forebay.partial"  # what to add up before Spark does, as JSON
SHARE = "forebay.share"  # of a group that is shared: the folder that says what this process is assigned
SHARED = "forebay.shared"  # of a read for many views: the file that says which, see `source/serving.py`
READ = "forebay.read"  # the name of the read among those of its source, see `source/flow_folder.py`
EVENT_TIME = "forebay.event_time"  # the column that carries it
KEYED = "forebay.keyed"  # how keys have watermarks of their own, as JSON: for who plans
TRACES = "forebay.traces"  # so many records that carry a trace are named by a task; absent where nobody looks
WATERMARKS = "forebay.watermarks"  # how the watermark is decided, as JSON: for who plans
_OWN_KEYS = {
    SOURCE_NAME,
    ACCOUNTS,
    ERRORS,
    HEALTH,
    DRAIN_FILE,
    PARALLELISM,
    START,
    COLUMNS,
    CONDITION,
    PARTIAL,
    SHARE,
    SHARED,
    READ,
    EVENT_TIME,
    KEYED,
    TRACES,
    WATERMARKS,
    "connector",
    "path",
}


@dataclass
class Piece(InputPartition):
    """One task's work, as Spark carries it. Of a shared read with all that the task needs to know."""

    split: Split | None
    treatment: Treatment | None = None  # of bad records; None: they are reported
    serving: Serving | None = None


class ForebaySource(DataSource):
    """Kafka topics as a data source of any PySpark session, without the SQL.

        spark.dataSource.register(forebay.ForebaySource)
        stream = (
            spark.readStream.format("forebay").schema("id BIGINT, name STRING")
            .option("bootstrap.servers", "localhost:9092").option("topic", "users").option("group.id", "g").load()
        )

    It takes the options of CREATE SOURCE under the same names. Spark makes it; what is wrong with an option is raised
    when the stream is started, or the table is read.
    """

    @classmethod
    def name(cls) -> str:
        """What `format(…)` takes: "forebay"."""
        return FORMAT

    def schema(self) -> StructType:
        """Asked for when the user gave none: whatever the connector knows by itself."""
        discovered = default_registry().make(self._config(pa.schema([]))).discover_schema()
        if discovered is None:
            raise ValueError('FB1002: the columns are not known: give them with .schema("id BIGINT, …")')
        return to_spark(default_registry().make(self._config(discovered.columns)).full_schema())

    def _config(self, schema: pa.Schema) -> SourceConfig:
        name = self.options.get(SOURCE_NAME, "spark")
        connector = self.options.get("connector", "kafka")
        given = {key: text for key, text in self.options.items() if key not in _OWN_KEYS}
        given = default_registry().get(connector).with_defaults(name, given)
        event_time = self.options.get(EVENT_TIME) or given.get("event.time.column")
        return SourceConfig(name, connector, given, schema, event_time)

    def _for_workers(self, schema: StructType) -> SourceConfig:
        config = self._config(self._declared(from_spark(schema)))
        return replace(config, options=default_registry().make(config).for_workers())

    def _declared(self, schema: pa.Schema) -> pa.Schema:
        """The columns to decode: what Spark asks for, without those the source itself adds at the end."""
        if COLUMNS in self.options:
            return from_spark(StructType.fromJson(json.loads(self.options[COLUMNS])))
        asked = list(schema)
        for count in range(len(asked), 0, -1):
            declared = pa.schema(asked[:count])
            try:
                full = default_registry().make(self._config(declared)).full_schema()
            except (UnsupportedSqlError, OptionError):
                continue  # a column that the source adds is still among them
            if full.names == schema.names:
                return declared
        return schema

    def streamReader(self, schema: StructType) -> ForebayStreamReader:
        """For `readStream`: Spark calls it."""
        config = self._for_workers(schema)
        if SHARE not in self.options and default_registry().make(config).share is not None:
            raise OptionConflictError(
                "'group.mode' = 'shared' needs a session, which is the member of the group",
                option="group.mode",
                remedy="read it by CREATE SOURCE and CREATE MATERIALIZED VIEW; or leave group.mode out",
            )
        return ForebayStreamReader(config, dict(self.options), schema)

    def reader(self, schema: StructType) -> ForebayBatchReader:
        """For `read`: all that the topics hold now, from the beginning unless `startup.mode` is given. Spark calls it."""
        config = self._for_workers(schema)
        config = default_registry().get(config.connector).as_table(config)
        return ForebayBatchReader(config, dict(self.options), schema)


class _BatchReading:
    """What the streaming and the batch reader share. Pickles without its connector."""

    def __init__(self, config: SourceConfig, options: dict[str, str], schema: StructType) -> None:
        self._config = config
        self._schema = from_spark(schema)
        self._drain = options.get(DRAIN_FILE)
        self._parallelism = int(options.get(PARALLELISM) or os.cpu_count() or 1)
        self._start = options.get(START)
        self._accounts = options.get(ACCOUNTS)
        self._errors = options.get(ERRORS)
        self._health = options.get(HEALTH)
        self._who = accounts.name_of(Split(), self._health or "")
        self._condition = options.get(CONDITION)
        self._partial = options.get(PARTIAL)
        self._shared = options.get(SHARED)
        self._read_name = options.get(READ, "")
        self._share = options.get(SHARE)
        self._event_time = options.get(EVENT_TIME)
        self._keyed = options.get(KEYED)
        self._watermark_settings = options.get(WATERMARKS)
        self._traces = int(options.get(TRACES) or 0)
        self._connector: SourceConnector | None = None

    def __getstate__(self) -> dict[str, Any]:
        """As a task gets it: it has no use for the driver's files, and may run where there are none."""
        of_the_driver = (
            "_connector",
            "_drain",
            "_errors",
            "_health",
            "_share",
            "_shared",
            "_keyed",
            "_known_state",
            "_start",
            "_flow",
            "_watermark_settings",
            "_watermark_planner",
        )
        return self.__dict__ | dict.fromkeys(of_the_driver)

    @property
    def connector(self) -> SourceConnector:
        if self._connector is None:
            self._connector = connector = default_registry().make(self._config)
            if connector.share is not None and self._share is not None:
                connector.share.follow(Path(self._share))
        return self._connector

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        if partition.serving is not None:
            from forebay.source.serve import serve

            assert partition.treatment is not None
            yield from serve(
                self._config,
                partition.split,
                partition.serving,
                partition.treatment,
                self._event_time,
                self._traces,
            )
            return
        assert partition.split is not None
        account = accounts.Account()
        found: dict[str, Any] = {}
        yield from self._shaped(self._rows(partition.split, partition.treatment, account, found))
        if self._accounts is not None:
            form = accounts.to_form(partition.split, account) | found
            accounts.send(int(self._accounts), partition.split, form)

    def _rows(
        self, split: Split, treatment: Treatment | None, account: accounts.Account, found: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """The good rows of a split, those that are wanted. The bad ones go where the policy says."""
        from forebay.expression import Expression
        from forebay.source.event_times import NewestTimes
        from forebay.source.expressions import matching
        from forebay.source.task_traces import TaskTraces

        condition = None if self._condition is None else Expression.from_json(self._condition)
        connector = default_registry().make(self._config)
        account.mask = connector.mask
        router = self._router(connector, split, treatment)
        times, traces = NewestTimes(split, self._event_time), TaskTraces(self._traces)
        if router is not None:
            connector.wanted = router.wanted
        connector.wanted = replace(connector.wanted, traces=self._traces)
        try:
            for batch in connector.read_batch(split):
                account.count(batch)
                if router is not None:
                    router.see(batch)
                elif batch.rejected:
                    self._report(batch, connector.mask)
                times.see(batch)
                traces.see(batch)
                rows = batch.records if condition is None else matching(batch.records, condition)
                if rows.num_rows:
                    yield rows
            if router is not None:
                router.finish()
                account.dlq, account.limited = router.letters, router.limited
                found |= router.to_form()
            found |= times.to_form() | traces.to_form()
        finally:
            if router is not None:
                router.close()
            connector.close()

    def _shaped(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What Spark asked for of a connector's rows: some of their columns, or their sums."""
        target, names = self._schema, self._schema.names
        if self._partial is not None:
            from forebay.partial import Partial
            from forebay.source.partials import Adder

            yield from Adder(Partial.from_json(self._partial), target).all(batches)
            return
        for rows in batches:
            yield pa.RecordBatch.from_arrays([rows.column(name) for name in names], schema=target)

    def _router(
        self, connector: SourceConnector, split: Split, treatment: Treatment | None
    ) -> TreatingRouter | None:
        if treatment is None:
            return None
        from forebay.source.treatment import TreatingRouter

        # Two views write the same letters; each has a file of its own, so that neither takes the other's away.
        return TreatingRouter(self._config, connector, split, treatment, self._who)

    def _report(self, batch: SourceBatch, mask: Mask) -> None:
        log.warning(
            "source '%s': %d records rejected; the first is %s",
            self._config.name, len(batch.rejected), batch.rejected[0].words(mask),
        )  # fmt: skip

    def stop(self) -> None:
        if self._connector is not None:
            self._connector.close()


class ForebayStreamReader(_BatchReading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of a connector. Planning runs in one long-lived process beside the driver."""

    _target: Offsets | None = None
    _known_state: FollowedFile[ReadState] | None = None
    _flow: ReadFlow | None = None
    _watermark_planner: WatermarkPlanner | None = None
    _settled = False  # the last batch read nothing: what it began with is what the marks of keys are now
    _warm = False  # Spark has begun a batch in this process

    @property
    def flow(self) -> ReadFlow:
        """When the next batch is planned, and how large."""
        if self._flow is None:
            from forebay.source.flow import FlowLimits, ReadFlow
            from forebay.source.flow_folder import FlowFolder

            folder = None if self._errors is None else FlowFolder.of(Path(self._errors))
            limits = FlowLimits.of(self.connector.options)
            self._flow = ReadFlow(limits, folder, self._read_name, self._served)
        return self._flow

    def _served(self) -> list[str]:
        """The views that this read is for."""
        if self._shared is None:
            return [self._read_name.removeprefix("view-")]
        return [name for name, each in self._state().views.items() if each.ready]

    def initialOffset(self) -> Offsets:
        return self._named(json.loads(self._start) if self._start else self.connector.initial_offsets())

    def _named(self, offsets: Offsets, generation: int = 0) -> Offsets:
        """With the source's name in it, so that the offset log of a query over several tells which is which.

        Of a shared read also with a number that grows when views join: a position that differs in it alone makes a batch.
        """
        named: dict[str, Any] = {"source": self._config.name}
        if self._shared is not None:
            named |= {"generation": generation}
        return named | {key: value for key, value in offsets.items() if key not in named}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.connector.options.get("max.records.per.batch")
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = with_backoff(self.connector.end_offsets, timeout_s=None)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        if self.connector.share is not None and not self._warm and not self._drained():
            return self._first_of_all(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        marks = self._planner_of_watermarks()
        quiet_s = QUIET_S if self._shared is None else ALONE_QUIET_S
        until = time.monotonic() + (0.0 if marks and marks.hurry() else quiet_s)
        while True:
            if self.connector.share is not None:
                self.connector.share.look()  # also while nothing is planned: somebody may wait for that
            if self._drained():
                return start
            if self._target is not None and self.connector.reached(start, self._target):
                return start
            began = time.monotonic()
            size = self.flow.next(most)
            if not size.records:
                self.connector.stand_still()
            found = self._planned(start, size) if size.records else None
            if found is not None and found != start:
                return found
            # Where there is nothing new, asking again here costs less than being asked again by Spark.
            waits = found is None or time.monotonic() - began >= WAITS_S
            if not waits or time.monotonic() >= until or (marks and marks.news):
                return start
            if found is None:
                time.sleep(self.flow.step_s if size.records else HELD_S)

    def _drained(self) -> bool:
        return self._drain is not None and Path(self._drain).exists()

    def _first_of_all(self, start: Offsets) -> Offsets:
        """A batch that reads nothing, before this process takes a partition of a group that is shared.

        What Spark and its workers do for the first time takes seconds. Until then the partitions are with those that read them.
        """
        self._warm = True
        return self._named(start, start.get("generation", 0) + 1)

    def _planned(self, start: Offsets, size: BatchSize) -> Offsets | None:
        """How far the next batch goes; `start` where there is nothing new; None if a fuller one is waited for."""
        planner = self._planner_of_watermarks()
        if planner is not None:
            planner.before_look(self.connector)
        found = self.connector.latest_offsets(start, size.records, self._target)
        marks = Marks() if planner is None else planner.look(self.connector, start)
        joins = self._joining(start)
        generation = start.get("generation", 0)
        named = self._named(without_marks(found), generation + joins)
        if named == without_marks(start) and self._closing(start, planner):
            joins, named = True, self._named(without_marks(found), generation + 1)
        if named == without_marks(start):
            # Partitions that run ahead may be held back: then there is nothing to plan, and something to read.
            behind = self.connector.count(start, self.connector.known_end() or start)
            self.flow.idle(behind, self.connector.held_back())
            return start
        if (
            self._shared is not None
        ):  # of a query that only Spark can run, the watermark is a stream of its own
            named |= marks.named()
        records = self.connector.count(start, found)
        behind = self.connector.count(start, self.connector.known_end() or found)
        self._settled = not records
        at_once = joins or self._target is not None
        if not at_once and not self.flow.full_enough(records, size):
            return None
        if not self.flow.fits(records, lambda: self.connector.record_bytes(start, found)):
            return None
        planned = self.flow.planned(records, max(records, behind), size, self.connector.held_back())
        return named if planned else None

    def _planner_of_watermarks(self) -> WatermarkPlanner | None:
        """None where the source has no event time."""
        if self._watermark_planner is None and self._watermark_settings is not None:
            from forebay.source.watermark_planning import WatermarkPlanner, WatermarkSettings

            settings = WatermarkSettings.from_json(self._watermark_settings)
            self._watermark_planner = WatermarkPlanner(settings)
        return self._watermark_planner

    def _closing(self, start: Offsets, planner: WatermarkPlanner | None) -> bool:
        """Whether windows may close though there is nothing new to read: the watermark has moved, or marks of keys have."""
        if self._shared is None or planner is None:
            return False
        from forebay.source.serving import closing

        if not closing(self._state()):
            return False
        announced = planner.announced_ms
        moved = announced is not None and announced > start.get(WATERMARK, announced - 1)
        return moved or (self._keyed is not None and not self._settled)

    def _joining(self, start: Offsets) -> bool:
        """Whether a view of a shared read waits for a batch of its own."""
        if self._shared is None:
            return False
        from forebay.source.serving import joining

        return joining(self.connector, self._state(), start)

    def _state(self) -> ReadState:
        """Who is served now."""
        if self._known_state is None:
            from forebay.source.serving import ReadState

            assert self._shared is not None
            self._known_state = FollowedFile(Path(self._shared), ReadState.read, ReadState())
        return self._known_state.read()

    def reportLatestOffset(self) -> Offsets | None:
        end = self.connector.known_end()
        return self._named(end) if end else None

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        self._warm = True
        if self._shared is None:
            splits = self.connector.plan_batches(start, end, self._parallelism)
            return [Piece(split, each) for split, each in zip(splits, self._treatments(splits), strict=True)]
        from forebay.source.serving import servings

        work = servings(self.connector, self._state(), start, end, self._parallelism)
        if self._keyed is not None:
            work = self._with_keys(work, start)
        treatments = self._treatments([split for split, _ in work])
        return [Piece(split, each, serving) for (split, serving), each in zip(work, treatments, strict=True)]

    def _with_keys(
        self, work: Sequence[tuple[Split | None, Serving]], start: Offsets
    ) -> list[tuple[Split | None, Serving]]:
        """With the marks of keys where the batch begins. What a view has missed was not late where it stood."""
        from forebay.source.key_marks import KeySettings

        assert self._keyed is not None
        reached, settings = self.connector.reached, KeySettings.from_json(self._keyed)
        judge = settings.judge(start, lambda one, other: reached(one, other) and reached(other, one))
        return [
            (split, replace(serving, keyed=judge.knowing_nothing() if serving.catching_up else judge))
            for split, serving in work
        ]

    def _treatments(self, splits: Sequence[Split | None]) -> Sequence[Treatment | None]:
        """Nobody has said what to do with bad records where there is no session: they are reported then."""
        if self._errors is None or self._health is None:
            return [None] * len(splits)
        from forebay.deadletter.breaker import HealthFolder
        from forebay.deadletter.policy import SourceFolder
        from forebay.source.treatment import treatments

        folder, health = SourceFolder(Path(self._errors)), HealthFolder(Path(self._health))
        return treatments(splits, folder, health, f"{self._read_name}.{os.getpid()}", self.flow.reads)

    def stop(self) -> None:
        if self._flow is not None:
            self._flow.close()
        super().stop()

    def commit(self, end: Offsets) -> None:
        """Nothing: Spark calls this one batch late and never for the last. The session commits instead."""


class ForebayBatchReader(_BatchReading, DataSourceReader):
    """All that a source holds now, as a table."""

    def partitions(self) -> Sequence[InputPartition]:
        self.connector.open()
        splits = self.connector.plan_batches(
            self.connector.initial_offsets(), self.connector.end_offsets(), self._parallelism
        )
        # Spark wants at least one partition to find the schema of.
        return [Piece(split) for split in splits] or [Piece(Split())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        if type(partition.split) is Split:  # of a source that holds nothing
            return iter(())
        return super().read(partition)
