"""From records to one Arrow batch: what all formats share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from forebay.column_types import type_name
from forebay.errors import UnsupportedSqlError
from forebay.formats.contract import BadRecord, Decoded, RefusalKind
from forebay.formats.refusal import RefusedError, shorten


def readable(schema: pa.Schema) -> pa.Schema:
    """The same columns, if a decoder can fill them: UnsupportedSqlError if there are none, or a STRUCT names a field twice."""
    if not len(schema):
        raise UnsupportedSqlError("a source needs at least one column")
    for field in schema:
        _check_fields(field.type)
    return schema


def _check_fields(kind: pa.DataType) -> None:
    if isinstance(kind, pa.StructType) and len(set(kind.names)) < len(kind.names):
        raise UnsupportedSqlError(
            f"a column of this type cannot be read: {type_name(kind)} names a field twice"
        )
    for place in range(kind.num_fields):
        _check_fields(kind.field(place).type)


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
            bad.append(BadRecord(index, RefusalKind.OTHER, f"{type(error).__name__}: {shorten(str(error))}"))
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
