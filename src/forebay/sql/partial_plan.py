"""What a source can add up by itself before Spark does: then a few rows travel where there were millions.

The source groups its rows by every column that the query looks at outside its aggregates, and by the pane of
an event-time window: the longest span that no window's edge divides. Spark groups again, as the query says.
Groups that are finer than the query's are therefore always right, and nothing else of the query changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from sqlglot import exp

from forebay import column_types as types
from forebay.expression import Expression
from forebay.partial import Part, Partial, PartialFunction
from forebay.sql.ast import EventWindow, WindowTable
from forebay.sql.dialect import Forebay
from forebay.sql.expressions import conjuncts, connected, safe
from forebay.sql.rewrite import Edit
from forebay.sql.shape import QueryShape, aggregates, function_name, is_aggregate
from forebay.sql.source_columns import Named, columns_named, is_column
from forebay.sql.window_tables import FLINK_BOUNDS
from forebay.sql.windows import group_window, read_window
from forebay.sql.zsets import FICKLE

PREFIX = "_forebay_part_"
_NUMBERS = (*types.BITS, types.FLOAT, types.DOUBLE)
_STAMPS = (types.TIMESTAMP, types.TIMESTAMP_NTZ)
_TIMES = (*_STAMPS, types.DATE)
# What a WHERE alone looks at is a key here too: not worth it for what is another value in each row.
_FEW = (types.BOOLEAN, types.TINYINT, types.SMALLINT, types.INT, types.DATE, types.STRING)
# What a WHERE says of event time comes after the watermark, as in Spark.
_ASKED = (*_NUMBERS, types.STRING, types.BOOLEAN)
_KEYS = (*_NUMBERS, *_TIMES, types.BOOLEAN, types.STRING)


@dataclass(frozen=True)
class Help:
    """What the source does before Spark does the rest, and what that changes in the query's text."""

    condition: Expression | None = None
    partial: Partial | None = None
    edits: tuple[Edit, ...] = ()


def help_with(query: Any, found: QueryShape, schema: pa.Schema, *, adding: bool) -> Help:
    """How the source can help: by leaving out rows, and where `adding`, by adding up."""
    columns = {field.name.lower(): field for field in schema}
    if not _is_plain(query) or len(columns) < len(schema):
        return Help()
    source = query.args["from_"].this
    own = {source.name.lower(), source.alias_or_name.lower(), ""}
    asked = columns_named({name: field for name, field in columns.items() if field.type in _ASKED}, own)
    help_ = _adding(query, found, columns, own, asked) if adding and found.aggregated else None
    return help_ or Help(_some(query, asked))


def _some(query: Any, named: Named) -> Expression | None:
    """As much of the WHERE as a source can ask by itself, of what must all be true."""
    where = query.args.get("where")
    found: Expression | None = None
    for part in conjuncts(where.this) if where else ():
        made = safe(part, named)
        if made is not None and made.type == types.BOOLEAN and not made.is_literal:
            found = made if found is None else connected("and", found, made)
    return found


def _adding(
    query: Any,
    found: QueryShape,
    columns: dict[str, pa.Field],
    own: set[str],
    named: Named,
) -> Help | None:
    if any(name.startswith(PREFIX) for name in columns) or set(FLINK_BOUNDS) & set(columns):
        return None
    parts: dict[tuple[PartialFunction, str, str], Part] = {}
    edits: list[Edit] = []
    where, answered = query.args.get("where"), None
    condition = safe(where.this, named) if where else None
    if condition is not None and condition.type == types.BOOLEAN:
        edits.append(Edit(*_where_span(query), " true "))
        answered = query.args["where"]
    else:
        condition = _some(query, named)
    for node in aggregates(query):
        text = _merged(node, columns, own, parts)
        if text is None:
            return None
        start, end = node.meta["call"]
        edits.append(Edit(start, end, text))
    aliases = {out.name.lower() for out in found.outputs if out.name}
    outside = _outside(query, columns, own, aliases, answered)
    if outside is None:
        return None
    keys, panes = outside
    partial = Partial(tuple(sorted(keys)), tuple(sorted(panes.items())), tuple(parts.values()))
    return Help(condition, partial, tuple(edits))


def _is_plain(query: Any) -> bool:
    """One SELECT over one table, with nothing that is another value each time."""
    source = query.args["from_"].this if isinstance(query, exp.Select) and query.args.get("from_") else None
    if isinstance(source, WindowTable) and not source.args.get("grouped"):
        return False
    if not isinstance(source, exp.Table) or source.args.get("sample") or source.args.get("joins"):
        return False
    if any(query.args.get(part) for part in ("with_", "joins", "laterals", "qualify", "distinct", "pivots")):
        return False
    if len(list(query.find_all(exp.Query))) > 1 or _selects_star(query):
        return False
    return not any(function_name(node) in FICKLE for node in query.find_all(exp.Func))


def _selects_star(query: Any) -> bool:
    return any(not isinstance(star.parent, exp.Count) for star in query.find_all(exp.Star))


def _where_span(query: Any) -> tuple[int, int]:
    """Where the condition of WHERE stands."""
    first, last = query.meta["span"]
    start, depth = last, 0
    for token in Forebay().tokenize(query.meta["script"][first:last]):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        word = token.text.upper() if depth == 0 else ""
        if word == "WHERE":
            start = first + token.end + 1
        elif word.split(" ")[0] in ("GROUP", "HAVING") and start < last:
            return start, first + token.start
    return start, last


def _merged(
    node: Any,
    columns: dict[str, pa.Field],
    own: set[str],
    parts: dict[tuple[PartialFunction, str, str], Part],
) -> str | None:
    """What stands for an aggregate over the rows: the same over the parts. None where that is not the same."""
    argument = node.this
    if "call" not in node.meta or isinstance(node.parent, exp.Filter | exp.Window | exp.WithinGroup):
        return None
    if node.args.get("expressions") or isinstance(argument, exp.Distinct):
        return None

    def part(function: PartialFunction, column: str, kind: Literal["bigint", "double", "same"]) -> str:
        key = (function, column, kind)
        parts.setdefault(key, Part(f"{PREFIX}{len(parts)}", function, column, kind))
        return parts[key].name

    if isinstance(node, exp.Count) and isinstance(argument, exp.Star | exp.Literal):
        return f"coalesce(sum({part('count_all', '', 'bigint')}), 0L)"
    field = columns.get(argument.name.lower()) if is_column(argument, own) else None
    if field is None:
        return None
    if isinstance(node, exp.Count):
        return f"coalesce(sum({part('count', field.name, 'bigint')}), 0L)"
    if isinstance(node, exp.Min | exp.Max) and field.type in (*_NUMBERS, *_TIMES):
        which: PartialFunction = "min" if isinstance(node, exp.Min) else "max"
        return f"{which}({part(which, field.name, 'same')})"
    if isinstance(node, exp.Sum) and field.type in _NUMBERS:
        kind: Literal["bigint", "double"] = "bigint" if field.type in types.BITS else "double"
        return f"sum({part('sum', field.name, kind)})"
    if isinstance(node, exp.Avg) and field.type in _NUMBERS:
        total, count = part("sum", field.name, "double"), part("count", field.name, "bigint")
        return f"try_divide(sum({total}), sum({count}))"
    return None


def _outside(
    query: Any, columns: dict[str, pa.Field], own: set[str], aliases: set[str], answered: Any
) -> tuple[set[str], dict[str, int]] | None:
    """Columns that the query looks at outside its aggregates; those that are only in a window have a pane.

    Those of a WHERE that the source has `answered` are not looked at any more.
    """
    window = group_window(query, query)
    keys: set[str] = set()
    panes: dict[str, int] = {}
    for column in query.find_all(exp.Column):
        if any(is_aggregate(node) or node is answered for node in _above(column)):
            continue
        name, qualifier = column.name.lower(), column.table.lower()
        if window is not None and (
            qualifier == window.function or (not qualifier and name in (*window.bounds, window.function))
        ):
            continue
        if name not in columns:
            if not qualifier and name in aliases:
                continue  # what stands behind it is looked at where it is written
            return None
        if not is_column(column, own):
            return None
        field = columns[name]
        call = column.find_ancestor(EventWindow)
        if call is not None:
            width = _pane(query, call, column) if field.type in _STAMPS else None
            if width is None or panes.setdefault(field.name, width) != width:
                return None
        elif _is_key(field.type, few=column.find_ancestor(exp.Where) is not None):
            keys.add(field.name)
        else:
            return None
    return (keys, {name: width for name, width in panes.items() if name not in keys})


def _is_key(kind: pa.DataType, *, few: bool) -> bool:
    return kind in _FEW if few else kind in _KEYS or isinstance(kind, pa.Decimal128Type)


def _above(node: Any) -> Iterator[Any]:
    while node.parent is not None:
        node = node.parent
        yield node


def _pane(query: Any, call: Any, column: Any) -> int | None:
    window = read_window(query, call)
    if window.native or window.kind == "session" or call.expressions[0] is not column:
        return None
    return math.gcd(*window.sizes) * 1000
