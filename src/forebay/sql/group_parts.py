"""The aggregates of a view that groups, as parts that tasks add up and the driver merges."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlglot import exp

from forebay import column_types as types
from forebay.expression import Expression
from forebay.program import GroupFunction, GroupPart
from forebay.sql.coercion import cast, is_decimal
from forebay.sql.decimals import average_type, sum_type
from forebay.sql.expressions import case, compiled
from forebay.sql.source_columns import Named

_NUMBERS = (*types.BITS, types.FLOAT, types.DOUBLE)
_TIMES = (types.TIMESTAMP, types.TIMESTAMP_NTZ, types.DATE)
_COMPARED = (*_NUMBERS, *_TIMES, types.BOOLEAN, types.STRING, types.BINARY)
_PART = "_part_"
_ENDS: dict[type[Any], GroupFunction] = {exp.Min: "min", exp.Max: "max"}
_TRUTHS: dict[type[Any], GroupFunction] = {exp.LogicalAnd: "min", exp.LogicalOr: "max"}
_NAMED_TRUTHS: dict[str, GroupFunction] = {"every": "min", "some": "max"}  # sqlglot has no class for these
_ONE, _NULL = Expression.literal(1, types.INT), Expression.literal(None, types.NULL)


class GroupParts:
    """Of one view. What `named` names are the columns that the aggregates are over."""

    def __init__(self, named: Named) -> None:
        self._named = named
        self._parts: dict[tuple[GroupFunction, Expression | None], GroupPart] = {}

    @property
    def all(self) -> tuple[GroupPart, ...]:
        return tuple(self._parts.values())

    def aggregate(self, node: Any) -> Expression | None:
        """The aggregate's value, made of parts; None where only Spark has it."""
        condition = None
        if isinstance(node, exp.Filter):
            condition = compiled(node.expression.this, self._named)
            if condition is None or condition.type != types.BOOLEAN:
                return None
            node = node.this
        if isinstance(node, exp.Anonymous):
            return self._truth(_NAMED_TRUTHS.get(node.name.lower()), node.expressions, condition)
        if any(given for part, given in node.args.items() if part not in ("this", "big_int")):
            return None
        if isinstance(node, exp.Count):
            return self._count(node.this, condition)
        if isinstance(node, exp.CountIf):
            asked = compiled(node.this, self._named)
            if asked is None or asked.type != types.BOOLEAN:
                return None
            return self._part("count", _where(condition, case([asked, _ONE], _NULL)), types.BIGINT)
        if type(node) in _TRUTHS:
            return self._truth(_TRUTHS[type(node)], [node.this], condition)
        argument = _where(condition, compiled(node.this, self._named))
        if argument is None:
            return None
        if type(node) in _ENDS and (argument.type in _COMPARED or is_decimal(argument.type)):
            return self._part(_ENDS[type(node)], argument, argument.type)
        if is_decimal(argument.type):
            return self._decimal(node, argument)
        return self._added_up(node, argument) if argument.type in _NUMBERS else None

    def _decimal(self, node: Any, argument: Expression) -> Expression | None:
        total_type, average = sum_type(argument.type), average_type(argument.type)
        if total_type is None or not isinstance(node, exp.Sum | exp.Avg):
            return None
        if isinstance(node, exp.Avg) and average is None:
            return None
        total = self._part("sum", argument, total_type)
        if isinstance(node, exp.Sum) or total is None:
            return total
        count = self._part("count", argument, types.BIGINT)
        assert count is not None
        return Expression("decimal_average", average, (total, count))

    def _added_up(self, node: Any, argument: Expression) -> Expression | None:
        if isinstance(node, exp.Sum):
            kind = types.BIGINT if argument.type in types.BITS else types.DOUBLE
            return self._part("sum", cast(argument, kind), kind)
        if isinstance(node, exp.Avg):
            total = self._part("sum", cast(argument, types.DOUBLE), types.DOUBLE)
            count = self._part("count", argument, types.BIGINT)
            assert total is not None
            assert count is not None
            return Expression("try_divide", types.DOUBLE, (total, Expression("cast", types.DOUBLE, (count,))))
        return None

    def _truth(
        self, function: GroupFunction | None, given: list[Any], condition: Expression | None
    ) -> Expression | None:
        """Whether all are true, or any: false is less than true."""
        if function is None or len(given) != 1:
            return None
        argument = _where(condition, compiled(given[0], self._named))
        if argument is None or argument.type != types.BOOLEAN:
            return None
        return self._part(function, argument, types.BOOLEAN)

    def _count(self, counted: Any, condition: Expression | None) -> Expression | None:
        if isinstance(counted, exp.Star):
            argument = None if any(counted.args.values()) else _ONE
        else:
            argument = compiled(counted, self._named)
        if argument is None or (argument.is_literal and argument.value is None):
            return None
        if argument.may_fail and not argument.nullable:
            return None  # Spark does not look
        if condition is not None:
            return self._part("count", _where(condition, argument), types.BIGINT)
        if argument.is_literal:
            return self._part("count_all", None, types.BIGINT)
        return self._part("count", argument, types.BIGINT)

    def _part(
        self, function: GroupFunction, argument: Expression | None, kind: pa.DataType
    ) -> Expression | None:
        if argument is None and function != "count_all":
            return None
        known = (function, argument)
        if known not in self._parts:
            self._parts[known] = GroupPart(f"{_PART}{len(self._parts)}", function, argument, kind)
        return Expression.column(
            self._parts[known].name, kind, nullable=function not in ("count", "count_all")
        )


def _where(condition: Expression | None, argument: Expression | None) -> Expression | None:
    """The argument in rows for which FILTER's condition is true, NULL in others, which no aggregate counts."""
    if condition is None or argument is None:
        return argument
    if argument.may_fail:
        return None  # Spark may work it out before it looks at the condition
    return case([condition, argument], _NULL)
