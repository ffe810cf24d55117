"""SQL types to Arrow's and back."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
from sqlglot import exp

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.sql.other_dialects import instead_of, type_remedy
from forebay.sql.text import identifier

_Type = exp.DataType.Type

_TIMES = frozenset({_Type.TIMESTAMP, _Type.TIMESTAMPTZ, _Type.TIMESTAMPLTZ, _Type.TIMESTAMPNTZ})

_SIMPLE: dict[Any, pa.DataType] = {
    _Type.BOOLEAN: types.BOOLEAN,
    _Type.TINYINT: types.TINYINT,
    _Type.SMALLINT: types.SMALLINT,
    _Type.INT: types.INT,
    _Type.BIGINT: types.BIGINT,
    _Type.FLOAT: types.FLOAT,
    _Type.DOUBLE: types.DOUBLE,
    _Type.DATE: types.DATE,
    # To sqlglot, Spark's TIMESTAMP is the one with a time zone.
    _Type.TIMESTAMP: types.TIMESTAMP,
    _Type.TIMESTAMPTZ: types.TIMESTAMP,
    _Type.TIMESTAMPLTZ: types.TIMESTAMP,
    _Type.TIMESTAMPNTZ: types.TIMESTAMP_NTZ,
}
# Without a length: nobody would check it.
_UNSIZED: dict[Any, pa.DataType] = {
    _Type.TEXT: types.STRING,
    _Type.VARCHAR: types.STRING,
    _Type.CHAR: types.STRING,
    _Type.BINARY: types.BINARY,
    _Type.VARBINARY: types.BINARY,
}


def arrow_type(node: Any) -> pa.DataType:
    """The type of a parsed one. The error has no position yet: `.at()` gives it one."""
    kind, parameters = node.this, node.expressions
    if kind in _TIMES:
        return _timestamp(node)
    if kind in _SIMPLE:
        if parameters:
            raise _unsupported(f"type {_written(node)} is not supported", type_name(_SIMPLE[kind]))
        return _SIMPLE[kind]
    if kind in _UNSIZED:
        return _without_length(node)
    if kind == _Type.DECIMAL:
        return _decimal(parameters)
    if kind == _Type.ARRAY and len(parameters) == 1:
        return types.array_of(arrow_type(parameters[0]), True)
    if kind == _Type.MAP and len(parameters) == 2:
        return types.map_of(arrow_type(parameters[0]), arrow_type(parameters[1]), True)
    if kind == _Type.STRUCT and parameters:
        return _struct(parameters)
    raise _unsupported(f"type {_written(node)} is not supported", instead_of(_written(node)))


def _written(node: Any) -> str:
    """The type as the user wrote it: sqlglot would print what Spark calls it."""
    written = str(node.meta.get("written") or node.sql(dialect="forebay"))
    return written if re.fullmatch(r"[\w\s(),<>:\[\]]*", written) else written.partition("(")[0]


def _timestamp(node: Any) -> pa.DataType:
    written = _written(node)
    precision = node.expressions[0].this.name if node.expressions else "6"
    if precision not in ("0", "1", "2", "3", "4", "5", "6"):
        message = f"type {written} is not supported: times are kept to the microsecond"
        raise _unsupported(message, "TIMESTAMP(6) or TIMESTAMP")
    # sqlglot reads over WITHOUT TIME ZONE. Any TIMESTAMP has the microseconds that it was written with.
    if "WITHOUT" in re.findall(r"\w+", written.upper()):
        return types.TIMESTAMP_NTZ
    return _SIMPLE[node.this]


def _without_length(node: Any) -> pa.DataType:
    found = _UNSIZED[node.this]
    # sqlglot drops the length of some.
    if "(" in _written(node):
        message = f"type {_written(node)} is not supported: the length of a value is not checked"
        raise _unsupported(message, type_name(found))
    return found


def _decimal(parameters: list[Any]) -> pa.DataType:
    numbers = [parameter.this.name for parameter in parameters]
    if len(numbers) > 2 or not all(number.isdigit() for number in numbers):
        raise _unsupported("DECIMAL takes a precision and a scale")
    precision = int(numbers[0]) if numbers else 10
    scale = int(numbers[1]) if len(numbers) == 2 else 0
    if not 1 <= precision <= 38 or scale > precision:
        raise _unsupported(f"DECIMAL({precision},{scale}) is out of range: precision 1 to 38, scale up to it")
    return pa.decimal128(precision, scale)


def _struct(fields: list[Any]) -> pa.DataType:
    found: list[pa.Field] = []
    for field in fields:
        if not isinstance(field, exp.ColumnDef) or field.args.get("kind") is None:
            raise _unsupported("a field of a STRUCT is written: name: TYPE [NOT NULL]")
        if any(field.name.lower() == other.name.lower() for other in found):
            raise _unsupported(f"field '{field.name}' is there twice")
        constraints = [constraint.kind for constraint in field.args.get("constraints") or ()]
        if not all(isinstance(kind, exp.NotNullColumnConstraint) for kind in constraints):
            raise _unsupported(f"field '{field.name}': the only constraint there is, is NOT NULL")
        nullable = all(kind.args.get("allow_null") for kind in constraints)
        found.append(pa.field(field.name, arrow_type(field.args["kind"]), nullable))
    return pa.struct(found)


def _unsupported(message: str, instead: str = "") -> UnsupportedSqlError:
    return UnsupportedSqlError(message, remedy=type_remedy(instead))


def type_name(data_type: pa.DataType) -> str:
    """The type as SQL writes it: `ARRAY<STRING>`, `STRUCT<a: BIGINT NOT NULL>`."""
    return types.type_name(data_type, identifier)
