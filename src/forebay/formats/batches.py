"""From records to one Arrow batch: what all formats share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from forebay.errors import UnsupportedSqlError
from forebay.formats.contract import BadRecord, Decoded, Kind
from forebay.formats.refusal import RefusedError, shorten


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that Spark compares a Python data source's first batch with, nullability included.

    Spark's worker asks for `to_arrow_schema(schema, timezone="UTC")`, whatever the session's time zone
    and whatever `spark.sql.execution.arrow.useLargeVarTypes`; so do we.
    """
    if not len(schema):
        raise UnsupportedSqlError("a source needs at least one column")
    try:
        return to_arrow_schema(schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    except PySparkException as error:
        raise UnsupportedSqlError(f"a column of this type cannot be read: {error}") from error


def decode_each(
    values: Sequence[bytes | None],
    schema: pa.Schema,
    row: Callable[[bytes | None], Sequence[Any] | None],
    mismatched: Callable[[], bool] = lambda: False,
) -> Decoded:
    """Call `row` for each payload; it returns one value a column, None to skip, or raises `RefusedError`.

    A row is complete before it is kept, so a record that fails in its last column leaves nothing behind.
    `mismatched` says whether the row that was just made has a case mismatch.
    """

    def rows(payload: bytes | None) -> Sequence[Sequence[Any]]:
        found = row(payload)
        return () if found is None else (found,)

    return decode_all(values, schema, rows, mismatched)


def decode_all(
    values: Sequence[bytes | None],
    schema: pa.Schema,
    rows_of: Callable[[bytes | None], Sequence[Sequence[Any]]],
    mismatched: Callable[[], bool] = lambda: False,
) -> Decoded:
    """The same, where a payload may be any number of rows; one that is none is skipped."""
    rows: list[Sequence[Any]] = []
    good: list[int] = []
    bad: list[BadRecord] = []
    skipped: list[int] = []
    case_mismatches: list[int] = []
    for index, payload in enumerate(values):
        try:
            found = rows_of(payload)
        except RefusedError as refused:
            bad.append(BadRecord(index, refused.kind, refused.message, refused.path.removeprefix(".")))
        except Exception as error:
            # Nothing is known to end here. If something does, it costs this record and not the query.
            bad.append(BadRecord(index, Kind.Other, f"{type(error).__name__}: {shorten(str(error))}"))
        else:
            rows += found
            good += [index] * len(found)
            if not found:
                skipped.append(index)
            elif mismatched():
                case_mismatches.append(index)
    plain = not bad and not skipped and len(rows) == len(values)
    return Decoded(_batch(schema, rows), None if plain else good, bad, skipped, case_mismatches)


def _batch(schema: pa.Schema, rows: list[Sequence[Any]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    # pa.array() coerces and does not look at nullability: every value was checked before it came here.
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
