"""Which part of a WHERE a source can ask of its rows by itself, before they travel to Spark.

Only what means the same to Arrow as to Spark: comparisons of a column with a literal of its own kind, and what
AND, OR, NOT, IN, BETWEEN and IS NULL make of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

from forebay.condition import Condition, Value

_COMPARED = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BITS = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_KINDS = (*_BITS, DoubleType, FloatType, StringType, BooleanType)


class Conditions:
    """Of one SELECT over one source. `own` are the names that it goes by, "" among them."""

    def __init__(self, query: Any, columns: Mapping[str, StructField], own: set[str]) -> None:
        self._columns = columns  # by their names in lower case
        self._own = own
        where = query.args.get("where")
        start, end = query.meta["span"]
        # Spark has its own way with what is behind a backslash in a text.
        self._where = None if where is None or "\\" in query.meta["script"][start:end] else where.this

    def all(self) -> Condition | None:
        """The whole WHERE, or None."""
        return None if self._where is None else self._made(self._where)

    def some(self) -> Condition | None:
        """As much of the WHERE as can be had, of what must all be true."""
        parts = _conjuncts(self._where) if self._where is not None else ()
        found = [made for part in parts if (made := self._made(part)) is not None]
        if not found:
            return None
        return found[0] if len(found) == 1 else Condition("and", parts=tuple(found))

    def _made(self, node: Any) -> Condition | None:
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            parts = [self._made(node.this), self._made(node.expression)]
            known = tuple(part for part in parts if part is not None)
            operator = "and" if isinstance(node, exp.And) else "or"
            return Condition(operator, parts=known) if len(known) == 2 else None
        if isinstance(node, exp.Not):
            inner = self._made(node.this)
            return Condition("not", parts=(inner,)) if inner else None
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            ends = (
                self._compared(node.this, ">=", node.args["low"]),
                self._compared(node.this, "<=", node.args["high"]),
            )
            return Condition("and", parts=(ends[0], ends[1])) if ends[0] and ends[1] else None
        if isinstance(node, exp.In):
            return self._in(node)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            field = self._field(node.this)
            # What it says of event time comes after the watermark, as in Spark.
            return Condition("null", field.name) if field and isinstance(field.dataType, _KINDS) else None
        operator = _COMPARED.get(type(node), "")
        if operator:
            return self._compared(node.this, operator, node.expression) or self._compared(
                node.expression, _TURNED[operator], node.this
            )
        field = self._field(node)  # a BOOLEAN by itself
        return (
            Condition("=", field.name, (True,)) if field and isinstance(field.dataType, BooleanType) else None
        )

    def _in(self, node: Any) -> Condition | None:
        field = self._field(node.this)
        if field is None or node.args.get("query") or node.args.get("unnest") or not node.expressions:
            return None
        values = [_value(literal, field.dataType) for literal in node.expressions]
        known = tuple(value for value in values if value is not None)
        return Condition("in", field.name, known) if len(known) == len(values) else None

    def _compared(self, column: Any, operator: str, literal: Any) -> Condition | None:
        field = self._field(column)
        value = None if field is None else _value(literal, field.dataType)
        return None if field is None or value is None else Condition(operator, field.name, (value,))

    def _field(self, node: Any) -> StructField | None:
        node = node.unnest()
        return self._columns.get(node.name.lower()) if is_column(node, self._own) else None


def is_column(node: Any, own: set[str]) -> bool:
    """Of a source that goes by these names, and not a field of one of its columns."""
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return False
    return node.table.lower() in own and not node.db


def _conjuncts(where: Any) -> Iterator[Any]:
    node = where.unnest()
    if isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def _value(node: Any, kind: DataType) -> Value | None:
    """A literal as a value of the column's kind, where Spark compares them as such."""
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
