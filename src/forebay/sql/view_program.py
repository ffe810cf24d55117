"""From a view's query over one source to what a task does for it; None where only Spark can.

No HAVING, no join, no subquery, no DISTINCT, no function that is another value each time: of the rest, what
`sql/expressions.py` can compile. Of windows TUMBLE and HOP, unless a row is in very many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from forebay import column_types as types
from forebay.expression import Expression
from forebay.program import (
    GroupFunction,
    Grouping,
    GroupPart,
    GroupWindow,
    NamedExpressions,
    Program,
    Selecting,
)
from forebay.sql.ast import EventWindow, WindowTable
from forebay.sql.coercion import cast, is_decimal
from forebay.sql.expressions import compiled, connected, is_null, negated
from forebay.sql.rewrite import located
from forebay.sql.select_outputs import OutputColumn
from forebay.sql.shape import QueryShape, shape
from forebay.sql.source_columns import Named, columns_named
from forebay.sql.window_tables import FLINK_BOUNDS
from forebay.sql.windows import Window, group_window, read_window

MOST_WINDOWS = 64  # of HOP that a row is in: groups of so many are sent to the driver

_CLAUSES = frozenset({"expressions", "from_", "where", "group"})
_TABLE = frozenset({"this", "db", "catalog", "alias"})
_WINDOW_TABLE = _TABLE | {"window", "partition_keys", "grouped"}
_FLOATING = (types.FLOAT, types.DOUBLE)
_NUMBERS = (*types.BITS, *_FLOATING)
_TIMES = (types.TIMESTAMP, types.TIMESTAMP_NTZ, types.DATE)
_KEY, _PART = "_key_", "_part_"
_ENDS: dict[type[Any], GroupFunction] = {exp.Min: "min", exp.Max: "max"}


def program_for(query: Any, schema: pa.Schema) -> Program | None:
    """Of a view's query that `planning.plan` has taken."""
    query = located(query)
    return program_of(query, shape(query, query), schema)


def program_of(query: Any, found: QueryShape, schema: pa.Schema) -> Program | None:
    """`found` is the query's shape, `schema` has the source's columns. The query is one that `planning.plan` takes."""
    query = located(query)
    columns = {field.name.lower(): field for field in schema}
    own = _own_names(query)
    if own is None or len(columns) < len(schema):
        return None
    named = columns_named(columns, own)
    clause = query.args.get("where")
    where = compiled(clause.this, named) if clause else None
    if clause and (where is None or where.type != types.BOOLEAN):
        return None
    if found.aggregated:
        return _Grouped(query, found, columns, named).program(where)
    outputs: list[tuple[str, Expression]] = []
    for out in found.outputs:
        made = _star(out, schema, own) if out.name is None else _output(out, named)
        if made is None:
            return None
        outputs += made
    names = {name.lower() for name, _ in outputs}
    return Selecting(where, tuple(outputs)) if len(names) == len(outputs) else None


def _own_names(query: Any) -> set[str] | None:
    """What the one table of the query goes by; None where the query is more than a SELECT over one table."""
    if not isinstance(query, exp.Select) or len(list(query.find_all(exp.Query))) > 1:
        return None
    if any(given for clause, given in query.args.items() if clause not in _CLAUSES):
        return None
    source = query.args["from_"].this if query.args.get("from_") else None
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
        return None
    if isinstance(source, WindowTable) and not source.args.get("grouped"):
        return None
    known = _WINDOW_TABLE if isinstance(source, WindowTable) else _TABLE
    alias = source.args.get("alias")
    if any(given for part, given in source.args.items() if part not in known) or (
        alias and alias.args.get("columns")
    ):
        return None
    return {source.alias_or_name.lower(), ""}


def _star(out: OutputColumn, schema: pa.Schema, own: set[str]) -> list[tuple[str, Expression]] | None:
    star = out.expression.this if isinstance(out.expression, exp.Column) else out.expression
    table = out.expression.table.lower() if isinstance(out.expression, exp.Column) else ""
    if not isinstance(star, exp.Star) or any(star.args.values()) or table not in own:
        return None
    return [
        (field.name, Expression.column(field.name, field.type, nullable=field.nullable)) for field in schema
    ]


def _output(out: OutputColumn, named: Named) -> list[tuple[str, Expression]] | None:
    found = compiled(out.expression, named)
    return None if found is None or out.name is None or found.type == types.NULL else [(out.name, found)]


class _Grouped:
    """A query that groups. Keys and aggregates become columns, which the outputs are made of."""

    def __init__(self, query: Any, found: QueryShape, columns: Mapping[str, pa.Field], named: Named) -> None:
        self._query = query
        self._outputs = found.outputs
        self._columns = columns
        self._named = named
        self._keys: dict[Expression, str] = {}
        self._parts: dict[tuple[GroupFunction, Expression | None], GroupPart] = {}
        self._window: GroupWindow | None = None

    def program(self, where: Expression | None) -> Grouping | None:
        if not self._read_keys():
            return None
        outputs: list[tuple[str, Expression]] = []
        for out in self._outputs:
            made = _output(out, self._of_groups)
            if made is None:
                return None
            outputs += made
        if self._window is not None:
            timed = negated(is_null(self._window.time))
            where = timed if where is None else connected("and", where, timed)
            if where is None:
                return None
        keys: NamedExpressions = tuple((name, key) for key, name in self._keys.items())
        return Grouping(where, keys, tuple(self._parts.values()), tuple(outputs), self._window)

    def _read_keys(self) -> bool:
        group = self._query.args.get("group")
        if group is None:
            return True
        if any(given for part, given in group.args.items() if part != "expressions"):
            return False
        window = group_window(self._query, self._query)
        for node in group.expressions:
            key = self._window_key(window) if isinstance(node, EventWindow) else self._key(node)
            if key is None or key.is_literal or pa.types.is_nested(key.type):
                return False
            self._keys.setdefault(key, f"{_KEY}{len(self._keys)}")
        if window is not None:
            start = self._window_key(window)
            assert start is not None
            size, slide = window.sizes[0] * 1000, window.sizes[-1] * 1000
            self._window = GroupWindow(self._keys[start], start.arguments[0], size, slide)
        return True

    def _key(self, node: Any) -> Expression | None:
        found = compiled(self._selected(node), self._named)
        if found is not None and found.type in _FLOATING:
            return Expression("one_zero", found.type, (found,), nullable=found.nullable)
        return found

    def _selected(self, node: Any) -> Any:
        """What a key stands for: it may be the place or the alias of an output, if no column has its name."""
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal():
            place = int(node.name)
            return self._outputs[place - 1].expression if 0 < place <= len(self._outputs) else node
        if isinstance(node, exp.Column) and not node.table and node.name.lower() not in self._columns:
            same = [out for out in self._outputs if out.name and out.name.lower() == node.name.lower()]
            return same[0].expression if len(same) == 1 else node
        return node

    def _window_key(self, window: Window | None) -> Expression | None:
        if (
            window is None
            or window.native
            or window.kind == "session"
            or window.sizes[0] > MOST_WINDOWS * window.sizes[-1]
            or set(FLINK_BOUNDS) & set(self._columns)
        ):
            return None
        time = compiled(window.node.expressions[0], self._named)
        if time is None or time.is_literal or time.may_fail or time.type not in _TIMES[:2]:
            return None
        return Expression("window_start", time.type, (time,), window.sizes[-1] * 1000, nullable=False)

    def _of_groups(self, node: Any) -> Expression | None:
        """A key, a bound of the window, or an aggregate."""
        bound = self._bound(node)
        if bound is not None:
            return bound
        if isinstance(node, exp.AggFunc):
            return self._aggregate(node)
        key = compiled(node, self._named) if not isinstance(node, exp.Literal) else None
        if key is not None and key.type in _FLOATING:
            key = Expression("one_zero", key.type, (key,), nullable=key.nullable)
        if key is None or key not in self._keys:
            return None
        return Expression.column(self._keys[key], key.type, nullable=key.nullable)

    def _bound(self, node: Any) -> Expression | None:
        if self._window is None:
            return None
        found = ""
        if isinstance(node, EventWindow):
            found = read_window(self._query, node).part
        elif isinstance(node, exp.Dot) and isinstance(node.this, EventWindow):
            found = node.name.lower()
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
            window = group_window(self._query, self._query)
            name, qualifier = node.name.lower(), node.table.lower()
            if not qualifier and window is not None and name in window.bounds:
                found = name.removeprefix("window_")
            elif qualifier == "window" and "window" not in self._columns:
                found = name
        start = Expression.column(self._window.key, self._window.time.type, nullable=False)
        shift = {"end": self._window.size_us, "time": self._window.size_us - 1000}.get(found)
        if found == "start":
            return start
        return None if shift is None else Expression("shift", start.type, (start,), shift, nullable=False)

    def _aggregate(self, node: Any) -> Expression | None:
        if any(given for part, given in node.args.items() if part not in ("this", "big_int")):
            return None
        if isinstance(node, exp.Count):
            return self._count(node.this)
        argument = compiled(node.this, self._named)
        if argument is None:
            return None
        if type(node) in _ENDS and (argument.type in (*_NUMBERS, *_TIMES) or is_decimal(argument.type)):
            return self._part(_ENDS[type(node)], argument, argument.type)
        if argument.type not in _NUMBERS:
            return None
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

    def _count(self, counted: Any) -> Expression | None:
        if isinstance(counted, exp.Star) and not any(counted.args.values()):
            return self._part("count_all", None, types.BIGINT)
        argument = compiled(counted, self._named)
        if argument is None or (argument.is_literal and argument.value is None):
            return None
        if argument.may_fail and not argument.nullable:
            return None  # Spark does not look
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
