"""What kind of a query a view has: does it aggregate, by which keys, over which window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from forebay.errors import StatementError
from forebay.sql.ast import EventWindow, WindowTable
from forebay.sql.rewrite import refuse
from forebay.sql.select_outputs import OutputColumn, outputs
from forebay.sql.table_names import resolve_cte
from forebay.sql.windows import Window, WindowKind, group_window, in_scope, normal

# Spark's aggregates that sqlglot knows no class for.
_AGGREGATES = frozenset(
    {"bitmap_and_agg", "count_min_sketch", "every", "histogram_numeric", "hll_sketch_agg", "hll_union_agg"}
    | {"kll_sketch_agg_bigint", "kll_sketch_agg_double", "kll_sketch_agg_float", "mean", "product"}
    | {"schema_of_variant_agg", "some", "std", "theta_intersection_agg", "theta_sketch_agg"}
    | {"theta_union_agg", "try_avg", "try_sum"}
)
# A view reads sources and no views, so what is beyond a view is for the SELECT that reads it.
_INNER_VIEW = "make a view of the inner SELECT alone, and write the rest when you SELECT from that view"
_EACH_VIEW = "make a view of each part, and write {} when you SELECT from the views"
_OR_CLOSE = ", or add EMIT ON WINDOW CLOSE"


@dataclass(frozen=True)
class QueryShape:
    """`keys` identify a row of the result; `problem` is why they cannot, for who needs them.

    `having` is why Spark cannot keep a view with HAVING up to date.
    """

    outputs: tuple[OutputColumn, ...]
    aggregated: bool = False
    window: WindowKind | None = None
    keys: tuple[str, ...] = ()
    problem: StatementError | None = None
    having: StatementError | None = None


def is_aggregate(node: Any) -> bool:
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower() in _AGGREGATES
    return isinstance(node, exp.AggFunc)


def function_name(node: Any) -> str:
    """What a call is a call of, in lower case."""
    return str(node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()


def aggregates(select: Any) -> list[Any]:
    """The calls of aggregates in this SELECT, not in one inside it."""
    return [node for node in in_scope(select, exp.Func) if is_aggregate(node)]


def shape(root: Any, query: Any) -> QueryShape:
    """The shape of `query`, which is `root` or a part of it."""
    if isinstance(query, exp.Subquery):
        return shape(root, query.this)
    if isinstance(query, exp.SetOperation):
        return _set_operation(root, query)
    if not isinstance(query, exp.Select):
        remedy = "write SELECT … FROM a source"
        raise refuse(root, "a view's query is a SELECT", query, remedy)
    found = tuple(outputs(root, query))
    grouped = query.args.get("group") is not None or _has_aggregate(query)
    distinct = query.args.get("distinct")
    inner = [select for select in query.find_all(exp.Select) if select is not query and _aggregates(select)]
    window = _any_window(root, query)
    if not (grouped or distinct or inner):
        return QueryShape(found)
    problem: StatementError | None
    if inner:
        if grouped or distinct:
            problem = refuse(
                root, "an aggregate of an aggregate cannot be kept up to date", inner[0], _INNER_VIEW
            )
            return QueryShape(found, True, window, problem=problem)
        return _passed_through(root, query, found, window, inner[0])
    if distinct:
        return _distinct(root, query, found, window, bool(grouped))
    keys, problem = _keys(root, query, found)
    return QueryShape(found, True, window, keys, problem, _having(root, query, window))


def _having(root: Any, select: Any, window: WindowKind | None) -> StatementError | None:
    """Spark does not put a group out again that no longer passes, so it would stay in the view for ever."""
    having = select.args.get("having")
    if having is None:
        return None
    remedy = "leave HAVING out and filter when you SELECT from the view" + (_OR_CLOSE if window else "")
    return refuse(root, "HAVING cannot take back a group that no longer passes it", having, remedy)


def _aggregates(select: Any) -> bool:
    return bool(select.args.get("group") or select.args.get("distinct") or _has_aggregate(select))


def _has_aggregate(select: Any) -> bool:
    return bool(aggregates(select))


def _any_window(root: Any, query: Any) -> WindowKind | None:
    windows = [group_window(root, select) for select in query.find_all(exp.Select)]
    return next((window.kind for window in windows if window), None)


def _set_operation(root: Any, query: Any) -> QueryShape:
    if not isinstance(query, exp.Union):
        name = type(query).__name__.upper()
        remedy = _EACH_VIEW.format(name)
        raise refuse(root, f"{name} of streams is not supported", query.expression, remedy)
    left, right = shape(root, query.this), shape(root, query.expression)
    window = left.window or right.window
    every = not query.args.get("distinct")
    if left.aggregated or right.aggregated:
        remedy = _EACH_VIEW.format("UNION ALL" if every else "UNION")
        # Every part must end by itself, and DISTINCT never does.
        if every and all(part.window or not part.aggregated for part in (left, right)):
            remedy += _OR_CLOSE
        problem = refuse(root, "a UNION of aggregates cannot be kept up to date", query.expression, remedy)
        return QueryShape(left.outputs, True, window, problem=problem)
    if every:
        return QueryShape(left.outputs)
    return _all_keys(root, query, left.outputs, window)


def _distinct(
    root: Any, select: Any, found: tuple[OutputColumn, ...], window: WindowKind | None, grouped: bool
) -> QueryShape:
    if select.args["distinct"].args.get("on"):
        raise refuse(root, "DISTINCT ON is not supported", select.args["distinct"], "write GROUP BY")
    if grouped:
        problem = refuse(
            root, "DISTINCT of an aggregate cannot be kept up to date", select, "leave out DISTINCT"
        )
        return QueryShape(found, True, window, problem=problem)
    return _all_keys(root, select, found, window)


def _all_keys(
    root: Any, query: Any, found: tuple[OutputColumn, ...], window: WindowKind | None
) -> QueryShape:
    names = [out.name for out in found]
    if None in names:
        remedy = "name the columns instead of *"
        problem = refuse(root, "DISTINCT * does not say which columns tell rows apart", query, remedy)
        return QueryShape(found, True, window, problem=problem)
    return QueryShape(found, True, window, tuple(name for name in names if name))


def _keys(
    root: Any, select: Any, found: tuple[OutputColumn, ...]
) -> tuple[tuple[str, ...], StatementError | None]:
    """Output columns for the GROUP BY keys; a global aggregate has none."""
    group = select.args.get("group")
    if group is None:
        return (), None
    if group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        raise refuse(root, "ROLLUP, CUBE and GROUPING SETS are not supported", group, "write a view for each")
    if group.args.get("all"):
        plain = [out for out in found if out.name and not any(map(is_aggregate, out.expression.walk()))]
        return tuple(out.name for out in plain if out.name), None
    keys: list[str] = []
    window = group_window(root, select)
    for key in group.expressions:
        named = _key_outputs(key, found, window)
        if not named:
            what = "window_start or window_end" if isinstance(key, EventWindow) else str(key.sql("forebay"))
            remedy = f"add {what} to the SELECT list"
            message = f"the view cannot tell its groups apart: {what} is in GROUP BY but not in SELECT"
            return (), refuse(root, message, key, remedy)
        keys += [name for name in named if name not in keys]
    return tuple(keys), None


def _key_outputs(key: Any, found: tuple[OutputColumn, ...], window: Window | None) -> list[str]:
    named = [out for out in found if out.name]
    if isinstance(key, EventWindow):
        return [out.name for out in named if out.name and _is_window(out.expression, window)]
    if isinstance(key, exp.Literal) and not key.is_string and str(key.name).isdigit():
        at = int(key.name) - 1
        out = found[at] if 0 <= at < len(found) else None
        return [out.name] if out and out.name else []
    wanted = normal(key)
    matches = [out.name for out in named if out.name and normal(out.expression) == wanted]
    if not matches and isinstance(key, exp.Column) and not key.table:
        matches = [out.name for out in named if out.name and out.name.lower() == key.name.lower()]
    return matches[:1]


def _is_window(node: Any, window: Window | None) -> bool:
    """Whether an output is the window, its start or its end, in any of the ways to write that."""
    if isinstance(node, EventWindow):
        return True
    if isinstance(node, exp.Dot):
        return isinstance(node.this, EventWindow) and node.name.lower() in ("start", "end")
    if not isinstance(node, exp.Column) or window is None:
        return False
    name, qualifier = node.name.lower(), node.table.lower()
    if qualifier == window.function:
        return name in ("start", "end")
    return not qualifier and (name in window.bounds or name == window.function)


def _passed_through(
    root: Any, select: Any, found: tuple[OutputColumn, ...], window: WindowKind | None, inner: Any
) -> QueryShape:
    """`SELECT … FROM (aggregate)` with nothing but a choice of columns keeps the aggregate's keys."""
    source = select.args["from_"].this if select.args.get("from_") else None
    # With nothing but a WHERE around it, a window that is over is let through or not.
    closes = window and isinstance(source, exp.Subquery) and not select.args.get("joins")
    remedy = _INNER_VIEW + (_OR_CLOSE if closes else "")
    message = "an aggregate inside a query cannot be kept up to date"
    blocked = QueryShape(found, True, window, problem=refuse(root, message, inner, remedy))
    if isinstance(source, exp.Table):
        # A table of windows may hold a row more than once.
        source = None if isinstance(source, WindowTable) else resolve_cte(source)
    if source is None or any(select.args.get(part) for part in ("where", "joins", "laterals", "qualify")):
        return blocked
    below = shape(root, source)
    others = [found_inner for found_inner in select.find_all(exp.Select) if found_inner is not select]
    inside = {id(node) for node in source.find_all(exp.Select)}
    if not below.aggregated or any(_aggregates(node) and id(node) not in inside for node in others):
        return blocked
    problem = below.problem or below.having
    if problem or (any(out.name is None for out in found) and len(found) > 1):
        return replace(blocked, problem=problem or blocked.problem)
    if found[0].name is None:
        return replace(below, window=window)
    keys = []
    for key in below.keys:
        out = next((out for out in found if _refers_to(out.expression, key)), None)
        if out is None or out.name is None:
            remedy = f"add {key} to the outer SELECT list"
            return replace(
                blocked,
                problem=refuse(
                    root, f"the view cannot tell its groups apart: {key} is missing", select, remedy
                ),
            )
        keys.append(out.name)
    return QueryShape(found, True, window, tuple(keys))


def _refers_to(node: Any, name: str) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() == name.lower()
