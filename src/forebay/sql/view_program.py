"""From a view's query over one source to what a task does for it; None where only Spark can.

No join, no subquery but one in FROM that passes rows on (`read_from.py`), no DISTINCT, no function that is
another value each time: of the rest, what `sql/expressions.py` and `group_parts.py` can compile. Of windows TUMBLE and HOP, unless a row is in very many.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlglot import exp

from forebay import column_types as types
from forebay.expression import Expression
from forebay.program import Grouping, GroupWindow, NamedExpressions, Program, Selecting
from forebay.sql.ast import EventWindow
from forebay.sql.expressions import compiled, connected, is_null, negated
from forebay.sql.group_parts import GroupParts
from forebay.sql.read_from import ReadFrom, read_from
from forebay.sql.rewrite import located
from forebay.sql.select_outputs import OutputColumn
from forebay.sql.shape import QueryShape, is_aggregate, shape
from forebay.sql.source_columns import Named
from forebay.sql.window_tables import FLINK_BOUNDS
from forebay.sql.windows import Window, group_window, read_window

MOST_WINDOWS = 64  # of HOP that a row is in: groups of so many are sent to the driver

_FLOATING = (types.FLOAT, types.DOUBLE)
_STAMPS = (types.TIMESTAMP, types.TIMESTAMP_NTZ)
_KEY = "_key_"


def program_for(query: Any, schema: pa.Schema) -> Program | None:
    """Of a view's query that `planning.plan` has taken."""
    query = located(query)
    return program_of(query, shape(query, query), schema)


def program_of(query: Any, found: QueryShape, schema: pa.Schema) -> Program | None:
    """`found` is the query's shape, `schema` has the source's columns. The query is one that `planning.plan` takes."""
    query = located(query)
    read = read_from(query, schema)
    below = read and read.filtered(query)
    if below is None:
        return None
    if found.aggregated:
        return _Grouped(query, found, below).program()
    outputs: list[tuple[str, Expression]] = []
    for out in found.outputs:
        made = below.star(out.expression) if out.name is None else _output(out, below.named)
        if made is None:
            return None
        outputs += made
    names = {name.lower() for name, _ in outputs}
    return Selecting(below.where, tuple(outputs)) if len(names) == len(outputs) else None


def _output(out: OutputColumn, named: Named) -> NamedExpressions | None:
    found = compiled(out.expression, named)
    return None if found is None or out.name is None or found.type == types.NULL else ((out.name, found),)


class _Grouped:
    """A query that groups. Keys and aggregates become columns, which the outputs are made of."""

    def __init__(self, query: Any, found: QueryShape, below: ReadFrom) -> None:
        self._query = query
        self._outputs = found.outputs
        self._columns = below.fields
        self._named = below.named
        self._where = below.where
        self._keys: dict[Expression, str] = {}
        self._parts = GroupParts(below.named)
        self._window: GroupWindow | None = None

    def program(self) -> Grouping | None:
        if not self._read_keys():
            return None
        where = self._where
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
        having = self._having() if self._query.args.get("having") else None
        if self._query.args.get("having") and (having is None or any(out.may_fail for _, out in outputs)):
            return None
        keys: NamedExpressions = tuple((name, key) for key, name in self._keys.items())
        return Grouping(where, keys, self._parts.all, tuple(outputs), self._window, having)

    def _having(self) -> Expression | None:
        """Of groups that have keys: who keeps the table tells by these which rows of it are gone."""
        found = compiled(self._query.args["having"].this, self._of_shown)
        if found is None or found.type != types.BOOLEAN or found.is_literal or found.may_fail:
            return None
        return found if self._keys else None

    def _of_shown(self, node: Any) -> Expression | None:
        """In HAVING a name is that of an output, or of a key, if it cannot be both."""
        if not isinstance(node, exp.Column) or node.table:
            return self._of_groups(node)
        same = [out for out in self._outputs if out.name and out.name.lower() == node.name.lower()]
        if len(same) != 1:
            return self._of_groups(node)
        found = compiled(same[0].expression, self._of_groups)
        own = self._named(node)
        return found if own is None or own == compiled(same[0].expression, self._named) else None

    def _read_keys(self) -> bool:
        group = self._query.args.get("group")
        if group is None:
            return True
        if any(given for part, given in group.args.items() if part not in ("expressions", "all")):
            return False
        window = group_window(self._query, self._query)
        named = map(self._selected, group.expressions)
        for node in self._all_keys() if group.args.get("all") else named:
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

    def _all_keys(self) -> list[Any]:
        """Of GROUP BY ALL: outputs without an aggregate in them."""
        found = [out.expression for out in self._outputs]
        return [node for node in found if not any(map(is_aggregate, node.walk()))]

    def _key(self, node: Any) -> Expression | None:
        found = compiled(node, self._named)
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
        if time is None or time.is_literal or time.may_fail or time.type not in _STAMPS:
            return None
        return Expression("window_start", time.type, (time,), window.sizes[-1] * 1000, nullable=False)

    def _of_groups(self, node: Any) -> Expression | None:
        """A key, a bound of the window, or an aggregate."""
        bound = self._bound(node)
        if bound is not None:
            return bound
        if is_aggregate(node) or isinstance(node, exp.Filter):
            return self._parts.aggregate(node)
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
