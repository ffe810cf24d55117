"""Works out an expression on Arrow rows, with Spark's answers in ANSI mode.

Unknown is not true, NaN is equal to itself and above all numbers, -0.0 is 0.0, integers do not wrap. What Spark would
not work out for a row (a branch that is not taken, what stands beside NULL) raises no error here either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.errors import EvaluationError
from forebay.expression import COLUMN, Expression
from forebay.source import operators

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

# Spark looks at the divisor first.
_DIVIDING = frozenset({"/", "%", "div", "try_divide"})
# All arguments are worked out, whichever is NULL.
_EAGER = frozenset({"<=>", "concat", "in", "greatest", "least"})
# NULL where an argument is, and known to Spark as such.
_STRICT = frozenset(
    {
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "not",
        "+",
        "-",
        "*",
        "/",
        "%",
        "div",
        "negate",
        "abs",
        "cast",
        "narrow",
    }
    | {"length", "substring", "trim", "ltrim", "rtrim", "like", "starts_with", "ends_with", "contains"}
    | {"date_part", "date_trunc", "move", "floor", "ceil", "size"}
)


def evaluate(rows: pa.RecordBatch, expression: Expression) -> pa.Array:
    """The expression's value for each row. EvaluationError where Spark would raise one."""
    return _array(_value(rows, expression), rows.num_rows)


def matching(rows: Rows, condition: Expression) -> Rows:
    """The rows for which it is true."""
    if isinstance(rows, pa.Table):
        return pa.Table.from_batches([_kept(batch, condition) for batch in rows.to_batches()], rows.schema)
    return _kept(rows, condition)


def _kept(rows: pa.RecordBatch, condition: Expression) -> pa.RecordBatch:
    if not condition.may_fail:
        return rows.filter(evaluate(rows, condition))
    parts = list(_conjuncts(condition))
    demanded = {name for part in parts for name in _demanded(part)}
    for part in parts:
        if part.may_fail:
            # Spark leaves a row out as soon as it sees that a column is NULL of which no condition can be true then.
            for name in demanded.intersection(part.columns()):
                rows = rows.filter(rows.column(name).is_valid())
        rows = rows.filter(evaluate(rows, part))
    return rows


def _conjuncts(condition: Expression) -> Iterator[Expression]:
    """The conditions that must all be true, as Spark takes them apart: it looks at one after the other."""
    if condition.operator == "and":
        for part in condition.arguments:
            yield from _conjuncts(part)
    elif condition.operator == "not" and condition.arguments[0].operator in ("or", "not"):
        for part in condition.arguments[0].arguments:
            twice = condition.arguments[0].operator == "not"
            yield from _conjuncts(part if twice else replace(condition, arguments=(part,)))
    else:
        yield condition


def _demanded(condition: Expression) -> Iterator[str]:
    """Columns that are not NULL in any row for which it is true, as far as Spark looks for them."""
    if condition.operator == COLUMN:
        yield str(condition.value)
    elif condition.operator in _STRICT:
        for argument in condition.arguments:
            yield from _demanded(argument)
    elif condition.operator == "not" and condition.arguments[0].operator == "is_null":
        yield from _demanded(condition.arguments[0].arguments[0])


def _value(rows: pa.RecordBatch, expression: Expression) -> Any:
    """An array, or a scalar that stands for all rows."""
    if expression.operator == COLUMN:
        return rows.column(expression.value)
    if expression.is_literal:
        return expression.scalar
    lazy = _LAZY.get(expression.operator)
    if lazy is not None:
        return lazy(rows, expression)
    found = _arguments(rows, expression)
    try:
        return operators.OPERATORS[expression.operator](expression, *found)
    except pa.ArrowInvalid as error:
        raise EvaluationError(f"{operators.kind_of(error)} in {expression}") from error


def _arguments(rows: pa.RecordBatch, expression: Expression) -> list[Any]:
    """An argument is worked out where none before it is NULL."""
    asked = expression.arguments
    if expression.operator in _EAGER or not any(argument.may_fail for argument in asked):
        return [_value(rows, argument) for argument in asked]
    order = range(len(asked))
    found: dict[int, Any] = {}
    known: Any = None
    for at in reversed(order) if expression.operator in _DIVIDING else order:
        found[at] = _where(rows, known, asked[at])
        valid = _array(_is_enough(expression, found[at], at), rows.num_rows)
        known = valid if known is None else pc.and_(known, valid)
    return [found[at] for at in order]


def _is_enough(expression: Expression, value: Any, at: int) -> Any:
    """Where the next argument is looked at."""
    if expression.operator == "try_divide" and at == 1:
        return pc.fill_null(pc.not_equal(value, 0.0), False)
    return pc.is_valid(value)


def _where(rows: pa.RecordBatch, wanted: Any, expression: Expression) -> Any:
    """The expression's value for the wanted rows, and anything for the others; no error comes from those."""
    if wanted is None or not expression.may_fail or pc.all(wanted, min_count=0).as_py():
        return _value(rows, expression)
    some = rows.select(list(dict.fromkeys(expression.columns()))).filter(wanted)
    chosen = wanted.to_numpy(zero_copy_only=False)
    places = pa.array(np.cumsum(chosen) - 1, mask=~chosen)
    return evaluate(some, expression).take(places)


def _array(value: Any, rows: int) -> pa.Array:
    if isinstance(value, pa.ChunkedArray):
        return value.combine_chunks()
    return value if isinstance(value, pa.Array) else pa.repeat(value, rows)


def _all(rows: pa.RecordBatch) -> pa.Array:
    return pa.repeat(pa.scalar(True), rows.num_rows)


def _and(rows: pa.RecordBatch, expression: Expression) -> Any:
    left, right = expression.arguments
    found = _value(rows, left)
    open_ = _array(pc.fill_null(found, True), rows.num_rows) if right.may_fail else None
    return pc.and_kleene(found, _where(rows, open_, right))


def _or(rows: pa.RecordBatch, expression: Expression) -> Any:
    left, right = expression.arguments
    found = _value(rows, left)
    open_ = pc.invert(_array(pc.fill_null(found, False), rows.num_rows)) if right.may_fail else None
    return pc.or_kleene(found, _where(rows, open_, right))


def _case(rows: pa.RecordBatch, expression: Expression) -> Any:
    """`arguments`: condition, value, condition, value, …, and what it is otherwise."""
    *branches, otherwise = expression.arguments
    pairs = list(zip(branches[::2], branches[1::2], strict=True))
    if not expression.may_fail:
        found = _value(rows, otherwise)
        for condition, value in reversed(pairs):
            is_true = pc.fill_null(_array(_value(rows, condition), rows.num_rows), False)
            found = pc.if_else(is_true, _value(rows, value), found)
        return found
    left = _all(rows)
    found = pa.nulls(rows.num_rows, expression.type)
    for condition, value in pairs:
        is_true = pc.and_(left, pc.fill_null(_array(_where(rows, left, condition), rows.num_rows), False))
        found = pc.if_else(is_true, _where(rows, is_true, value), found)
        left = pc.and_not(left, is_true)
    return pc.if_else(left, _where(rows, left, otherwise), found)


def _coalesce(rows: pa.RecordBatch, expression: Expression) -> Any:
    first, *others = expression.arguments
    found = _array(_value(rows, first), rows.num_rows)
    for other in others:
        missing = pc.is_null(found)
        found = pc.if_else(missing, _where(rows, missing, other), found)
    return found


_LAZY: dict[str, Callable[[pa.RecordBatch, Expression], Any]] = {
    "and": _and,
    "or": _or,
    "case": _case,
    "coalesce": _coalesce,
}
