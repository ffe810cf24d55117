"""Which column types each Avro type without parts can be read as, and by which conversion.

A logical type is never guessed at: a long that is a timestamp is read as that or as its plain number, and
not as a DOUBLE or, with its milliseconds taken for microseconds, as another time.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats.avro_schema import Avro

AvroPlan = dict[str, Any]
"""A node of the plan, or what a conversion adds to it: see `avro_plan.py`."""

YEARS = "(years 0001 to 9999)"
MAX_PRECISION = 38
DURATION = ["months", "days", "millis"]
"""The fields of a STRUCT that takes a duration, each a BIGINT."""

_LOGICAL = {
    "int": {"date": "DATE, INT or BIGINT", "time-millis": "INT or BIGINT"},
    "long": {
        "time-micros": "BIGINT",
        "timestamp-millis": "TIMESTAMP or BIGINT",
        "timestamp-micros": "TIMESTAMP or BIGINT",
        "timestamp-nanos": "BIGINT",
        "local-timestamp-millis": "TIMESTAMP_NTZ or BIGINT",
        "local-timestamp-micros": "TIMESTAMP_NTZ or BIGINT",
        "local-timestamp-nanos": "BIGINT",
    },
    "fixed": {
        "uuid": "STRING or BINARY",
        "duration": "STRUCT<months: BIGINT, days: BIGINT, millis: BIGINT> or BINARY",
    },
}
_PLAIN = {
    "boolean": "BOOLEAN",
    "int": "INT, BIGINT, FLOAT or DOUBLE",
    "long": "BIGINT, FLOAT, DOUBLE, TIMESTAMP or TIMESTAMP_NTZ (from epoch milliseconds)",
    "float": "FLOAT or DOUBLE",
    "double": "DOUBLE",
    "string": "STRING or BINARY",
    "bytes": "BINARY or STRING",
    "fixed": "BINARY",
    "enum": "STRING",
    "record": "STRUCT<…>",
    "array": "ARRAY<…>",
    "map": "MAP<STRING, …>",
}


def is_known(writer: Avro) -> bool:
    """Whether its logical type is one that changes what its numbers mean."""
    return writer.logical in _LOGICAL.get(writer.type, ())


def reading(writer: Avro, column: pa.DataType) -> AvroPlan | None:
    """The conversion's part of a plan's node; None if there is none."""
    known = is_known(writer)
    match writer.type, column:
        case ("boolean", types.BOOLEAN):
            return {"as": "boolean"}
        case ("int" | "long", types.INT | types.BIGINT) if known:
            # The number as it is; a timestamp never fits an INT, so that is refused here and not per record.
            return _integer(column) if writer.type == "int" or column == types.BIGINT else None
        case ("int" | "long", types.TINYINT | types.SMALLINT | types.INT | types.BIGINT) if not known:
            return _integer(column)
        case ("int" | "long" | "float", types.FLOAT) | ("int" | "long" | "float" | "double", types.DOUBLE):
            return None if known else {"as": types.type_name(column).lower()}
        case ("int", types.DATE) if writer.logical == "date":
            return {"as": "date", "expected": f"DATE {YEARS}"}
        case ("long", types.TIMESTAMP):
            return _timestamp("TIMESTAMP", "timestamp", writer.logical)
        case ("long", types.TIMESTAMP_NTZ):
            return _timestamp("TIMESTAMP_NTZ", "local-timestamp", writer.logical)
        case ("bytes" | "fixed", pa.Decimal128Type()):
            return _decimal(writer, column)
        case ("fixed", types.STRING) if writer.logical == "uuid" and writer.size == 16:
            return {"as": "uuid"}
        case ("fixed", pa.StructType()) if writer.logical == "duration" and writer.size == 12:
            return {"as": "duration"} if _takes_duration(column) else None
        case ("string" | "enum", types.STRING):
            return {"as": "string"}
        case ("bytes", types.STRING) if not writer.decimal:
            return {"as": "string", "expected": "STRING (UTF-8)"}
        case ("string" | "bytes" | "fixed", types.BINARY):
            return {"as": "binary"}
    return None


def remedy(writer: Avro) -> str:
    """What the column could be declared as."""
    taken = _PLAIN[writer.type]
    if writer.decimal and writer.decimal[0] <= MAX_PRECISION:
        taken = f"DECIMAL({writer.decimal[0]},{writer.decimal[1]}) or BINARY"
    elif writer.decimal:
        taken = "BINARY"
    return "declare it as " + _LOGICAL.get(writer.type, {}).get(writer.logical or "", taken)


def endless(writer: Avro, path: str) -> UnsupportedSqlError:
    """A column that a record which contains itself would have to fill."""
    return UnsupportedSqlError(
        f"column {path}: the record {writer.name} contains itself, and a column's type has an end",
        remedy="declare the columns without it: it is read over then; or take the records as they are with FORMAT RAW",
    )


def _takes_duration(column: pa.StructType) -> bool:
    return column.names == DURATION and all(field.type == types.BIGINT for field in column)


def _integer(column: pa.DataType) -> AvroPlan:
    bits = types.BITS[column]
    end = 2 ** (bits - 1)
    name = types.type_name(column)
    return {"as": "integer", "bits": bits, "expected": f"{name} (an integer from {-end} to {end - 1})"}


def _timestamp(name: str, logical: str, found: str | None) -> AvroPlan | None:
    """A plain long is epoch milliseconds, as in JSON; a logical type that we do not know is not plain."""
    if found in (None, f"{logical}-millis"):
        return {"as": "millis", "expected": f"{name} {YEARS}"}
    if found == f"{logical}-micros":
        return {"as": "micros", "expected": f"{name} {YEARS}"}
    return None


def _decimal(writer: Avro, column: pa.Decimal128Type) -> AvroPlan | None:
    if not writer.decimal or writer.decimal[0] > MAX_PRECISION:
        return None
    return {
        "as": "decimal",
        "precision": column.precision,
        "scale": column.scale,
        "written": writer.decimal[1],
        "expected": f"{types.type_name(column)} (exact, no rounding)",
    }
