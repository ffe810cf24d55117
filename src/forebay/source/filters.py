"""Asks a condition of rows, with Spark's answers: unknown is not true, and NaN is above all numbers."""

from __future__ import annotations

from typing import Any

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


def matching(rows: pa.RecordBatch, condition: Condition) -> pa.RecordBatch:
    """The rows for which it is true."""
    return rows.filter(_answer(rows, condition))


def _answer(rows: pa.RecordBatch, condition: Condition) -> Any:
    if condition.operator in ("and", "or"):
        both = pc.and_kleene if condition.operator == "and" else pc.or_kleene
        answer = _answer(rows, condition.parts[0])
        for part in condition.parts[1:]:
            answer = both(answer, _answer(rows, part))
        return answer
    if condition.operator == "not":
        return pc.invert(_answer(rows, condition.parts[0]))
    column = rows.column(condition.column)
    if condition.operator == "null":
        return column.is_null()
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    if condition.operator == "in":
        # Of what is unknown it is unknown whether it is one of them.
        known = pc.is_in(column, pa.array(condition.values, column.type))
        return pc.if_else(column.is_valid(), known, None)
    answer = _ASKED[condition.operator](column, pa.scalar(condition.values[0], column.type))
    if condition.operator in (">", ">=") and pa.types.is_floating(column.type):
        return pc.or_(answer, pc.is_nan(column))
    return answer
