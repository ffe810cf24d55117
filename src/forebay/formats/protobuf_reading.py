"""Which column types each Protobuf type without parts can be read as, and by which conversion.

On the wire an int32 may hold 64 bits and an enum a number that has no name; protobuf's own readers cut
those to size. Here they are read whole (`wire`) and refused if they are not of their type. A bool may be any
number, and all but 0 are true, as in protobuf's own readers.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from forebay import column_types as types

F = FieldDescriptor
YEARS = "(years 0001 to 9999)"

TYPES = {
    F.TYPE_BOOL: "bool", F.TYPE_ENUM: "enum", F.TYPE_STRING: "string", F.TYPE_BYTES: "bytes",
    F.TYPE_FLOAT: "float", F.TYPE_DOUBLE: "double", F.TYPE_MESSAGE: "message", F.TYPE_GROUP: "group",
    F.TYPE_INT32: "int32", F.TYPE_SINT32: "sint32", F.TYPE_SFIXED32: "sfixed32",
    F.TYPE_INT64: "int64", F.TYPE_SINT64: "sint64", F.TYPE_SFIXED64: "sfixed64",
    F.TYPE_UINT32: "uint32", F.TYPE_FIXED32: "fixed32", F.TYPE_UINT64: "uint64", F.TYPE_FIXED64: "fixed64",
}  # fmt: skip
_WIRES = {
    "bool": "uint64",
    "enum": "int64",
    "int32": "int64",
    "sint32": "sint64",
    "uint32": "uint64",
    "string": "bytes",
}
_UNSIGNED = ("uint32", "fixed32", "uint64", "fixed64")
_SIGNED = ("int32", "sint32", "sfixed32", "int64", "sint64", "sfixed64")
_INTEGERS = (*_SIGNED, *_UNSIGNED)
_COLUMNS = {
    "bool": "BOOLEAN",
    "enum": "STRING (the names) or INT (the numbers)",
    "string": "STRING or BINARY",
    "bytes": "BINARY or STRING",
    "float": "FLOAT or DOUBLE",
    "double": "DOUBLE",
    **{name: "INT or BIGINT, FLOAT, DOUBLE or DECIMAL(10,0)" for name in _INTEGERS if name.endswith("32")},
    **{name: "BIGINT, DECIMAL(20,0), FLOAT, DOUBLE or TIMESTAMP (from epoch milliseconds)" for name in _INTEGERS if name.endswith("64")},
}  # fmt: skip
_WHOLE = {False: (-(2**63), 2**63 - 1), True: (0, 2**64 - 1)}
_LIMITS = {"enum": (-(2**31), 2**31 - 1)}
_LIMITS |= dict.fromkeys(("int32", "sint32", "sfixed32"), (-(2**31), 2**31 - 1))
_LIMITS |= dict.fromkeys(("uint32", "fixed32"), (0, 2**32 - 1))


def wire(field: FieldDescriptor) -> str:
    """The type that the bytes are read as: one that keeps all that they say."""
    name = TYPES[field.type]
    return _WIRES.get(name, name)


def reading(field: FieldDescriptor, column: pa.DataType) -> dict[str, Any] | None:
    """The conversion's part of a plan's node; None if there is none."""
    kind = TYPES[field.type]
    match kind, column:
        case ("bool", types.BOOLEAN):
            return {"as": "boolean"}
        case ("enum", types.STRING):
            return _names(field.enum_type)
        case ("enum", types.INT | types.BIGINT):
            return {"as": "integer"} | _within(kind, column)
        case (_, types.TINYINT | types.SMALLINT | types.INT | types.BIGINT) if kind in _INTEGERS:
            return {"as": "integer"} | _within(kind, column)
        case (_, types.FLOAT) if kind in _INTEGERS:
            return {"as": "real", "bits": 32} | _within(kind, None)
        case (_, types.DOUBLE) if kind in _INTEGERS:
            return {"as": "real"} | _within(kind, None)
        case (_, pa.Decimal128Type()) if kind in _INTEGERS:
            return {"as": "decimal", "precision": column.precision, "scale": column.scale} | _decimal(
                kind, column
            )
        case (_, types.TIMESTAMP) if kind in _INTEGERS and kind.endswith("64"):
            return {"as": "millis", "expected": f"TIMESTAMP {YEARS}"}
        case (_, types.TIMESTAMP_NTZ) if kind in _INTEGERS and kind.endswith("64"):
            return {"as": "millis", "expected": f"TIMESTAMP_NTZ {YEARS}"}
        case ("float", types.FLOAT | types.DOUBLE) | ("double", types.DOUBLE):
            return {"as": "float"}
        case ("string", types.STRING):
            return {"as": "string", "utf8": "malformed"}
        case ("string", types.BINARY):
            return {"as": "binary", "utf8": "malformed"}
        case ("bytes", types.STRING):
            return {"as": "string", "utf8": "unfit", "expected": "STRING (UTF-8)"}
        case ("bytes", types.BINARY):
            return {"as": "binary"}
    return None


def columns_for(field: FieldDescriptor) -> str:
    """What a column of this type could be declared as."""
    return _COLUMNS[TYPES[field.type]]


def _within(kind: str, column: pa.DataType | None) -> dict[str, Any]:
    """The numbers that are both of the field's type and of the column's; nothing if that is all of them."""
    limits = {}
    low, high = _LIMITS.get(kind, _WHOLE[kind in _UNSIGNED])
    if kind in _LIMITS:
        limits = {"low": low, "high": high, "expected": f"{kind} (an integer from {low} to {high})"}
    end = 2 ** (types.BITS[column] - 1) if column is not None else 2**64
    if end - 1 < high:
        name = types.type_name(column) if column is not None else ""
        expected = f"{name} (an integer from {-end} to {end - 1})"
        limits = {"low": max(low, -end), "high": end - 1, "expected": expected}
    return limits


def _decimal(kind: str, column: pa.Decimal128Type) -> dict[str, Any]:
    """The field's own limits, and the digits that the column has left of its point."""
    limits = _within(kind, None)
    most = 10 ** (column.precision - column.scale) - 1
    if most < limits.get("high", 2**64 - 1):
        expected = f"{types.type_name(column)} (exact, no rounding)"
        limits = {"low": max(limits.get("low", -most), -most), "high": most, "expected": expected}
    return limits


def _names(enum: EnumDescriptor) -> dict[str, Any]:
    """The first name of each number, where a number has several."""
    names: dict[str, str] = {}
    for value in enum.values:
        names.setdefault(str(value.number), value.name)
    return {"as": "enum", "names": names, "expected": f"STRING (a name of the enum {enum.full_name})"}
