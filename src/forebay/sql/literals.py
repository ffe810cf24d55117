"""Literals of SQL, each of the type that Spark gives it."""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from forebay import column_types as types
from forebay.expression import Expression

_Type = exp.DataType.Type
_WHOLE = re.compile(r"-?\d+")
_FRACTION = re.compile(r"-?(\d+\.\d*|\.\d+)")
_SCIENTIFIC = re.compile(r"-?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
# Only what is written out in full: Spark has ideas of its own about the rest.
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?")
_MOST_DIGITS = 38
_DATE_WORDS = {_Type.DATE: types.DATE, _Type.TIMESTAMPTZ: types.TIMESTAMP}


def literal(node: Any) -> Expression | None:
    """`1`, `-1.5`, `'a'`, `TRUE`, `NULL`, `DATE '…'`, `TIMESTAMP '…'`; None for all else."""
    if isinstance(node, exp.Null):
        return Expression.literal(None, types.NULL)
    if isinstance(node, exp.Boolean):
        return Expression.literal(bool(node.this), types.BOOLEAN)
    # DATE '…' is a Cast, CAST('…' AS DATE) a TryCast.
    if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
        kind = _DATE_WORDS.get(node.to.this) if "call" not in node.meta else None
        return None if kind is None else time_of(str(node.this.this), kind)
    negative = isinstance(node, exp.Neg)
    inner = node.this if negative else node
    if not isinstance(inner, exp.Literal):
        return None
    text = str(inner.this)
    if inner.is_string:
        return None if negative else Expression.literal(text, types.STRING)
    return _number(f"-{text}" if negative else text)


def _number(text: str) -> Expression | None:
    if _WHOLE.fullmatch(text):
        number = int(text)
        for kind in (types.INT, types.BIGINT):
            if -(2 ** (types.BITS[kind] - 1)) <= number < 2 ** (types.BITS[kind] - 1):
                return Expression.literal(number, kind)
        return _decimal(text)
    if _FRACTION.fullmatch(text):
        return _decimal(text)
    return _double(text) if _SCIENTIFIC.fullmatch(text) else None


def _decimal(text: str) -> Expression | None:
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    precision = max(len(digits), -exponent)
    return (
        Expression.literal(number, pa.decimal128(precision, -exponent)) if precision <= _MOST_DIGITS else None
    )


def _double(text: str) -> Expression | None:
    """One that is too small or too large for it is an error in Spark or not: it shall decide."""
    number = float(text)
    is_zero = not re.search("[1-9]", text.lower().partition("e")[0])
    if math.isinf(number) or (number == 0 and not is_zero):
        return None
    return Expression.literal(number, types.DOUBLE)


def time_of(text: str, kind: pa.DataType) -> Expression | None:
    """A text that Spark reads as a time because it is compared with one, or because DATE or TIMESTAMP is before it."""
    day = _DAY.fullmatch(text) is not None
    try:
        if kind == types.DATE and day:
            return Expression.literal(date.fromisoformat(text), kind)
        if kind == types.TIMESTAMP and (day or _MOMENT.fullmatch(text)):
            return Expression.literal(datetime.fromisoformat(text), kind)
    except ValueError:  # the 30th of February
        pass
    return None
