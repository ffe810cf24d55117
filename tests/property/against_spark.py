"""Rows in a file that Spark reads as the table `t`, and what it answers, to be compared value for value."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from bits import rows_in_bits
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

# Of Spark's kinds of errors those that a value may cause; any other is a fault of the query's.
_OF_VALUES = frozenset(
    {
        "DIVIDE_BY_ZERO",
        "REMAINDER_BY_ZERO",
        "ARITHMETIC_OVERFLOW",
        "BINARY_ARITHMETIC_OVERFLOW",
        "CAST_OVERFLOW",
        "INVALID_ARRAY_INDEX",
    }
)


def write_table(spark: SparkSession, folder: Path, batch: pa.RecordBatch) -> None:
    """A file, so that Spark does not work expressions out while it plans."""
    path = folder / "rows.parquet"
    pq.write_table(pa.Table.from_batches([batch]), path)
    spark.read.parquet(str(path)).createOrReplaceTempView("t")


def answer(spark: SparkSession, query: str) -> pa.Table | None:
    """None where a value of the rows is the cause of an error."""
    try:
        return spark.sql(query).toArrow()
    except PySparkException as error:
        if (error.getCondition() or "").partition(".")[0] not in _OF_VALUES:
            raise AssertionError(f"{query}: {error}") from error
        return None


def values(column: Any) -> list[Any]:
    """Bit for bit, but for which NaN it is."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    found = [row[0] for row in rows_in_bits(pa.RecordBatch.from_arrays([column], ["c"]))]
    if not pa.types.is_floating(column.type):
        return found
    return [
        "NaN" if value is not None and math.isnan(value) else each
        for each, value in zip(found, column.to_pylist(), strict=True)
    ]
