"""Views over a change log: the query's own text, with the weights of its rows in it.

A change log says what is added to a table (weight 1) and what is taken back (-1). What a view shows must be
what the query would give on that table. A choice of rows and columns keeps each row's weight; COUNT, SUM and
AVG become sums of weights; a group is there while its weight is not 0. All else would need the whole table
at hand, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import pyarrow as pa
from sqlglot import exp

from forebay import column_types as types
from forebay.sql.dialect import Forebay
from forebay.sql.rewrite import Edit, apply_within, refuse
from forebay.sql.shape import QueryShape, aggregates, function_name
from forebay.sql.statements import Emit
from forebay.sql.text import WEIGHT
from forebay.sql.types import type_name
from forebay.sql.windows import WindowKind

Kept = Literal["rows", "groups"]

_FROM_A_VIEW = "make a view that selects the rows, and compute it when you SELECT from that view"
_ONE_SELECT = f"write it as one SELECT over the source, or {_FROM_A_VIEW}"
# A row that is taken back must be the row that was added: these would make it another one.
FICKLE = frozenset(
    {"rand", "randn", "random", "uuid", "shuffle", "now", "current_timestamp", "current_date", "curdate"}
    | {
        "current_time",
        "localtimestamp",
        "unix_timestamp",
        "monotonically_increasing_id",
        "spark_partition_id",
    }
    | {"input_file_name", "uniform", "randstr"}
)


@dataclass(frozen=True)
class ChangeLog:
    """What planning must know of a source that is one.

    `hidden` are the columns that belong to a change and not to the row (in lower case); `type_of` gives the
    type of an expression over the source, whose name in the query comes second.
    """

    hidden: Collection[str]
    type_of: Callable[[str, str], pa.DataType]


@dataclass(frozen=True)
class Weighed:
    """How the view is kept, and the edits that put the weights into its query."""

    kept: Kept
    edits: tuple[Edit, ...]


def weigh(
    query: Any, found: QueryShape, emit: Emit | None, log: ChangeLog, edits: Collection[Edit]
) -> Weighed:
    """Refuses what cannot be kept up to date. `edits` are those that the query gets besides."""
    _check_form(query, emit, found.window)
    _check_columns(query, found, log)
    problem = found.problem or found.having
    if problem:
        raise problem
    end = query.expressions[-1].meta["span"][1]
    if not found.aggregated:
        star = any(out.name is None for out in found.outputs)
        return Weighed("rows", () if star else (Edit(end, end, f", {WEIGHT}"),))
    if query.args.get("laterals"):
        message = "an aggregate of LATERAL VIEW over a change log cannot be kept up to date"
        raise refuse(query, message, query.args["laterals"][0], _FROM_A_VIEW)
    calls = [_aggregate(query, node, log, edits) for node in aggregates(query)]
    more = [*calls, Edit(end, end, f", SUM({WEIGHT}) AS {WEIGHT}")]
    return Weighed("groups", (*more, *_distinct_edits(query)))


def _check_form(query: Any, emit: Emit | None, window: WindowKind | None) -> None:
    def no(what: str, node: Any, remedy: str = _FROM_A_VIEW) -> NoReturn:
        raise refuse(query, f"{what} over a change log cannot be kept up to date", node, remedy)

    if not isinstance(query, exp.Select):
        no("a UNION", query, "make a view of each part, and write UNION when you SELECT from the views")
    source = query.args["from_"].this if query.args.get("from_") else None
    if (
        not isinstance(source, exp.Table)
        or query.args.get("with_")
        or len(list(query.find_all(exp.Select))) > 1
    ):
        no("a subquery", query, _ONE_SELECT)
    if query.args.get("joins"):
        no("a join", query.args["joins"][0], "make a view of each side, and join the views when you SELECT")
    if source.args.get("sample"):
        no("TABLESAMPLE", source)
    if emit == "window_close":
        message = "a window over a change log never closes: any of its rows may still be taken back"
        raise refuse(query, message, query, "write EMIT CHANGES")
    if window == "session":
        no("a session window", query)
    for node in query.find_all(exp.Func):
        name = function_name(node)
        if name in FICKLE and not (name == "unix_timestamp" and node.this):
            no(f"{name}(), which is another value when the row is taken back,", node, "leave it out")


def _check_columns(query: Any, found: QueryShape, log: ChangeLog) -> None:
    for column in query.find_all(exp.Column):
        if column.name.lower() in log.hidden:
            remedy = "leave it out; a source with FORMAT json on the same topic has the changes themselves"
            message = f"'{column.name}' belongs to a change and not to the row that it changes"
            raise refuse(query, message, column, remedy)
    for out in found.outputs:
        if out.name and out.name.lower() == WEIGHT:
            raise refuse(
                query, f"a view over a change log has no column '{WEIGHT}'", query, "choose another name"
            )


def _aggregate(query: Any, node: Any, log: ChangeLog, edits: Collection[Edit]) -> Edit:
    """One call, with weights in place of rows."""
    script = query.meta["script"]
    start, end = node.meta.get("call", (0, 0))
    argument = node.this
    name = script[start:end].partition("(")[0].strip().upper() or type(node).__name__.upper()
    if (
        isinstance(argument, exp.Distinct)
        or node.args.get("expressions")
        or isinstance(node.parent, exp.Filter)
    ):
        name += " with DISTINCT, FILTER or several arguments"
    if name not in ("COUNT", "SUM", "AVG") or not end:
        remedy = f"COUNT, SUM and AVG can; else: {_FROM_A_VIEW}"
        raise refuse(query, f"{name} over a change log cannot take a row back", node, remedy)
    inside = script.index("(", start) + 1
    text = apply_within(script, inside, end - 1, edits)
    if isinstance(argument, exp.Star) or (isinstance(argument, exp.Literal) and name == "COUNT"):
        return Edit(start, end, f"COALESCE(SUM({WEIGHT}), 0)")
    count = f"SUM(IF(({text}) IS NULL, 0, {WEIGHT}))"
    if name == "COUNT":
        return Edit(start, end, f"COALESCE({count}, 0)")
    alias = query.args["from_"].this.alias_or_name
    kind = log.type_of(script[inside : end - 1], alias)
    return Edit(start, end, _sum(query, node, name, text, count, kind))


def _sum(query: Any, node: Any, name: str, text: str, count: str, kind: pa.DataType) -> str:
    """SUM or AVG, NULL where all values are, as SQL has it: a sum of 0 is not the same as none."""
    if kind in types.BITS:
        # Wider than what is summed: the smallest BIGINT has no counterpart to be taken back by.
        total = f"SUM(CAST(({text}) AS DECIMAL(20, 0)) * {WEIGHT})"
        result = f"CAST({total} AS {'BIGINT' if name == 'SUM' else 'DOUBLE'})"
    elif isinstance(kind, pa.Decimal128Type):
        result = f"SUM(IF({WEIGHT} < 0, -({text}), ({text})))"
    else:
        message = f"{name} of {type_name(kind)} over a change log: what is added and taken back would not cancel out"
        raise refuse(query, message, node, f"cast it: {name}(CAST(… AS DECIMAL(18, 6)))")
    if name == "SUM":
        return f"CASE WHEN {count} <> 0 THEN {result} END"
    mean = f"{result} / NULLIF({count}, 0)"
    if isinstance(kind, pa.Decimal128Type):
        mean = f"CAST({mean} AS DECIMAL({min(kind.precision + 4, 38)}, {min(kind.scale + 4, 38)}))"
    return f"({mean})"


def _distinct_edits(query: Any) -> list[Edit]:
    """SELECT DISTINCT is a group for each row, which is there while its weight is not 0."""
    if not query.args.get("distinct"):
        return []
    start, end = query.meta["span"]
    tokens = Forebay().tokenize(query.meta["script"][start:end])
    word = next(token for token in tokens if token.text.upper() == "DISTINCT")
    return [Edit(start + word.start, start + word.end + 1, ""), Edit(end, end, " GROUP BY ALL")]
