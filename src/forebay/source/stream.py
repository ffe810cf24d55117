"""A source as a streaming DataFrame: good rows only, with its watermark, the rest counted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay.connectors.contract import Offsets, SourceConfig, SourceConnector
from forebay.expression import Expression
from forebay.partial import Partial
from forebay.source import datasource
from forebay.source.control import with_watermark
from forebay.source.key_marks import KeySettings
from forebay.source.serve import ANSWER
from forebay.source.spark_types import to_spark
from forebay.source.task_traces import MOST
from forebay.source.watermark_planning import WatermarkSettings
from forebay.telemetry.spans import watched


@dataclass(frozen=True)
class EventTime:
    """Which column carries event time, and how late a record may be."""

    column: str
    delay_ms: int
    idle_ms: int = 30_000  # after this silence a partition is not waited for
    drift_ms: int | None = None  # how far a partition may run ahead of the slowest one
    key: str | None = None  # the column whose values have watermarks of their own


@dataclass(frozen=True)
class WatermarkFiles:
    """Of one reader of a source: what its tasks have found, and what the process that plans has decided."""

    event_times: Path
    decision: Path

    def settings(self, event_time: EventTime) -> str:
        return WatermarkSettings(
            event_time.delay_ms,
            event_time.idle_ms,
            event_time.drift_ms,
            str(self.event_times),
            str(self.decision),
        ).to_json()


def streaming_frame(
    spark: SparkSession,
    config: SourceConfig,
    connector: SourceConnector,
    *,
    start: Offsets,
    drain: Path,
    read: str,
    accounts: int,
    errors: Path,
    health: Path,
    event_time: EventTime | None,
    watermark: WatermarkFiles | None,
    needed: set[str],
    condition: Expression | None = None,
    partial: Partial | None = None,
) -> DataFrame:
    """The source's rows as they come. `start` counts only where the query has no checkpoint.

    Its watermark is the source's, by `watermark`; where that is None, it is Spark's, of all partitions together.

    Columns that are not `needed` are NULL: whoever reads them asked for something else. Rows that do not
    meet the `condition` are counted and left out. With `partial`, rows are added up where they are read, and the parts are columns behind the source's own.
    """
    full = connector.full_schema()
    if event_time is not None:
        needed = needed | {event_time.column}
        partial = partial and partial.with_time(event_time.column)
    if partial is not None:
        needed = {*partial.keys, *(name for name, _ in partial.panes)}
    parts = partial.fields(full) if partial else []
    sent = [*(field for field in full if field.name in needed), *parts] or [_smallest(full)]
    own = {
        datasource.SOURCE_NAME: config.name,
        datasource.ACCOUNTS: str(accounts),
        datasource.ERRORS: str(errors),
        datasource.HEALTH: str(health),
        datasource.DRAIN_FILE: str(drain),
        datasource.READ: read,
        datasource.PARALLELISM: str(spark.sparkContext.defaultParallelism),
        datasource.START: json.dumps(start),
        datasource.COLUMNS: to_spark(config.schema).json(),
        "connector": config.connector,
    }
    own |= _traces()
    if config.event_time is not None:
        own[datasource.EVENT_TIME] = config.event_time
    if condition is not None:
        own[datasource.CONDITION] = condition.to_json()
    if partial is not None:
        own[datasource.PARTIAL] = partial.to_json()
    if event_time is not None and watermark is not None:
        own[datasource.EVENT_TIME] = event_time.column
        own[datasource.WATERMARKS] = watermark.settings(event_time)
    reader = spark.readStream.format(datasource.FORMAT).schema(to_spark(pa.schema(sent)))
    frame = reader.options(**connector.for_workers(), **own).load()
    names = {field.name for field in sent}
    frame = frame.select(
        *(
            F.col(f"`{field.name}`")
            if field.name in names
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in to_spark(pa.schema([*full, *parts]))
        )
    )
    if event_time is None:
        return frame
    if watermark is None:
        return frame.withWatermark(event_time.column, f"{event_time.delay_ms} milliseconds")
    return with_watermark(spark, frame, event_time.column, config.name, watermark.decision, drain)


def shared_frame(
    spark: SparkSession,
    config: SourceConfig,
    connector: SourceConnector,
    *,
    start: Offsets,
    drain: Path,
    read: str,
    errors: Path,
    health: Path,
    state: Path,
    share: Path | None,
    event_time: EventTime | None,
    watermark: WatermarkFiles,
    keys: Path,
) -> DataFrame:
    """What the tasks of a read for many views answer, see `source/serve.py`. `state` says which views there are.

    `share` is the folder that says what of the source is this process's, where its group is shared.
    """
    own = {
        datasource.SOURCE_NAME: config.name,
        datasource.ERRORS: str(errors),
        datasource.HEALTH: str(health),
        datasource.DRAIN_FILE: str(drain),
        datasource.READ: read,
        datasource.PARALLELISM: str(spark.sparkContext.defaultParallelism),
        datasource.START: json.dumps(start),
        datasource.COLUMNS: to_spark(config.schema).json(),
        datasource.SHARED: str(state),
        "connector": config.connector,
    }
    own |= _traces()
    if share is not None:
        own[datasource.SHARE] = str(share)
    if event_time is not None:
        own[datasource.EVENT_TIME] = event_time.column
        own[datasource.WATERMARKS] = watermark.settings(event_time)
        if event_time.key is not None:
            own[datasource.KEYED] = KeySettings(event_time.key, event_time.delay_ms, str(keys)).to_json()
    reader = spark.readStream.format(datasource.FORMAT).schema(to_spark(ANSWER))
    return reader.options(**connector.for_workers(), **own).load()


def batch_frame(spark: SparkSession, config: SourceConfig, connector: SourceConnector) -> DataFrame:
    """All that the source holds now, good rows only."""
    own = {
        datasource.SOURCE_NAME: config.name,
        datasource.PARALLELISM: str(spark.sparkContext.defaultParallelism),
        datasource.COLUMNS: to_spark(config.schema).json(),
        "connector": config.connector,
    }
    if config.event_time is not None:
        own[datasource.EVENT_TIME] = config.event_time
    reader = spark.read.format(datasource.FORMAT).schema(to_spark(connector.full_schema()))
    return reader.options(**connector.for_workers(), **own).load()


def _traces() -> dict[str, str]:
    """Tasks name records that carry a trace where somebody looks at spans."""
    return {datasource.TRACES: str(MOST)} if watched() is not None else {}


def _smallest(schema: pa.Schema) -> pa.Field:
    """A column to count rows by, where a query needs none."""
    return next((field for field in schema if pa.types.is_primitive(field.type)), schema.field(0))
