"""The operators that look at all of their arguments: each takes the expression and its arguments' values.

An argument is an array, or a scalar that stands for all rows. An ArrowInvalid is an error of the row's, as in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay import column_types as types
from forebay.expression import Expression
from forebay.source import calendar_parts, decimals

_ASKED = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_OVERFLOW, _ZERO = "overflow", "divide by zero"


def kind_of(error: pa.ArrowInvalid) -> str:
    """Spark's kind of error, in words."""
    if "out of bounds" in str(error):
        return "an index that the array does not have"
    return "division by zero" if _ZERO in str(error) else "overflow"


def compare(operator: str, one: Any, other: Any) -> Any:
    answer = _ASKED[operator](one, other)
    if not pa.types.is_floating(one.type):
        return answer
    nan, nan_too = pc.is_nan(one), pc.is_nan(other)
    if not (_any(nan) or _any(nan_too)):
        return answer
    # To Arrow nothing is true of NaN but that it is not equal.
    ordered = {
        "=": pc.and_(nan, nan_too),
        "<>": pc.xor(nan, nan_too),
        "<": pc.and_not(nan_too, nan),
        "<=": pc.or_(nan_too, pc.and_(nan, nan_too)),
        ">": pc.and_not(nan, nan_too),
        ">=": pc.or_(nan, pc.and_(nan, nan_too)),
    }[operator]
    return pc.if_else(pc.or_(nan, nan_too), ordered, answer)


def _compared(expression: Expression, one: Any, other: Any) -> Any:
    return compare(expression.operator, one, other)


def _same(expression: Expression, one: Any, other: Any) -> Any:
    """Equal, where NULL is equal to NULL."""
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(both_null, pc.fill_null(compare("=", one, other), False))


def _in(expression: Expression, value: Any, *listed: Any) -> Any:
    known = [each for each in listed if each.is_valid]
    if pa.types.is_floating(value.type):
        # is_in tells -0.0 from 0.0
        found = reduce(
            pc.or_, [compare("=", value, each) for each in known], pc.and_not(pc.is_valid(value), True)
        )
    else:
        found = pc.is_in(value, pa.array([each.as_py() for each in known], value.type))
    if len(known) < len(listed):
        found = pc.if_else(found, True, pa.scalar(None, pa.bool_()))
    # Of what is unknown it is unknown whether it is one of them.
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


def _any(found: Any) -> bool:
    if isinstance(found, pa.Scalar):
        return bool(found.as_py())
    return bool(pc.any(found).as_py())


def _arithmetic(name: str, expression: Expression, *values: Any) -> Any:
    checked = expression.type in types.BITS
    return getattr(pc, f"{name}_checked" if checked else name)(*values)


def _divide(expression: Expression, one: Any, other: Any) -> Any:
    if _any(pc.and_(pc.equal(other, 0.0), pc.is_valid(one))):
        raise pa.ArrowInvalid(_ZERO)
    return pc.divide(one, other)


def _try_divide(expression: Expression, one: Any, other: Any) -> Any:
    return pc.divide(one, pc.if_else(pc.equal(other, 0.0), pa.scalar(None, types.DOUBLE), other))


def _remainder(expression: Expression, one: Any, other: Any) -> Any:
    """Of the dividend's sign, as in Java and C."""
    zero = pa.scalar(0, expression.type)
    if _any(pc.and_(pc.equal(other, zero), pc.is_valid(one))):
        raise pa.ArrowInvalid(_ZERO)
    missing = pc.or_(pc.is_null(one), pc.is_null(other))
    divisor = _numbers(other, 1)
    if expression.type in types.BITS:
        divisor = np.where(divisor == -1, 1, divisor)  # the smallest number has no counterpart
    # What is 0 here is beside NULL, and left out below.
    divisor = np.where(divisor == 0, 1, divisor).astype(expression.type.to_pandas_dtype())
    with np.errstate(invalid="ignore"):
        return _masked(np.fmod(_numbers(one, 0), divisor), expression.type, missing)


def _numbers(value: Any, null: int) -> Any:
    if isinstance(value, pa.Scalar):
        return np.array(value.as_py() if value.is_valid else null, value.type.to_pandas_dtype())
    filled = pc.fill_null(value, null) if value.null_count else value
    return filled.to_numpy(zero_copy_only=False)


def _masked(values: Any, kind: pa.DataType, missing: Any) -> Any:
    if isinstance(missing, pa.Scalar):
        if values.ndim == 0:
            return pa.scalar(None if missing.as_py() else values.item(), kind)
        return pa.array(values, kind) if not missing.as_py() else pa.nulls(len(values), kind)
    return pa.array(values, kind, mask=missing.to_numpy(zero_copy_only=False) if _any(missing) else None)


def _cast(expression: Expression, value: Any) -> Any:
    """Between types where every value has a counterpart."""
    wanted, given = expression.type, value.type
    if wanted == types.STRING and given == types.BOOLEAN:
        return pc.if_else(value, "true", "false")
    if wanted == types.BOOLEAN:
        return pc.not_equal(value, pa.scalar(0, given))
    if wanted == types.DATE:
        return calendar_parts.days(value)
    if pa.types.is_timestamp(given) and wanted == types.BIGINT:
        return calendar_parts.seconds(value)
    return value.cast(wanted, safe=False)


def _narrow(expression: Expression, value: Any) -> Any:
    """Between types where some values have none."""
    wanted, given = expression.type, value.type
    if given == types.DATE:
        days = value.cast(pa.int32()).cast(pa.int64())
        return pc.multiply_checked(days, pa.scalar(calendar_parts.DAY_US)).cast(wanted)
    if not pa.types.is_floating(given):
        return value.cast(wanted)
    bits = types.BITS[wanted]
    low, high = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1)
    number = value.cast(types.DOUBLE)
    whole = pc.trunc(number)
    # Java takes the first number above all BIGINTs for the largest of them.
    fits = pc.and_(pc.greater_equal(whole, low), (pc.less_equal if bits == 64 else pc.less)(whole, high))
    if _any(pc.invert(fits)):
        raise pa.ArrowInvalid(_OVERFLOW)
    if bits == 64:
        top = pc.equal(whole, high)
        return pc.if_else(top, pa.scalar(2**63 - 1), pc.if_else(top, 0.0, whole).cast(wanted))
    return whole.cast(wanted)


def _field(expression: Expression, value: Any) -> Any:
    return pc.struct_field(value, value.type.get_field_index(expression.value))


def _length(expression: Expression, value: Any) -> Any:
    return pc.utf8_length(value) if value.type == types.STRING else pc.binary_length(value)


def _substring(expression: Expression, value: Any, start: Any, length: Any) -> Any:
    """`start` counts from 1, and from the end if negative; where it is before the text, `length` counts from there."""
    first, count = start.as_py(), length.as_py()
    first = first - 1 if first > 0 else first
    if count <= 0:
        return pc.utf8_slice_codeunits(value, 0, 0)
    last = first + count
    if first < 0 and last >= 0:
        return pc.utf8_slice_codeunits(value, first)
    return pc.utf8_slice_codeunits(value, first, min(last, 2**31 - 1))


def _like(expression: Expression, value: Any, pattern: Any) -> Any:
    wanted = pattern.as_py()
    inner = wanted.strip("%")
    if "%" in inner or "_" in inner or not inner:
        return pc.match_substring_regex(value, _regex(wanted))
    if wanted == inner:
        return pc.equal(value, inner)
    if wanted == f"{inner}%":
        return pc.starts_with(value, inner)
    return pc.ends_with(value, inner) if not wanted.endswith("%") else pc.match_substring(value, inner)


@cache
def _regex(pattern: str) -> str:
    marks = {"%": ".*", "_": "."}
    return r"(?s)\A" + "".join(marks.get(each) or re.escape(each) for each in pattern) + r"\z"


def _literal_text(function: Callable[..., Any], expression: Expression, value: Any, pattern: Any) -> Any:
    return function(value, pattern.as_py())


def _concat(expression: Expression, *values: Any) -> Any:
    return pc.binary_join_element_wise(*values, "", null_handling="emit_null")


def _not_a_number(expression: Expression, value: Any) -> Any:
    return pc.fill_null(pc.is_nan(value), False)


def _one_zero(expression: Expression, value: Any) -> Any:
    """As a key of a group: -0.0 is 0.0, and one NaN is another."""
    nan = pa.scalar(float("nan"), value.type)
    return pc.if_else(pc.is_nan(value), nan, pc.add(value, pa.scalar(0.0, value.type)))


def _extreme(expression: Expression, *values: Any) -> Any:
    """Of several that are equal the first, as -0.0 and 0.0 are."""
    found = values[0]
    beyond = ">" if expression.operator == "greatest" else "<"
    for value in values[1:]:
        better = pc.fill_null(compare(beyond, value, found), False)
        found = pc.if_else(pc.or_(better, pc.is_null(found)), value, found)
    return found


def _whole(name: str, expression: Expression, value: Any) -> Any:
    """As Java makes a whole number of a DOUBLE: NaN is 0, and what is beyond all BIGINTs is the last of them."""
    high = 2.0**63
    number = pc.if_else(pc.is_nan(value), 0.0, getattr(pc, name)(value))
    top, bottom = pc.greater_equal(number, high), pc.less(number, -high)
    within = pc.if_else(pc.or_(top, bottom), 0.0, number).cast(types.BIGINT)
    return pc.if_else(top, pa.scalar(2**63 - 1), pc.if_else(bottom, pa.scalar(-(2**63)), within))


def _decimal_average(expression: Expression, total: Any, count: Any) -> Any:
    return decimals.averages(total, count, expression.type)


OPERATORS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_ASKED, _compared),
    "<=>": _same,
    "in": _in,
    "not": lambda _, value: pc.invert(value),
    "is_null": lambda _, value: pc.is_null(value),
    "+": partial(_arithmetic, "add"),
    "-": partial(_arithmetic, "subtract"),
    "*": partial(_arithmetic, "multiply"),
    "negate": partial(_arithmetic, "negate"),
    "abs": partial(_arithmetic, "abs"),
    "/": _divide,
    "try_divide": _try_divide,
    "%": _remainder,
    "div": lambda _, one, other: pc.divide_checked(one, other),
    "cast": _cast,
    "narrow": _narrow,
    "decimal_average": _decimal_average,
    "field": _field,
    "greatest": _extreme,
    "least": _extreme,
    "floor": partial(_whole, "floor"),
    "ceil": partial(_whole, "ceil"),
    "size": lambda _, value: pc.list_value_length(value),
    "element": lambda expression, value: pc.list_element(value, expression.value),
    "move": lambda expression, value: calendar_parts.shifted(expression.value, value),
    "one_zero": _one_zero,
    "is_nan": _not_a_number,
    "length": _length,
    "concat": _concat,
    "substring": _substring,
    "trim": lambda _, value: pc.utf8_trim(value, " "),
    "ltrim": lambda _, value: pc.utf8_ltrim(value, " "),
    "rtrim": lambda _, value: pc.utf8_rtrim(value, " "),
    "like": _like,
    "starts_with": partial(_literal_text, pc.starts_with),
    "ends_with": partial(_literal_text, pc.ends_with),
    "contains": partial(_literal_text, pc.match_substring),
    "date_part": lambda expression, value: calendar_parts.part(expression.value, value),
    "date_trunc": lambda expression, value: calendar_parts.truncated(expression.value, value),
    "window_start": lambda expression, value: calendar_parts.window_start(expression.value, value),
    "shift": lambda expression, value: calendar_parts.shifted(expression.value, value),
}
