"""Sums, averages and products of DECIMAL, with the types that Spark gives them: only where no digit can be lost.

Spark shortens what would have more than 38 digits, and fails where a value does not fit then; that is left to it.
"""

from __future__ import annotations

import pyarrow as pa

from forebay import column_types as types
from forebay.expression import Expression
from forebay.sql.coercion import is_decimal, widened

_MOST_DIGITS = 38
_DIGITS = {types.TINYINT: 3, types.SMALLINT: 5, types.INT: 10, types.BIGINT: 20}
_ADDED = 10  # digits that Spark has for a sum beyond those of its values
_THROUGH_DOUBLE = 11  # digits up to which Spark averages as DOUBLE, whose text Java rounds


def arithmetic_type(operator: str, one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Of two DECIMALs that are added, subtracted or multiplied."""
    if operator == "*":
        digits, scale = one.precision + other.precision + 1, one.scale + other.scale
    elif operator in ("+", "-"):
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
    else:
        return None
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else None


def as_decimal(found: Expression) -> Expression | None:
    """An integer beside a DECIMAL; a literal has as many digits as it is written with."""
    if is_decimal(found.type):
        return found
    if found.type not in _DIGITS:
        return None
    if found.is_literal:
        digits = 1 if found.value is None else len(str(abs(int(found.value))))
        return Expression.literal(found.value, pa.decimal128(digits, 0)) if found.value is not None else None
    return widened(found, pa.decimal128(_DIGITS[found.type], 0))


def sum_type(kind: pa.DataType) -> pa.DataType | None:
    """Ten digits more: no number of rows that anybody has overflows it."""
    digits = kind.precision + _ADDED
    return pa.decimal128(digits, kind.scale) if digits <= _MOST_DIGITS else None


def average_type(kind: pa.DataType) -> pa.DataType | None:
    if kind.precision <= _THROUGH_DOUBLE or sum_type(kind) is None:
        return None
    return pa.decimal128(kind.precision + 4, kind.scale + 4)
