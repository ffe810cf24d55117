"""Rejected records travel as rows, in a column of their own, so that Spark counts them with the batch.

An accumulator would count a repeated task twice, and a side channel would not know which batch it is in.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from forebay.connectors.contract import SourceBatch
from forebay.formats import Kind
from forebay.formats.batches import arrow_schema

REJECTED = StructField(
    "_forebay_rejected",
    StructType(
        [
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("kind", StringType()),
            StructField("message", StringType()),
        ]
    ),
)


def schema_with_rejected(schema: StructType) -> StructType:
    """The source's schema and the column; the rest must be nullable, since a rejected row has no values."""
    return StructType([*(StructField(f.name, f.dataType, True) for f in schema.fields), REJECTED])


def with_rejected(batch: SourceBatch, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The good rows with NULL in the column, then the rejected ones with NULL everywhere else."""
    target = arrow_schema(schema)
    kind = target.field(REJECTED.name).type
    if batch.records.num_rows:
        arrays = [*batch.records.columns, pa.nulls(batch.records.num_rows, kind)]
        yield pa.RecordBatch.from_arrays(arrays, schema=target)
    if batch.rejected:
        count = len(batch.rejected)
        rows = pa.array([item.__dict__ for item in batch.rejected], kind)
        empty = [pa.nulls(count, field.type) for field in list(target)[:-1]]
        yield pa.RecordBatch.from_arrays([*empty, rows], schema=target)


def metrics() -> list[Column]:
    """What to observe of a source's rows: how many came, how many of each kind were rejected, one example."""
    column = F.col(REJECTED.name)
    counts = [F.count_if(column["kind"] == str(kind)).alias(str(kind)) for kind in Kind]
    return [F.count(F.lit(1)).alias("records"), *counts, F.max(column).alias("example")]


def split_off(frame: DataFrame, metric: str) -> DataFrame:
    """The good rows. What was rejected is counted under the name `metric` in each batch's progress."""
    return frame.observe(metric, *metrics()).where(F.col(REJECTED.name).isNull()).drop(REJECTED.name)
