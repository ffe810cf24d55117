"""Spark's watermark follows the source's: a second stream, whose offset is the watermark, and whose rows carry it.

Spark knows one watermark a column: the greatest value that it has seen. So the column's watermark is declared on a stream
that has nothing but watermarks, and the source's rows join it by a union. The offset is in Spark's log, so a batch that is
repeated has the same one; and a watermark that moves makes a batch, so that windows close though nothing comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import BooleanType, StructField, StructType

from forebay.connectors.contract import Offsets
from forebay.source.spark_types import from_spark
from forebay.source.watermarks import CONTROL, WATERMARK, Decision

FORMAT = "forebay-watermark"
_FILE, _DRAIN, _SOURCE, _COLUMN = "decision", "drain", "source", "column"
_RUN = "run"
_MARK = "_forebay_control"


def with_watermark(
    spark: SparkSession, rows: DataFrame, column: str, source: str, decision: Path, drain: Path
) -> DataFrame:
    """The rows, with the watermark that the process that plans them writes into `decision`."""
    fields = rows.schema
    # All columns are the stream's own, though it has nothing to say in them: of a NULL that is written here Spark would conclude
    # that the column is always NULL, in a batch that has no rows of the source, and drop what it is joined with.
    kind = StructType([StructField(field.name, field.dataType) for field in fields]).add(_MARK, BooleanType())
    given = {_FILE: str(decision), _DRAIN: str(drain), _SOURCE: source, _COLUMN: column}
    marks = spark.readStream.format(FORMAT).schema(kind).options(**given).load()
    # Spark must look at a row's time before it drops the row. No predicate goes below a column that is not deterministic;
    # else a WHERE or a join on another column, which is NULL here, would take these rows away first.
    columns = [F.col(f"`{field.name}`") for field in fields]
    kept = (F.col(_MARK) & (F.spark_partition_id() >= 0)).alias(_MARK)
    marks = marks.withWatermark(column, "0 milliseconds").select(*columns, kept)
    both = marks.union(rows.withColumn(_MARK, F.lit(False)))
    return both.where(~F.col(_MARK)).drop(_MARK)  # the first side's column is the union's, watermark and all


@dataclass
class _Mark(InputPartition):
    watermark_ms: int


class WatermarkSource(DataSource):
    """The watermark of one reader of a source, as a stream."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> WatermarkReader:
        return WatermarkReader(dict(self.options), schema)


class WatermarkReader(DataSourceStreamReader):
    """Moves when the file does, and never back."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._source = options[_SOURCE]
        self._column = options[_COLUMN]
        self._decision: Path | None = Path(options[_FILE])
        self._drain: Path | None = Path(options[_DRAIN])
        self._schema = from_spark(schema)
        self._began = False

    def __getstate__(self) -> dict[str, object]:
        """As a task gets it: without files of the home."""
        return self.__dict__ | {"_decision": None, "_drain": None}

    def initialOffset(self) -> Offsets:
        return {CONTROL: self._source, WATERMARK: None, _RUN: 0}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        assert self._decision is not None
        assert self._drain is not None
        if self._drain.exists():
            return start
        found = Decision.read(self._decision) or Decision()
        known = [at for at in (start[WATERMARK], found.watermark_ms) if at is not None]
        # Spark forgets over a restart that a batch is due which closes windows: one more makes it look.
        again, self._began = not self._began and start[WATERMARK] is not None, True
        return start | {WATERMARK: max(known, default=None), _RUN: start[_RUN] + again}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return [] if end[WATERMARK] is None else [_Mark(end[WATERMARK])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Mark)
        time = pa.array([partition.watermark_ms * 1000], pa.int64()).cast(pa.timestamp("us"))
        row = {self._column: time, _MARK: pa.array([True])}
        columns = [
            row[field.name].cast(field.type) if field.name in row else pa.nulls(1, field.type)
            for field in self._schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def commit(self, end: Offsets) -> None:
        """Nothing: the offset is all there is."""
