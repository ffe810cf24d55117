"""The columns of a source, as a condition asks of them before Spark does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
)
from sqlglot import exp

from forebay.condition import Value
from forebay.sql.conditions import is_column

_BITS = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_KINDS = (*_BITS, DoubleType, FloatType, StringType, BooleanType)


class SourceColumns:
    """`columns` are by their names in lower case, `own` the names that the source goes by, "" among them."""

    def __init__(self, columns: Mapping[str, StructField], own: set[str]) -> None:
        self._columns = columns
        self._own = own

    def named(self, node: Any) -> tuple[str, DataType] | None:
        field = self._columns.get(node.name.lower()) if is_column(node, self._own) else None
        return None if field is None else (field.name, field.dataType)

    def alike(self, kind: DataType, other: DataType) -> bool:
        return False  # what it compares travels with the task: one column a comparison is enough

    def askable(self, kind: DataType) -> bool:
        return isinstance(kind, _KINDS)  # what it says of event time comes after the watermark, as in Spark

    def value(self, node: Any, kind: DataType) -> Value | None:
        node = node.unnest()
        sign = -1 if isinstance(node, exp.Neg) else 1
        node = node.this if sign < 0 else node
        if isinstance(node, exp.Boolean):
            return bool(node.this) if isinstance(kind, BooleanType) and sign > 0 else None
        if not isinstance(node, exp.Literal):
            return None
        text = str(node.this)
        if node.is_string:
            return text if isinstance(kind, StringType) and sign > 0 else None
        try:
            if isinstance(kind, FloatType) and not -(2**24) < float(text) < 2**24:
                return None  # Spark may compare these as FLOAT, which has no more whole numbers than that
            if isinstance(kind, DoubleType | FloatType):
                return sign * float(text)
            number = sign * int(text)
        except ValueError:
            return None
        bits = _BITS.get(type(kind), 0)
        return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) and bits else None
