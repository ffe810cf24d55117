"""count, min, max, sum and avg of groups, where they are the same in whatever order rows are taken.

Sums of FLOAT and DOUBLE are not, so they are Spark's. A sum is ours only where no way of adding up could overflow, or, for
an average, which Spark takes in DOUBLE, round: as many rows as there are times the largest of the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from forebay.answers.ordering import rank, same, unrank
from forebay.answers.question import AnswerGrouping, NeedsSpark, Total
from forebay.answers.spark_returns import is_scalar, sql_name
from forebay.source.decimals import averages, unscaled

_DIGITS = 38
_EXACT_IN_DOUBLE = 2**53
_THROUGH_DOUBLE = 11  # digits: up to here Spark averages a DECIMAL as DOUBLE


def result_type(total: Total, kind: pa.DataType | None) -> pa.DataType:
    """The type of the total of a column of this type, as Spark has it."""
    if total.function == "count" or kind is None:
        return pa.int64()
    if total.function in ("min", "max"):
        if is_scalar(kind):
            return kind
    elif types.is_integer(kind):
        return pa.int64() if total.function == "sum" else pa.float64()
    elif types.is_decimal128(kind):
        if total.function == "sum":
            return pa.decimal128(min(kind.precision + 10, _DIGITS), kind.scale)
        if kind.precision > _THROUGH_DOUBLE:
            return pa.decimal128(min(kind.precision + 4, _DIGITS), min(kind.scale + 4, _DIGITS))
    if types.is_floating(kind):
        raise NeedsSpark(f"{total.function}({total.column}), which rounds by the order of rows")
    raise NeedsSpark(f"{total.function}({total.column}) of {sql_name(kind)}")


def group(rows: pa.Table, grouping: AnswerGrouping) -> pa.Table:
    """A row a group: the keys and the totals, each under its name."""
    columns: dict[str, Any] = {f"k{place}": same(rows.column(key)) for place, key in enumerate(grouping.keys)}
    wanted: list[tuple[Any, str, Any]] = []
    for place, total in enumerate(grouping.totals):
        if total.column:
            column = rows.column(total.column)
            _check(total, column)
            columns[f"c{place}"] = _taken(total, column)
        wanted += _steps(total, f"c{place}")
    if not columns:
        columns["all"] = pa.nulls(rows.num_rows)
    table = pa.table(columns)
    # An aggregate that several totals need is asked for once.
    unique = {(str(column), function): (column, function, options) for column, function, options in wanted}
    found = table.group_by([f"k{place}" for place in range(len(grouping.keys))]).aggregate([*unique.values()])
    named = {key: found.column(f"k{place}") for place, key in enumerate(grouping.keys)}
    for place, total in enumerate(grouping.totals):
        kind = rows.schema.field(total.column).type if total.column else None
        named[total.name] = _result(found, f"c{place}", total, kind)
    return pa.table(named)


def distinct(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    return group(rows, AnswerGrouping(tuple(dict.fromkeys(columns)), (), None))


def _taken(total: Total, column: Any) -> Any:
    """What Arrow is given of a column: for an order Spark's, for a count only what is there and what is not."""
    if total.function in ("min", "max"):
        return rank(column)
    return column if total.function != "count" else pc.if_else(column.is_valid(), True, None)


def _steps(total: Total, column: str) -> list[tuple[Any, str, Any]]:
    some = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
    counted = (column, "count", pc.CountOptions(mode="only_valid"))
    if not total.column:
        return [([], "count_all", None)]
    if total.function == "count":
        return [counted]
    if total.function == "avg":
        return [(column, "sum", some), counted]
    return [(column, total.function, some)]


def _result(found: pa.Table, column: str, total: Total, kind: pa.DataType | None) -> Any:
    wanted = result_type(total, kind)
    if not total.column:
        return found.column("count_all")
    if total.function == "avg":
        sums, counts = found.column(f"{column}_sum"), found.column(f"{column}_count")
        if types.is_decimal(wanted):
            try:
                return pa.chunked_array([averages(sums, counts, wanted)])
            except pa.ArrowInvalid:
                raise NeedsSpark("an average that does not fit its type") from None
        # Both are exact, so that the division is the only one to round.
        return pc.divide(sums.cast(wanted), pc.if_else(pc.equal(counts, 0), None, counts).cast(wanted))
    values = found.column(f"{column}_{total.function}")
    return unrank(values, wanted) if total.function in ("min", "max") else values.cast(wanted)


def _check(total: Total, column: Any) -> None:
    """NeedsSpark where the sum could overflow, or round, in one order of rows or another."""
    kind = column.type
    if total.function not in ("sum", "avg"):
        return
    bounds = pc.min_max(column)
    if not bounds["min"].is_valid:
        return
    if types.is_integer(kind):
        largest = max(abs(bounds[end].as_py()) for end in ("min", "max"))
        limit = 2**63 - 1 if total.function == "sum" else _EXACT_IN_DOUBLE
    else:
        largest = max(abs(unscaled(bounds[end].as_py(), kind.scale)) for end in ("min", "max"))
        limit = 10 ** min(kind.precision + 10, _DIGITS)
    reach = len(column) * largest
    if reach >= limit:
        raise NeedsSpark(f"{total.function}({total.column}), of numbers whose sum may become too large")
