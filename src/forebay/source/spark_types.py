"""Columns as Spark has them, and back: the one place where Arrow's types become Spark's."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from forebay.errors import UnsupportedSqlError


def to_spark(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def from_spark(schema: StructType) -> pa.Schema:
    """Exactly what Spark's worker compares a data source's batches with, nullability included.

    It asks for `to_arrow_schema(schema, timezone="UTC")`, whatever the session's time zone and whatever
    `spark.sql.execution.arrow.useLargeVarTypes`; so do we. UnsupportedSqlError where Arrow has no such type.
    """
    try:
        return to_arrow_schema(schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    except PySparkException as error:
        raise UnsupportedSqlError(f"a column of this type cannot be read: {error}") from error


def type_from_spark(kind: DataType) -> pa.DataType:
    return from_spark(StructType([StructField("column", kind)])).field(0).type
