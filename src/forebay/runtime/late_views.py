"""ALLOW LATENESS and LATE DATA TO: whether a view can have them."""

from __future__ import annotations

from sqlglot import exp

from forebay import sql
from forebay.connectors.contract import SourceConnector
from forebay.deadletter.policy import ErrorPolicy
from forebay.errors import UnsupportedSqlError
from forebay.program import Grouping, Program
from forebay.source.late_rows import LateTarget
from forebay.source.outlets import closes_by
from forebay.source.stream import EventTime
from forebay.views.groups.of_program import key_of
from forebay.views.paths import ViewPaths

_WINDOW = "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) over the column that WATERMARK FOR names"


def target_of(late: sql.LateClause, paths: ViewPaths) -> LateTarget:
    """As tasks get to know it."""
    return LateTarget(late.allowed_ms, None if late.table is None else str(paths.late), late.letters)


def closes(program: Program, event_time: EventTime | None) -> bool:
    """Whether it has windows that close by the source's watermark."""
    return isinstance(program, Grouping) and closes_by(program, event_time.column if event_time else None)


def closes_once(program: Program, event_time: EventTime | None) -> bool:
    """Whether tasks can give its windows out, once, when they close: all of their groups."""
    return closes(program, event_time) and isinstance(program, Grouping) and program.having is None


def check_keyed(
    statement: sql.CreateView, plan: sql.ViewPlan, program: Program | None, source: str, key: str
) -> None:
    """Of a view over a source whose keys have watermarks of their own: UnsupportedSqlError where they cannot be heeded."""
    remedy = "write GROUP BY TUMBLE(ts, …) and the key; or let it read a source without PER KEY"
    message = f"source '{source}' has a watermark PER KEY, "
    if plan.emit == "window_close" and isinstance(program, Grouping) and key_of(program, key) is None:
        message += f"and view '{statement.name}' does not group by that key: its windows would close for all keys at once"
        raise UnsupportedSqlError(message, remedy=f"add {key} to GROUP BY, or write EMIT CHANGES")
    joins = statement.query.find(exp.Join) is not None
    if program is None and (plan.window is not None or joins):
        message += f"and view '{statement.name}' is run by Spark, which has one watermark for all"
        raise UnsupportedSqlError(message, remedy=remedy)
    window = program.window if isinstance(program, Grouping) else None
    if window is not None and window.slide_us != window.size_us:
        message += f"and view '{statement.name}' has windows that overlap"
        raise UnsupportedSqlError(message, remedy=remedy)


def check_served(
    statement: sql.CreateView,
    program: Program,
    event_time: EventTime | None,
    connector: SourceConnector,
    policy: ErrorPolicy,
) -> None:
    """Of a view that tasks serve: UnsupportedSqlError where its late rows cannot go where it says."""
    late = statement.late
    if late == sql.LateClause():
        return
    if not closes(program, event_time):
        raise _refused(
            statement, "has no window that closes by event time", f"add {_WINDOW}, or leave the clause out"
        )
    if not late.letters:
        return
    source = connector.config.name
    if policy.strategy != "dead_letter":
        raise _refused(
            statement,
            f"reads source '{source}', which has no dead letters",
            f"ALTER SOURCE {source} ON ERROR = dead_letter WITH (dead_letter_topic = '…'), or write LATE DATA TO a name",
        )
    if len(connector.topics() or ()) != 1 or connector.with_places(connector.config) is None:
        raise _refused(
            statement,
            f"reads source '{source}', which is not one topic: a row does not tell which record it is of",
            "write LATE DATA TO a name: a table takes the rows",
        )


def check_spark_run(statement: sql.CreateView, plan: sql.ViewPlan, has_event_time: bool) -> None:
    """Of a view that Spark runs: windows may stay open for longer, but nobody hears which rows Spark leaves out."""
    late = statement.late
    if late == sql.LateClause():
        return
    if plan.window is None or not has_event_time or plan.kept is not None:
        raise _refused(
            statement, "has no window that closes by event time", f"add {_WINDOW}, or leave the clause out"
        )
    if late.kept:
        raise _refused(
            statement,
            "is run by Spark, which leaves late rows out and does not tell which",
            f"write it with EMIT CHANGES and {_WINDOW}: then late rows can be had. "
            "ALLOW LATENESS alone works here, too",
        )


def _refused(statement: sql.CreateView, why: str, remedy: str) -> UnsupportedSqlError:
    clause = "LATE DATA TO" if statement.late.kept else "ALLOW LATENESS"
    return UnsupportedSqlError(f"{clause}: view '{statement.name}' {why}", remedy=remedy)
