"""Event-time windows: TUMBLE, HOP and SESSION become Spark's window() and session_window()."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp

from forebay.sql.ast import EventWindow, WindowTable
from forebay.sql.intervals import EXAMPLE, IntervalError, interval_ms, spark_interval
from forebay.sql.rewrite import Edit, refuse
from forebay.sql.text import identifier, string
from forebay.sql.window_tables import BOUNDS, FLINK_BOUNDS, grouped_by

WindowKind = Literal["tumble", "hop", "session"]
_USAGE: dict[str, str] = {
    "tumble": "TUMBLE(ts, INTERVAL '1' MINUTE): time, size",
    "hop": "HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE): time, slide, size",
    "session": "SESSION(ts, INTERVAL '5' MINUTE): time, gap",
}


@dataclass(frozen=True)
class Window:
    """One call. `sizes` are what Spark takes, in its order: (size,), (size, slide) or (gap,).

    `native` calls are Spark's own functions, passed on as they are; `sizes` is () for them.
    """

    kind: WindowKind
    part: str
    sizes: tuple[int, ...]
    native: bool
    node: Any

    @property
    def function(self) -> str:
        return "session_window" if self.kind == "session" else "window"

    @property
    def bounds(self) -> dict[str, str]:
        """What the window's bounds are called in the query, and how Spark is asked for them."""
        return FLINK_BOUNDS if self.node.args.get("flink") else BOUNDS


def read_window(query: Any, node: Any) -> Window:
    """What this call means; a wrong one is refused with its usage."""
    base, _, part = node.args["name"].lower().partition("_")
    if base == "window" or part == "window":
        arguments = len(node.expressions)
        sliding: WindowKind = "hop" if arguments > 2 else "tumble"
        return Window("session" if part == "window" else sliding, "", (), True, node)
    kind: WindowKind = "hop" if base == "hop" else "session" if base == "session" else "tumble"
    if len(node.expressions) != (3 if kind == "hop" else 2):
        message = f"{node.args['name']} has the wrong number of arguments"
        raise refuse(query, message, node, f"write {_USAGE[kind]}")
    sizes = tuple(_size(query, argument, kind) for argument in node.expressions[1:])
    if kind == "hop":
        slide, size = sizes
        if slide > size:
            message = "HOP slides further than its window is long: rows in between would be lost"
            raise refuse(query, message, node, f"the order is {_USAGE[kind]}")
        sizes = (size, slide)
    return Window(kind, part, sizes, False, node)


def _size(query: Any, argument: Any, kind: WindowKind) -> int:
    try:
        size = interval_ms(argument)
    except IntervalError as error:
        raise refuse(query, f"{kind.upper()}: {error}", argument, EXAMPLE) from None
    if size <= 0:
        raise refuse(query, f"{kind.upper()}: the interval is not positive", argument, EXAMPLE)
    return size


def in_scope(select: Any, kind: Any) -> Iterator[Any]:
    """Nodes of a kind that belong to this SELECT and not to one inside it, nor to a table of windows."""
    return (
        node
        for node in select.find_all(kind)
        if node.find_ancestor(exp.Select) is select and not node.find_ancestor(WindowTable)
    )


def group_window(query: Any, select: Any) -> Window | None:
    """The window this SELECT groups by."""
    group = select.args.get("group")
    if group is None:
        return None
    calls = [read_window(query, node) for node in in_scope(select, EventWindow) if _under(node, group)]
    for call in calls:
        if call.part:
            whole = call.kind.upper()
            message = f"GROUP BY {call.node.args['name']} does not tell Spark when a window closes"
            raise refuse(query, message, call.node, f"write GROUP BY {whole}(…)")
    if len(calls) > 1:
        raise refuse(query, "a query has one window", calls[1].node, "write a view for each window")
    return calls[0] if calls else None


def _under(node: Any, ancestor: Any) -> bool:
    while node is not None:
        if node is ancestor:
            return True
        node = node.parent
    return False


def window_edits(query: Any) -> list[Edit]:
    """Edits that leave no window function but Spark's own."""
    edits: list[Edit] = []
    for select in query.find_all(exp.Select):
        grouped = group_window(query, select)
        for node in in_scope(select, EventWindow):
            call = read_window(query, node)
            _check_scope(query, select, call, grouped)
            edits += _after_grouping(select, call) or _call_edits(query, call)
        if grouped is None:
            continue
        for column in bare_bounds(select, grouped):
            _check_where(query, column, grouped)
            start, end = _place(column)
            window = grouped.function if _sees_groups(select, column) else _spark_call(query, grouped)
            edits.append(Edit(start, end, grouped.bounds[column.name.lower()].format(window)))
    return [*edits, *_table_edits(query)]


def _table_edits(query: Any) -> list[Edit]:
    """A table of windows becomes the table alone where the query groups by the window, else one with its bounds."""
    edits: list[Edit] = []
    for table in query.find_all(WindowTable):
        call = read_window(query, table.args["window"])
        start, end = table.meta["table_span"]
        parts = [part.meta for part in table.parts]
        first, last = min(meta["start"] for meta in parts), max(meta["end"] for meta in parts) + 1
        opening, closing = "", ""
        if table.args.get("grouped"):
            _check_sessions(query, table, call)
        else:
            if call.kind == "session":
                remedy = "add GROUP BY window_start, window_end, and the columns of PARTITION BY"
                raise refuse(
                    query, "SESSION without GROUP BY: a session is known when it is over", call.node, remedy
                )
            window = _spark_call(query, call)
            bounds = ", ".join(f"{text.format(window)} AS {name}" for name, text in call.bounds.items())
            opening = f"(SELECT *, {bounds} FROM "  # noqa: S608
            closing = ")" if table.alias else f") AS {identifier(table.name)}"
        edits += [Edit(start, first, opening), Edit(last, end, closing)]
    return edits


def _check_sessions(query: Any, table: Any, call: Window) -> None:
    """Sessions of all rows together, or of other keys, are not those that Spark makes for each group."""
    if call.kind != "session":
        return
    select = table.find_ancestor(exp.Select)
    keys = [grouped_by(select, key) for key in select.args["group"].expressions]
    by = {normal(key) for key in keys if not isinstance(key, EventWindow)}
    if by != {normal(key) for key in table.args["partition_keys"]}:
        message = "the sessions are not those of the groups: PARTITION BY and GROUP BY name other columns"
        remedy = "write SESSION(TABLE t PARTITION BY k, …) and GROUP BY window_start, window_end, k"
        raise refuse(query, message, call.node, remedy)


def _sees_groups(select: Any, node: Any) -> bool:
    """Whether a node stands in HAVING or ORDER BY, where Spark has the window but no longer its time."""
    clauses = (select.args.get("having"), select.args.get("order"))
    return any(clause is not None and _under(node, clause) for clause in clauses)


def _after_grouping(select: Any, call: Window) -> list[Edit]:
    if call.native or not _sees_groups(select, call.node):
        return []
    start, end = call.node.meta["span"]
    return [Edit(start, end, f"{call.function}.{call.part}" if call.part else call.function)]


def _check_where(query: Any, node: Any, grouped: Window) -> None:
    if grouped.kind != "tumble" and node.find_ancestor(exp.Where):
        # Spark would take a row once for each of its windows, and then put each of these into all of them.
        message = f"WHERE cannot look at the bounds of {grouped.kind.upper()}"
        raise refuse(query, message, node, "leave it out, and filter when you SELECT from the view")


def _check_scope(query: Any, select: Any, call: Window, grouped: Window | None) -> None:
    name = call.node.args["name"]
    if grouped is not None:
        _check_where(query, call.node, grouped)
    if grouped is None:
        if select.args.get("group") or call.kind == "session":
            remedy = f"add {call.kind.upper()}(…) to GROUP BY"
            raise refuse(query, f"{name} without a window in GROUP BY", call.node, remedy)
    elif not call.native and not grouped.native and not _same_window(call, grouped):
        message = f"{name} has other arguments than the window in GROUP BY"
        raise refuse(query, message, call.node, "repeat them, or write window_start and window_end")


def _same_window(one: Window, other: Window) -> bool:
    same_time = normal(one.node.expressions[0]) == normal(other.node.expressions[0])
    return (one.kind, one.sizes) == (other.kind, other.sizes) and same_time


def normal(node: Any) -> Any:
    """A copy in which names differ neither by case nor by qualifier, to compare with."""

    def plain(part: Any) -> Any:
        if isinstance(part, exp.Column) and isinstance(part.this, exp.Identifier):
            return exp.column(part.name.lower())
        if isinstance(part, exp.Identifier):
            return exp.to_identifier(part.name.lower())
        return part

    return node.unnest().copy().transform(plain)


def bare_bounds(select: Any, window: Window) -> Iterator[Any]:
    """Columns written `window_start` or `window_end` in a SELECT that groups by this window."""
    order = select.args.get("order")
    projected = {projection.alias_or_name.lower() for projection in select.expressions}
    for column in in_scope(select, exp.Column):
        name = column.name.lower()
        if name not in window.bounds or column.table or not isinstance(column.this, exp.Identifier):
            continue
        # There it is the output column, which has that name.
        if order is not None and name in projected and _under(column, order):
            continue
        yield column


def _place(column: Any) -> tuple[int, int]:
    place: tuple[int, int] = column.meta.get("bound") or (
        column.this.meta["start"],
        column.this.meta["end"] + 1,
    )
    return place


def _arguments(call: Window) -> str:
    return "".join(f", {string(spark_interval(size))}" for size in call.sizes)


def _call_edits(query: Any, call: Window) -> list[Edit]:
    if call.native:
        return []
    meta = call.node.meta
    if "dropped" in meta:
        dropped = [Edit(start, end, "") for start, end in meta["dropped"]]
        start, end = meta["span"]
        return [Edit(start, end, _spark_call(query, call)), *dropped]
    start, end = meta["name"]
    edits = [Edit(start, end, call.function), Edit(meta["first_end"], meta["close"], _arguments(call))]
    if call.part:
        edits.append(Edit(meta["close"] + 1, meta["close"] + 1, f".{call.part}"))
    return edits


def _spark_call(query: Any, call: Window) -> str:
    meta, script = call.node.meta, query.meta["script"]
    if call.native:
        return str(script[meta["span"][0] : meta["span"][1]])
    if "name" not in meta:
        name = call.node.expressions[0].this.meta
        qualifier = f"{identifier(meta['qualifier'])}." if "qualifier" in meta else ""
        return f"{call.function}({qualifier}{script[name['start'] : name['end'] + 1]}{_arguments(call)})"
    return f"{call.function}{script[meta['name'][1] : meta['first_end']]}{_arguments(call)})"
