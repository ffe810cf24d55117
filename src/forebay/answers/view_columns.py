"""The columns of a table or of its groups, as WHERE and HAVING ask of them, and the literals they are compared with."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types
from sqlglot import exp

from forebay.answers.spark_returns import is_scalar
from forebay.column_types import TIMESTAMP
from forebay.condition import Value

_Type = exp.DataType.Type
_WHOLE = re.compile(r"\d+")
_FRACTION = re.compile(r"(\d*)\.(\d*)")
_SCIENTIFIC = re.compile(r"(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
# Only what is written out in full: Spark has ideas of its own about the rest.
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?")
_EXACT_IN_DOUBLE = 2**53
_DIGITS = 38  # of a DECIMAL, at most
_INT_DIGITS, _BIGINT_DIGITS = 10, 20  # of the DECIMAL that Spark makes of an INT and of a BIGINT


class TableColumns:
    """`named` finds the column, and its type, that a node of the query stands for."""

    def __init__(self, named: Callable[[Any], tuple[str, pa.DataType] | None]) -> None:
        self.named = named

    def alike(self, kind: pa.DataType, other: pa.DataType) -> bool:
        return bool(kind == other) and is_scalar(kind)

    def askable(self, kind: pa.DataType) -> bool:
        return True

    def value(self, node: Any, kind: pa.DataType) -> Value | None:
        node = node.unnest()
        if isinstance(node, exp.Boolean):
            return bool(node.this) if types.is_boolean(kind) else None
        if type(node) is exp.Cast and isinstance(node.this, exp.Literal):  # DATE '…', TIMESTAMP '…'
            return _time(str(node.this.this), kind, node.to.this)
        negative = isinstance(node, exp.Neg)
        node = node.this if negative else node
        if not isinstance(node, exp.Literal):
            return None
        text = str(node.this)
        if node.is_string:
            if negative:
                return None
            return text if types.is_string(kind) else _time(text, kind, None)
        return _number(f"-{text}" if negative else text, text, kind)


def _time(text: str, kind: pa.DataType, written_as: Any) -> Value | None:
    """A text that Spark reads as a time because it is compared with one, or because DATE or TIMESTAMP is before it."""
    is_date, is_timestamp = (written_as == each for each in (_Type.DATE, _Type.TIMESTAMPTZ))
    if not (written_as is None or is_date or is_timestamp):
        return None
    day = _DAY.fullmatch(text) is not None
    try:
        if types.is_date32(kind) and day and not is_timestamp:
            return date.fromisoformat(text)
        if kind == TIMESTAMP and (day or (_MOMENT.fullmatch(text) and not is_date)):
            return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:  # the 30th of February
        pass
    return None


def _number(text: str, unsigned: str, kind: pa.DataType) -> Value | None:
    """A number, where Spark compares it with the column without rounding either."""
    fraction = _FRACTION.fullmatch(unsigned)
    whole = _WHOLE.fullmatch(unsigned) is not None
    if types.is_floating(kind):
        if whole:
            return float(text) if abs(int(text)) <= _EXACT_IN_DOUBLE else None
        if fraction and len(unsigned) <= _DIGITS:
            return float(text)
        return _scientific(text, unsigned)
    if types.is_integer(kind):
        limit = 2 ** (kind.bit_width - 1)
        return int(text) if whole and -limit <= int(text) < limit else None
    if not types.is_decimal128(kind) or not (whole or fraction):
        return None
    before, behind = (unsigned, "") if fraction is None else fraction.groups()
    if len(before.lstrip("0")) > kind.precision - kind.scale or len(behind) > kind.scale:
        return None  # Spark compares them as a wider DECIMAL, which may have no room for the column's
    # As which DECIMAL Spark takes a whole number depends on where it stands.
    digits = _INT_DIGITS if abs(Decimal(text)) < 2**31 else _BIGINT_DIGITS
    return Decimal(text) if fraction or digits + kind.scale <= _DIGITS else None


def _scientific(text: str, unsigned: str) -> float | None:
    """A DOUBLE. One that is too small or too large for it is an error in Spark or not: it shall decide."""
    if not _SCIENTIFIC.fullmatch(unsigned) or math.isinf(float(text)):
        return None
    is_zero = not re.search("[1-9]", unsigned.lower().partition("e")[0])
    return float(text) if float(text) or is_zero else None
