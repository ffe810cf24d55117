"""Asks a condition of rows, with Spark's answers: unknown is not true, NaN is above all numbers, -0.0 is 0.0."""

from __future__ import annotations

from functools import reduce
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from forebay.condition import Condition

_ASKED = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def matching(rows: Rows, condition: Condition) -> Rows:
    """The rows for which it is true."""
    return rows.filter(_answer(rows, condition))


def _answer(rows: pa.RecordBatch | pa.Table, condition: Condition) -> Any:
    if condition.operator in ("and", "or"):
        both = pc.and_kleene if condition.operator == "and" else pc.or_kleene
        return reduce(both, [_answer(rows, part) for part in condition.parts])
    if condition.operator == "not":
        return pc.invert(_answer(rows, condition.parts[0]))
    column = rows.column(condition.column)
    if condition.operator == "null":
        return column.is_null()
    column = _exact(column)
    if condition.operator == "in":
        return _is_one_of(column, condition.values)
    if condition.other:
        return _against_column(condition.operator, column, _exact(rows.column(condition.other)))
    answer = _ASKED[condition.operator](column, pa.scalar(condition.values[0], column.type))
    if condition.operator in (">", ">=") and pa.types.is_floating(column.type):
        return pc.or_(answer, pc.is_nan(column))
    return answer


def _exact(column: Any) -> Any:
    return column.cast(pa.float64()) if pa.types.is_floating(column.type) else column


def _is_one_of(column: Any, values: tuple[Any, ...]) -> Any:
    if pa.types.is_floating(column.type):
        # is_in tells -0.0 from 0.0
        return reduce(pc.or_, [pc.equal(column, pa.scalar(value, column.type)) for value in values])
    # Of what is unknown it is unknown whether it is one of them.
    return pc.if_else(column.is_valid(), pc.is_in(column, pa.array(values, column.type)), None)


def _against_column(operator: str, one: Any, other: Any) -> Any:
    answer = _ASKED[operator](one, other)
    if not pa.types.is_floating(one.type):
        return answer
    # To Arrow nothing is true of NaN but that it is not equal.
    nan, nan_too = pc.is_nan(one), pc.is_nan(other)
    ordered = {
        "=": pc.and_(nan, nan_too),
        "<>": pc.xor(nan, nan_too),
        "<": pc.and_not(nan_too, nan),
        "<=": nan_too,
        ">": pc.and_not(nan, nan_too),
        ">=": nan,
    }[operator]
    return pc.if_else(pc.or_(nan, nan_too), ordered, answer)
