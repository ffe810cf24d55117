"""The types of columns: SQL's names for what Arrow has. Every room but Spark's own speaks of columns in these.

A source's columns are a `pyarrow.Schema`, a STRUCT's a `pyarrow.StructType`: both are iterated field by field. The
constants can stand in a `match` (`case types.BIGINT`); types with parts are matched by their class (`pa.ListType()`).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

BOOLEAN = pa.bool_()
TINYINT = pa.int8()
SMALLINT = pa.int16()
INT = pa.int32()
BIGINT = pa.int64()
FLOAT = pa.float32()
DOUBLE = pa.float64()
STRING = pa.string()
BINARY = pa.binary()
DATE = pa.date32()
TIMESTAMP = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
NULL = pa.null()
"""What cannot be a column: a field of no one type."""

BITS = {TINYINT: 8, SMALLINT: 16, INT: 32, BIGINT: 64}
"""The integers, and how large they are."""

_NAMES = {
    BOOLEAN: "BOOLEAN",
    TINYINT: "TINYINT",
    SMALLINT: "SMALLINT",
    INT: "INT",
    BIGINT: "BIGINT",
    FLOAT: "FLOAT",
    DOUBLE: "DOUBLE",
    STRING: "STRING",
    BINARY: "BINARY",
    DATE: "DATE",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
    NULL: "VOID",
}


def array_of(element: pa.DataType, nullable: bool = True) -> pa.DataType:
    """An ARRAY, as Spark's data sources want it: the names of its parts count in a comparison."""
    return pa.list_(pa.field("element", element, nullable))


def map_of(key: pa.DataType, value: pa.DataType, nullable: bool = True) -> pa.DataType:
    """A MAP; `nullable` is about its values."""
    return pa.map_(key, pa.field("value", value, nullable))


def is_column_type(kind: pa.DataType) -> bool:
    """Whether a column without parts can be of this type."""
    return (kind in _NAMES and kind != NULL) or isinstance(kind, pa.Decimal128Type)


def type_name(kind: pa.DataType, identifier: Callable[[str], str] = str) -> str:
    """The type as SQL writes it: `ARRAY<STRING>`, `STRUCT<a: BIGINT NOT NULL>`. `identifier` quotes a field's name."""
    match kind:
        case pa.Decimal128Type():
            return f"DECIMAL({kind.precision},{kind.scale})"
        case pa.ListType():
            return f"ARRAY<{type_name(kind.value_type, identifier)}>"
        case pa.MapType():
            return f"MAP<{type_name(kind.key_type, identifier)}, {type_name(kind.item_type, identifier)}>"
        case pa.StructType():
            fields = (
                f"{identifier(field.name)}: {type_name(field.type, identifier)}{'' if field.nullable else ' NOT NULL'}"
                for field in kind
            )
            return f"STRUCT<{', '.join(fields)}>"
    return _NAMES.get(kind) or str(kind).upper()
