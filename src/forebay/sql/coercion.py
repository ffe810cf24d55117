"""As which type Spark, in ANSI mode, takes two values that meet, and how a value becomes one of that type."""

from __future__ import annotations

import pyarrow as pa

from forebay import column_types as types
from forebay.expression import Expression

_ORDER = (types.TINYINT, types.SMALLINT, types.INT, types.BIGINT, types.FLOAT, types.DOUBLE)
_FLOATING = (types.FLOAT, types.DOUBLE)
_DIGITS = {types.TINYINT: 3, types.SMALLINT: 5, types.INT: 10, types.BIGINT: 20}
_MOST_DIGITS = 38
_STAMPS = (types.TIMESTAMP, types.TIMESTAMP_NTZ)


def is_decimal(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.Decimal128Type)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """None where Spark refuses, or where it may lose digits, or where it is not for us to say."""
    if one == other or other == types.NULL:
        return one
    if one == types.NULL:
        return other
    if one in _ORDER and other in _ORDER:
        wider = max(one, other, key=_ORDER.index)
        return types.DOUBLE if wider == types.FLOAT else wider
    if is_decimal(one) or is_decimal(other):
        return _decimal_with(one, other) if is_decimal(one) else _decimal_with(other, one)
    if {one, other} == {types.DATE, types.TIMESTAMP}:
        return types.TIMESTAMP
    return None


def _decimal_with(decimal: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if other in _FLOATING:
        return types.DOUBLE
    if other in _DIGITS:
        other = pa.decimal128(_DIGITS[other], 0)
    if not is_decimal(other):
        return None
    scale = max(decimal.scale, other.scale)
    whole = max(decimal.precision - decimal.scale, other.precision - other.scale)
    return pa.decimal128(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None


def widened(found: Expression, kind: pa.DataType) -> Expression | None:
    """The same as a value of a type that `common_type` gave."""
    if found.type == kind:
        return found
    if found.is_literal:
        return _literal_as(found, kind)
    if is_decimal(found.type) and not is_decimal(kind):
        return None  # Arrow does not round as Java does
    operator = "narrow" if found.type == types.DATE else "cast"
    return Expression(operator, kind, (found,), nullable=found.nullable)


def _literal_as(found: Expression, kind: pa.DataType) -> Expression | None:
    if found.value is None:
        return Expression.literal(None, kind)
    if kind == types.DOUBLE:
        return Expression.literal(float(found.scalar.as_py()), kind)
    if is_decimal(kind):
        digits = kind.scale - (found.type.scale if is_decimal(found.type) else 0)
        return Expression.literal(int(found.value) * 10**digits, kind)
    if kind in types.BITS:
        return Expression.literal(found.value, kind)
    if kind == types.TIMESTAMP and found.type == types.DATE:
        return Expression.literal(int(found.value) * 86_400_000_000, kind)
    return None


def cast(found: Expression, kind: pa.DataType) -> Expression | None:
    """CAST(… AS …), where it is exact here; None else."""
    given = found.type
    if given == kind:
        return found
    if found.is_literal:
        return _cast_literal(found, kind)
    operator = _cast_operator(given, kind)
    return None if operator is None else Expression(operator, kind, (found,), nullable=found.nullable)


def _cast_operator(given: pa.DataType, kind: pa.DataType) -> str | None:
    whole, wanted = given in types.BITS, kind in types.BITS
    if whole and wanted:
        return "cast" if types.BITS[given] < types.BITS[kind] else "narrow"
    if whole and kind == types.FLOAT and types.BITS[given] > 16:
        return None  # Spark forgets a FLOAT between an integer and a DOUBLE, and with it what it rounds
    if whole:
        return "cast" if kind in (*_FLOATING, types.STRING, types.BOOLEAN) else None
    if given == types.BOOLEAN:
        return "cast" if wanted or kind in (*_FLOATING, types.STRING) else None
    if given in _FLOATING:
        return "narrow" if wanted else "cast" if kind in _FLOATING else None
    if given == types.DATE:
        return "narrow" if kind == types.TIMESTAMP else None
    if given in _STAMPS and kind == types.DATE:
        return "cast"
    return "cast" if given == types.TIMESTAMP and kind == types.BIGINT else None


def _cast_literal(found: Expression, kind: pa.DataType) -> Expression | None:
    if found.value is None:
        return Expression.literal(None, kind)
    if found.type in types.BITS and kind in types.BITS:
        limit = 2 ** (types.BITS[kind] - 1)
        return Expression.literal(found.value, kind) if -limit <= int(found.value) < limit else None
    if kind == types.DOUBLE and (found.type in types.BITS or is_decimal(found.type)):
        return _literal_as(found, kind)
    if kind == types.STRING and found.type in types.BITS:
        return Expression.literal(str(found.value), kind)
    return None
