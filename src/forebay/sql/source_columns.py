"""The columns of a source, as a condition asks of them before Spark does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from forebay import column_types as types
from forebay.condition import Value
from forebay.sql.conditions import is_column

_KINDS = (*types.BITS, types.DOUBLE, types.FLOAT, types.STRING, types.BOOLEAN)


class SourceColumns:
    """`columns` are by their names in lower case, `own` the names that the source goes by, "" among them."""

    def __init__(self, columns: Mapping[str, pa.Field], own: set[str]) -> None:
        self._columns = columns
        self._own = own

    def named(self, node: Any) -> tuple[str, pa.DataType] | None:
        field = self._columns.get(node.name.lower()) if is_column(node, self._own) else None
        return None if field is None else (field.name, field.type)

    def alike(self, kind: pa.DataType, other: pa.DataType) -> bool:
        return False  # what it compares travels with the task: one column a comparison is enough

    def askable(self, kind: pa.DataType) -> bool:
        return kind in _KINDS  # what it says of event time comes after the watermark, as in Spark

    def value(self, node: Any, kind: pa.DataType) -> Value | None:
        node = node.unnest()
        sign = -1 if isinstance(node, exp.Neg) else 1
        node = node.this if sign < 0 else node
        if isinstance(node, exp.Boolean):
            return bool(node.this) if kind == types.BOOLEAN and sign > 0 else None
        if not isinstance(node, exp.Literal):
            return None
        text = str(node.this)
        if node.is_string:
            return text if kind == types.STRING and sign > 0 else None
        try:
            if kind == types.FLOAT and not -(2**24) < float(text) < 2**24:
                return None  # Spark may compare these as FLOAT, which has no more whole numbers than that
            if kind in (types.DOUBLE, types.FLOAT):
                return sign * float(text)
            number = sign * int(text)
        except ValueError:
            return None
        bits = types.BITS.get(kind, 0)
        return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) and bits else None
