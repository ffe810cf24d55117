"""An expression over a row's columns that is worked out without Spark, with Spark's answer.

Made of SQL in `sql/expressions.py`, which has settled every type; worked out on Arrow rows in `source/expressions.py`.
A source does so before Spark sees a row, and a SELECT over a view (`answers/`) in Spark's place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

from forebay import column_types as types

COLUMN, LITERAL = "column", "literal"
_EPOCH = date(1970, 1, 1)
_WIDE = Context(prec=80)  # digits; Python would round to 28
_CHECKED = frozenset({"+", "-", "*", "negate", "abs"})
_DIVIDING = frozenset({"/", "%", "div"})
_SPELT: dict[str, pa.DataType] = {types.type_name(kind).lower(): kind for kind in (
    types.BOOLEAN, *types.BITS, types.FLOAT, types.DOUBLE, types.STRING, types.BINARY, types.DATE, types.TIMESTAMP,
    types.TIMESTAMP_NTZ, types.NULL,
)}  # fmt: skip


@dataclass(frozen=True)
class Expression:
    """A column, a literal, or a call of `operator`; `type` is what comes out.

    `value` is the name of a column, what a literal's JSON has, or what a call is given beside its arguments (the name
    of a struct's field, the part of a date). The operators are the keys of `source.expressions.OPERATORS`.
    """

    operator: str
    type: pa.DataType
    arguments: tuple[Expression, ...] = ()
    value: str | int | bool | None = None
    nullable: bool = field(default=True, kw_only=True)

    @staticmethod
    def column(name: str, kind: pa.DataType, *, nullable: bool = True) -> Expression:
        return Expression(COLUMN, kind, (), name, nullable=nullable)

    @staticmethod
    def literal(value: Any, kind: pa.DataType) -> Expression:
        """A float is kept as its bits, a time as its number: two literals are equal if they are the same value."""
        if isinstance(value, float):
            value = value.hex()
        elif isinstance(value, Decimal):
            value = int(value.scaleb(kind.scale, _WIDE))
        elif isinstance(value, datetime):
            moment = value.replace(tzinfo=None) - datetime(1970, 1, 1)
            value = moment // timedelta(microseconds=1)
        elif isinstance(value, date):
            value = (value - _EPOCH).days
        return Expression(LITERAL, kind, (), value, nullable=value is None)

    @property
    def is_literal(self) -> bool:
        return self.operator == LITERAL

    @cached_property
    def scalar(self) -> pa.Scalar:
        """A literal as Arrow has it."""
        kind, value = self.type, self.value
        if value is None:
            return pa.scalar(None, kind)
        if pa.types.is_floating(kind):
            return pa.scalar(float.fromhex(str(value)), kind)
        if pa.types.is_decimal(kind):
            return pa.scalar(Decimal(int(value)).scaleb(-kind.scale, _WIDE), kind)
        if pa.types.is_temporal(kind):
            number = pa.scalar(value, pa.int32() if kind == types.DATE else pa.int64())
            return number.cast(kind)
        return pa.scalar(value, kind)

    @cached_property
    def may_fail(self) -> bool:
        """Whether Spark raises an error for some values: then it is worked out only for rows for which Spark does."""
        return self._fails or any(argument.may_fail for argument in self.arguments)

    @property
    def _fails(self) -> bool:
        if self.operator in _CHECKED:
            return self.type in types.BITS
        if self.operator in _DIVIDING:
            divisor = self.arguments[1]
            bad = (0, -1) if self.operator == "div" else (0,)
            return not divisor.is_literal or divisor.scalar.as_py() in bad
        return self.operator in ("narrow", "date_trunc", "move", "element")

    def columns(self) -> Iterator[str]:
        if self.operator == COLUMN:
            yield str(self.value)
        for argument in self.arguments:
            yield from argument.columns()

    def to_json(self) -> str:
        return json.dumps(self.as_plain())

    @staticmethod
    def from_json(text: str) -> Expression:
        return Expression.of_plain(json.loads(text))

    def as_plain(self) -> dict[str, Any]:
        """What JSON can hold."""
        plain: dict[str, Any] = {"operator": self.operator, "type": plain_type(self.type)}
        if self.arguments:
            plain["arguments"] = [argument.as_plain() for argument in self.arguments]
        if self.value is not None:
            plain["value"] = self.value
        if not self.nullable:
            plain["nullable"] = False
        return plain

    @staticmethod
    def of_plain(plain: dict[str, Any]) -> Expression:
        return Expression(
            plain["operator"],
            type_of_plain(plain["type"]),
            tuple(map(Expression.of_plain, plain.get("arguments", ()))),
            plain.get("value"),
            nullable=plain.get("nullable", True),
        )

    def __str__(self) -> str:
        """As in SQL, for people."""
        if self.operator == COLUMN:
            return str(self.value)
        if self.is_literal:
            found = self.scalar.as_py() if not pa.types.is_temporal(self.type) else self.scalar
            return "NULL" if self.value is None else repr(found) if isinstance(found, str) else str(found)
        parts = [str(argument) for argument in self.arguments]
        if len(parts) == 2 and not self.operator.replace("_", "").isalpha():
            return f"({parts[0]} {self.operator} {parts[1]})"
        if self.operator in ("cast", "narrow"):
            return f"cast({parts[0]} as {types.type_name(self.type)})"
        given = [] if self.value is None else [repr(self.value)]
        return f"{self.operator}({', '.join([*given, *parts])})"


def plain_type(kind: pa.DataType) -> Any:
    """An Arrow type as JSON can hold it."""
    match kind:
        case pa.Decimal128Type():
            return ["decimal", kind.precision, kind.scale]
        case pa.StructType():
            return ["struct", *(_plain_field(each) for each in kind)]
        case pa.ListType():
            return ["list", _plain_field(kind.value_field)]
        case pa.MapType():
            return ["map", _plain_field(kind.key_field), _plain_field(kind.item_field)]
    return types.type_name(kind).lower()


def type_of_plain(plain: Any) -> pa.DataType:
    match plain:
        case ["decimal", precision, scale]:
            return pa.decimal128(precision, scale)
        case ["struct", *fields]:
            return pa.struct([_field_of_plain(each) for each in fields])
        case ["list", inner]:
            return pa.list_(_field_of_plain(inner))
        case ["map", key, item]:
            return pa.map_(_field_of_plain(key), _field_of_plain(item))
    return _SPELT[plain]


def _plain_field(each: pa.Field) -> list[Any]:
    return [each.name, plain_type(each.type), each.nullable]


def _field_of_plain(plain: list[Any]) -> pa.Field:
    name, kind, nullable = plain
    return pa.field(name, type_of_plain(kind), nullable)
