"""The nodes of Forebay's own statements, beside those of sqlglot.

They hold what was written, in the order it was written; `lower` turns them into the statements the
rest of the system sees, of the same names without `Node`. Each has its place in the script as `meta["span"]`.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp


class OptionNode(exp.Expression):
    """`key = value`. `quoted` keys are taken verbatim, bare ones are spelt with underscores or dots."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "value": True, "quoted": False}


class ColumnSpec(exp.Expression):
    """`name TYPE [NOT NULL]`; `kind` is sqlglot's DataType, or the bare name of a type it does not know."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "nullable": True}


class WatermarkSpec(exp.Expression):
    """`WATERMARK FOR column [AS expression] [PER KEY key]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": False, "key": False}


class LateClauses(exp.Expression):
    """`ALLOW LATENESS interval` and `LATE DATA TO name | DEAD LETTERS`; `letters` is set for the latter."""

    arg_types: ClassVar[dict[str, bool]] = {"lateness": False, "table": False, "letters": False}


class FormatClause(exp.Expression):
    """`FORMAT name [(options)]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": True}


class Include(exp.Expression):
    """`KEY [AS name]`, and so on: a part of the record that becomes a column."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "alias": True}


class OnErrorClause(exp.Expression):
    """`ON ERROR = strategy [WITH (options)]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": True}


class CreateSourceNode(exp.Expression):
    """`CREATE SOURCE` in either spelling; `connector` is set in the FROM spelling only."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "columns": False,
        "connector": False,
        "options": True,
        "format": False,
        "registry": False,
        "include": False,
        "on_error": False,
        "exists": True,
        "replace": True,
    }


class AlterSourceNode(exp.Expression):
    """`ALTER SOURCE name ON ERROR = …`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "on_error": True}


class SetSourceNode(exp.Expression):
    """`ALTER SOURCE name SET (options)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": True}


class CreateViewNode(exp.Expression):
    """`CREATE MATERIALIZED VIEW name [WITH (options)] AS query [EMIT …] [ALLOW LATENESS …] [LATE DATA TO …]`."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "options": True,
        "query": True,
        "emit": False,
        "late": False,
        "exists": True,
        "replace": True,
    }


class DropNode(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "exists": True, "cascade": True}


class ShowNode(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"kind": True}


class ShowCreateNode(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class DescribeNode(exp.Expression):
    """`kind` is None where it was not said: a source and a view cannot have the same name."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": False, "extended": True}


class RunView(exp.Expression):
    """`START VIEW name`, `STOP VIEW name` or `ALTER VIEW name DETACH`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "verb": True}


class FlowNode(exp.Expression):
    """`PAUSE SOURCE name` or `RESUME SOURCE name`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "verb": True}


class ExplainNode(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class SubscribeNode(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class DeadLettersNode(exp.Expression):
    """`REPLAY | DISCARD | REOPEN | RECOVER DEAD LETTERS FROM source …`; `this` is the source, `verb` the first word."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "verb": True,
        "where": False,
        "target": False,
        "patch": False,
        "reason": False,
        "dry_run": False,
    }


class SelectStatement(exp.Expression):
    """A query that stands alone."""

    arg_types: ClassVar[dict[str, bool]] = {"query": True}


class EventWindow(exp.Expression, exp.Func):
    """`TUMBLE(ts, size)`, `HOP_START(ts, slide, size)`, `window(ts, '1 minute')`, …

    `name` is the function as written. meta: `name` and `span` are offsets of the name and of the whole
    call, `first_end` and `close` the ends of the first argument and of the argument list: planning
    edits the text in between and leaves the rest as the user wrote it.

    `flink` is set for one that comes of a table of windows in Flink's style. In GROUP BY, such a window stands where
    `window_start` was written (`span`); `dropped` are the places of the other bounds there, `qualifier` is the
    table's name where it must be said.
    """

    arg_types: ClassVar[dict[str, bool]] = {"name": True, "expressions": True, "flink": False}
    is_var_len_args = True


class WindowTable(exp.Table):
    """`TUMBLE(TABLE t, DESCRIPTOR(ts), size)` where a table stands; `this` is `t`, `window` an EventWindow.

    `grouped` is set where the query groups by the window. meta: `table_span` is the place of the whole call.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        **exp.Table.arg_types,
        "window": True,
        "partition_keys": True,
        "grouped": False,
    }
