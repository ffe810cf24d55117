"""Calls of functions on values whose types are settled: as Spark takes them, or None where its answer is not certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from forebay import column_types as types
from forebay.expression import Expression
from forebay.sql.coercion import common_type, widened
from forebay.sql.intervals import IntervalError, interval_ms

_STAMPS = (types.TIMESTAMP, types.TIMESTAMP_NTZ)
_UNITS = frozenset({"day", "hour", "minute", "second"})
_LONGEST_MS = 10**12  # some thirty years: far from what Spark refuses to read


def call(operator: str, kind: pa.DataType, *given: Expression | None, value: Any = None) -> Expression | None:
    """A call that is NULL where one of its arguments is."""
    known = [each for each in given if each is not None]
    if len(known) < len(given):
        return None
    if any(each.is_literal and each.value is None for each in known):
        return Expression.literal(None, kind)
    if all(each.is_literal for each in known):
        return None  # Spark works it out before it has rows, and fails there, too
    return Expression(operator, kind, tuple(known), value, nullable=any(each.nullable for each in known))


def of_one_type(values: Sequence[Expression]) -> list[Expression] | None:
    """All as the type that Spark takes them as."""
    kind: pa.DataType | None = types.NULL
    for each in values:
        kind = None if kind is None else common_type(kind, each.type)
    if kind is None or kind == types.NULL or pa.types.is_nested(kind):
        return None
    made = [found for each in values if (found := widened(each, kind)) is not None]
    return made if len(made) == len(values) else None


def extreme(operator: str, given: Sequence[Expression | None]) -> Expression | None:
    """greatest or least: of the values that are not NULL."""
    known = [each for each in given if each is not None]
    made = of_one_type(known) if len(known) == len(given) > 1 else None
    if made is None or all(each.is_literal for each in made):
        return None
    return Expression(operator, made[0].type, tuple(made), nullable=all(each.nullable for each in made))


def moved(time: Expression | None, interval: Any, sign: int) -> Expression | None:
    """A time, and an INTERVAL of days, hours, minutes or seconds in whole numbers."""
    if time is None or time.type not in _STAMPS or not isinstance(interval, exp.Interval):
        return None
    unit = interval.args.get("unit")
    amount = interval.this.name if isinstance(interval.this, exp.Literal) else ""
    if not isinstance(unit, exp.Var) or unit.name.lower().removesuffix("s") not in _UNITS:
        return None
    if not amount.removeprefix("-").isdecimal() or not amount.isascii():
        return None
    try:
        length_ms = interval_ms(interval)
    except IntervalError:
        return None
    if abs(length_ms) > _LONGEST_MS:
        return None
    return call("move", time.type, time, value=sign * length_ms * 1000)


def rounded(operator: str, found: Expression | None) -> Expression | None:
    """floor or ceil, of what Spark takes as a DOUBLE."""
    if found is None or found.type not in (types.FLOAT, types.DOUBLE):
        return None
    return call(operator, types.BIGINT, widened(found, types.DOUBLE))


def size(found: Expression | None) -> Expression | None:
    if found is None or not isinstance(found.type, pa.ListType):
        return None
    return call("size", types.INT, found)


def element(found: Expression | None, index: Expression | None) -> Expression | None:
    """`array[index]`, counted from 0."""
    if found is None or index is None or not isinstance(found.type, pa.ListType):
        return None
    if not index.is_literal or index.type != types.INT or index.value is None or int(index.value) < 0:
        return None
    return Expression("element", found.type.value_type, (found,), index.value)
