"""The columns that an Avro schema is read as where nobody declares any: its own types, nothing lost."""

from __future__ import annotations

import pyarrow as pa

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats.avro_reading import DURATION, MAX_PRECISION, endless
from forebay.formats.avro_schema import Avro

_PLAIN: dict[str, pa.DataType] = {
    "boolean": types.BOOLEAN,
    "int": types.INT,
    "long": types.BIGINT,
    "float": types.FLOAT,
    "double": types.DOUBLE,
    "bytes": types.BINARY,
    "fixed": types.BINARY,
    "string": types.STRING,
    "enum": types.STRING,
}
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): types.DATE,
    ("long", "timestamp-millis"): types.TIMESTAMP,
    ("long", "timestamp-micros"): types.TIMESTAMP,
    ("long", "local-timestamp-millis"): types.TIMESTAMP_NTZ,
    ("long", "local-timestamp-micros"): types.TIMESTAMP_NTZ,
    ("fixed", "uuid"): types.STRING,
    ("fixed", "duration"): pa.struct([pa.field(name, types.BIGINT, False) for name in DURATION]),
}


def avro_columns(record: Avro) -> pa.Schema:
    """UnsupportedSqlError if it is no record, or holds what no one column can be."""
    if record.type != "record":
        raise UnsupportedSqlError(f"the schema is {record}, and only a record has columns")
    return pa.schema(
        [
            _field(field.name, part, field.name)
            for field, part in zip(record.fields, record.parts, strict=True)
        ]
    )


def _field(name: str, kind: Avro, path: str) -> pa.Field:
    column, nullable = _type(kind, path)
    return pa.field(name, column, nullable)


def _type(kind: Avro, path: str) -> tuple[pa.DataType, bool]:
    """The column's type, and whether it may be NULL."""
    if kind.type == "union":
        branches = [part for part in kind.parts if part.type != "null"]
        if len(branches) != 1:
            raise UnsupportedSqlError(
                f"{path} is {kind}, which is no one type",
                remedy="declare the columns, and leave this one out or give it a type that takes each of these",
            )
        return _type(branches[0], path)[0], len(kind.parts) > 1
    match kind.type:
        case "null":
            return types.STRING, True
        case "recursive":
            raise endless(kind, path)
        case "record":
            fields = zip(kind.fields, kind.parts, strict=True)
            return pa.struct([_field(f.name, part, f"{path}.{f.name}") for f, part in fields]), False
        case "array":
            return types.array_of(*_type(kind.parts[0], f"{path}[]")), False
        case "map":
            return types.map_of(types.STRING, *_type(kind.parts[0], f"{path}[]")), False
    if kind.decimal and kind.decimal[0] <= MAX_PRECISION:
        return pa.decimal128(*kind.decimal), False
    return _LOGICAL.get((kind.type, kind.logical or ""), _PLAIN[kind.type]), False
