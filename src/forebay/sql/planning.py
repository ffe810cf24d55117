"""From a view's query to the SQL that Spark runs and the way its result is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from sqlglot import exp

from forebay.errors import StatementError, UnsupportedSqlError
from forebay.expression import Expression
from forebay.partial import Partial
from forebay.sql.ast import WindowTable
from forebay.sql.partial_plan import Help, help_with
from forebay.sql.rewrite import Edit, apply, located, refuse
from forebay.sql.select_outputs import bound_aliases
from forebay.sql.shape import QueryShape, shape
from forebay.sql.statements import Emit
from forebay.sql.table_names import rename_edits, tables
from forebay.sql.view_program import program_of
from forebay.sql.windows import WindowKind, window_edits
from forebay.sql.zsets import ChangeLog, Kept, weigh

_ORDERING = {
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
}


@dataclass(frozen=True)
class ViewPlan:
    """How a view is computed and written.

    `emit`: "append" adds rows as they come, "window_close" adds each window once it is complete,
    "changes" replaces the rows whose `merge_keys` are equal. Keys may be NULL: compare with `<=>`.
    Without keys, a "changes" view is one row, which is replaced.

    `kept` is set for a view over a change log, whose result has one column more, `_weight`: "rows" adds up
    the weights of equal rows, "groups" replaces the rows whose `merge_keys` are equal. A row of weight 0 is
    gone, but for the one row of a view without keys.

    `condition` is what its one source asks of its rows before, `partial` what it adds up, in columns of their
    own that `spark_sql` reads. `plain`: rows of one table are passed on, each by itself. `only_tasks` is why Spark cannot run
    it, though tasks can.
    """

    spark_sql: str
    tables: tuple[str, ...]
    aggregated: bool
    window: WindowKind | None
    emit: Literal["append", "changes", "window_close"]
    merge_keys: tuple[str, ...]
    kept: Kept | None = None
    condition: Expression | None = None
    partial: Partial | None = None
    plain: bool = False
    only_tasks: StatementError | None = None

    def for_spark(self) -> ViewPlan:
        """The plan, if Spark can run it."""
        if self.only_tasks is not None:
            raise self.only_tasks
        return self


def plan(
    query: Any,
    emit: Emit | None,
    mapping: Mapping[str, str] | None = None,
    change_logs: Mapping[str, ChangeLog] | None = None,
    columns: pa.Schema | None = None,
    *,
    adding: bool = False,
) -> ViewPlan:
    """Compile a view's query.

    `mapping` gives the temporary view to read for each table name, `change_logs` those tables that are one,
    `columns` those of the one source that can help, and `adding` whether it may add up for the query.
    """
    query = located(query)
    _check(query)
    found = shape(query, query)
    named = [out.edit for out in found.outputs if out.edit]
    edits = [*window_edits(query), *named, *_bounds(query), *rename_edits(query, mapping or {})]
    weighed = None
    for name in tables(query):
        if name in (change_logs or {}):
            weighed = weigh(query, found, emit, (change_logs or {})[name], edits)
            # A whole call is replaced, with what is edited within it.
            within = [edit for edit in edits if not any(_holds(whole, edit) for whole in weighed.edits)]
            edits = [*within, *weighed.edits]
    help_ = Help()
    if columns is not None and weighed is None:
        help_ = help_with(query, found, columns, adding=adding)
        edits += help_.edits
    if found.having is not None and (weighed or columns is None or program_of(query, found, columns) is None):
        found = replace(found, problem=found.having)
    mode = "changes" if weighed and not found.aggregated else _mode(query, found, emit)
    return ViewPlan(
        spark_sql=apply(query, dict.fromkeys(edits)),  # the outermost bounds are in there twice
        tables=tables(query),
        aggregated=found.aggregated,
        window=found.window,
        emit=mode,
        merge_keys=found.keys if mode == "changes" else (),
        kept=weighed.kept if weighed else None,
        condition=help_.condition,
        partial=help_.partial,
        plain=mode == "append" and weighed is None and _is_plain(query),
        only_tasks=found.having if mode == "changes" else None,
    )


def _is_plain(query: Any) -> bool:
    several = any(select is not query for select in query.find_all(exp.Query, WindowTable))
    return isinstance(query, exp.Select) and not several and not query.args.get("joins")


def _holds(whole: Edit, part: Edit) -> bool:
    return whole.start <= part.start < whole.end and part.end <= whole.end


def plan_select(query: Any, mapping: Mapping[str, str] | None = None) -> str:
    """Spark SQL of a query that runs once: tables renamed, windows translated, all else as written."""
    query = located(query)
    return apply(query, [*window_edits(query), *_bounds(query), *rename_edits(query, mapping or {})])


def _bounds(query: Any) -> list[Edit]:
    return [edit for select in query.find_all(exp.Select) for edit in bound_aliases(query, select)]


def _check(query: Any) -> None:
    for part in query.find_all(exp.Query):
        for arg, clause in _ORDERING.items():
            if part.args.get(arg):
                remedy = "leave it out, and order or limit when you SELECT from the view"
                raise refuse(
                    query, f"{clause} in a view: a view is a table, without order", part.args[arg], remedy
                )
    for node, what in ((exp.Window, "OVER (…)"), (exp.Pivot, "PIVOT")):
        found = query.find(node)
        if found:
            remedy = "make a view of the rows, and compute it when you SELECT from that view; or group by TUMBLE or HOP"
            raise refuse(query, f"{what} is not supported on a stream", found, remedy)
    if not tables(query):
        raise refuse(query, "the view reads from nothing", query, "name a source: SELECT … FROM source")


def _mode(query: Any, found: QueryShape, emit: Emit | None) -> Literal["append", "changes", "window_close"]:
    if emit == "window_close":
        problem = found.problem or found.having
        if found.window is None and problem:
            raise problem
        if found.window is None:
            remedy = "add TUMBLE(ts, INTERVAL '1' MINUTE) to GROUP BY, or write EMIT CHANGES"
            raise _about(query, "EMIT ON WINDOW CLOSE, but there is no window that could close", remedy)
        return "window_close"
    if not found.aggregated:
        return "append"
    if found.window == "session":
        remedy = "add EMIT ON WINDOW CLOSE"
        raise _about(query, "Spark cannot update a session window: it grows and merges with others", remedy)
    if found.problem:
        raise found.problem
    return "changes"


def _about(query: Any, message: str, remedy: str) -> UnsupportedSqlError:
    error = refuse(query, message, query, remedy)
    assert isinstance(error, UnsupportedSqlError)
    return error
