"""A source as a streaming DataFrame: good rows only, with its watermark, the rest counted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from forebay.connectors.contract import Offsets, SourceConfig, SourceConnector
from forebay.options import dereference
from forebay.source import datasource
from forebay.source.rejected import schema_with_rejected, split_off

METRIC_PREFIX = "forebay_"


@dataclass(frozen=True)
class EventTime:
    """Which column carries event time, and how late a record may be."""

    column: str
    delay_ms: int


def streaming_frame(
    spark: SparkSession,
    config: SourceConfig,
    connector: SourceConnector,
    *,
    start: Offsets,
    drain: Path,
    event_time: EventTime | None,
) -> DataFrame:
    """The source's rows as they come. `start` counts only where the query has no checkpoint."""
    own = {
        datasource.SOURCE_NAME: config.name,
        datasource.REJECTED_COLUMN: "true",
        datasource.DRAIN_FILE: str(drain),
        datasource.PARALLELISM: str(spark.sparkContext.defaultParallelism),
        datasource.START: json.dumps(start),
        datasource.COLUMNS: config.schema.json(),
        "connector": config.connector,
    }
    reader = spark.readStream.format(datasource.FORMAT).schema(schema_with_rejected(connector.full_schema()))
    frame = split_off(reader.options(**_resolved(config), **own).load(), METRIC_PREFIX + config.name)
    if event_time is not None:
        frame = frame.withWatermark(event_time.column, f"{event_time.delay_ms} milliseconds")
    return frame


def batch_frame(spark: SparkSession, config: SourceConfig, connector: SourceConnector) -> DataFrame:
    """All that the source holds now, good rows only."""
    own = {
        datasource.SOURCE_NAME: config.name,
        datasource.PARALLELISM: str(spark.sparkContext.defaultParallelism),
        datasource.COLUMNS: config.schema.json(),
        "connector": config.connector,
    }
    reader = spark.read.format(datasource.FORMAT).schema(connector.full_schema())
    return reader.options(**_resolved(config), **own).load()


def _resolved(config: SourceConfig) -> dict[str, str]:
    """The options with `${NAME}` looked up here: the workers' environment is not the driver's."""
    return {key: dereference(key, text) for key, text in config.options.items()}
