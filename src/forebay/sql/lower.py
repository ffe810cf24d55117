"""From the parsed nodes to statements: keys normalised, types resolved, contradictions refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from sqlglot import exp

from forebay.errors import Position, SqlSyntaxError, StatementError, UnsupportedSqlError
from forebay.sql import ast
from forebay.sql import statements as st
from forebay.sql.faults import did_you_mean
from forebay.sql.intervals import EXAMPLE, IntervalError, interval_ms
from forebay.sql.positions import Script, span

_WATERMARK_HINT = "write WATERMARK FOR {0} AS {0} - INTERVAL '5' SECOND"
_ADDS_COLUMN = re.compile(r"include\.[a-z]+\.as")
_ALIASES = {"brokers": "bootstrap.servers"}


class Lowering:
    """One statement's way from AST to dataclass; knows the script for the sake of positions."""

    def __init__(self, script: Script, start: int, end: int) -> None:
        self.script = script
        self.common: dict[str, Any] = {
            "text": script.text[start:end],
            "script": script.text,
            "position": script.position(start, end),
        }

    def statement(self, node: Any) -> st.Statement:
        match node:
            case ast.CreateSourceNode():
                return self._create_source(node)
            case ast.AlterSourceNode():
                return st.AlterSource(node.name, self._on_error(node.args["on_error"]), **self.common)
            case ast.SetSourceNode():
                return st.SetSource(
                    node.name, self._options(node.args["options"], _source_key), **self.common
                )
            case ast.CreateViewNode():
                return st.CreateView(
                    name=node.name,
                    query=node.args["query"],
                    options=self._options(node.args["options"], _source_key),
                    emit=node.args.get("emit"),
                    late=self._late(node.args.get("late")),
                    if_not_exists=node.args["exists"],
                    or_replace=node.args["replace"],
                    **self.common,
                )
            case ast.DropNode():
                args = node.args
                return st.Drop(args["kind"], node.name, args["exists"], args["cascade"], **self.common)
            case ast.ShowNode():
                return st.Show(node.args["kind"], **self.common)
            case ast.ShowCreateNode():
                return st.ShowCreate(node.args["kind"], node.name, **self.common)
            case ast.DescribeNode():
                return st.Describe(node.args.get("kind"), node.name, node.args["extended"], **self.common)
            case ast.RunView():
                return self._run_view(node)
            case ast.FlowNode():
                made = st.PauseSource if node.args["verb"] == "pause" else st.ResumeSource
                return made(node.name, **self.common)
            case ast.SelectStatement():
                return st.Select(node.args["query"], **self.common)
            case ast.SubscribeNode():
                return st.Subscribe(node.name, **self.common)
            case ast.DeadLettersNode():
                return self._dead_letters(node)
            case ast.ExplainNode():
                inner = Lowering(self.script, *node.this.meta["span"]).statement(node.this)
                assert isinstance(inner, st.Select | st.CreateView | st.CreateSource)
                return st.Explain(inner, **self.common)
        raise AssertionError(f"no statement is made of {type(node).__name__}")

    def _run_view(self, node: Any) -> st.Statement:
        match node.args["verb"]:
            case "start":
                return st.StartView(node.name, **self.common)
            case "stop":
                return st.StopView(node.name, **self.common)
        return st.DetachView(node.name, **self.common)

    def _dead_letters(self, node: Any) -> st.Statement:
        args = node.args
        where, dry_run = args.get("where"), bool(args.get("dry_run"))
        if args["verb"] == "replay":
            target, patch = args.get("target"), args.get("patch")
            return st.ReplayDeadLetters(node.name, where, target, patch, dry_run, **self.common)
        if args["verb"] == "discard":
            return st.DiscardDeadLetters(node.name, where, args.get("reason"), dry_run, **self.common)
        if args["verb"] == "reopen":
            return st.ReopenDeadLetters(node.name, where, dry_run, **self.common)
        return st.RecoverDeadLetters(node.name, dry_run, **self.common)

    def _position(self, node: Any) -> Position | None:
        found = span(node)
        return self.script.position(*found) if found else None

    def _error(self, message: str, node: Any, remedy: str = "") -> SqlSyntaxError:
        return SqlSyntaxError(
            message, remedy=remedy, position=self._position(node), statement=self.script.text
        )

    def _create_source(self, node: Any) -> st.CreateSource:
        included = self._included(node.args.get("include") or [])
        options = self._options(node.args["options"], _source_key)
        columns, watermark = self._columns(node.args.get("columns") or [], included, options)
        connector = node.args.get("connector")
        if connector is None:
            if "connector" not in options:
                raise self._error("WITH (…) names no connector", node.this, "add 'connector' = 'kafka'")
            connector = options.pop("connector").text.lower()
            spelling = "with"
        else:
            if "connector" in options:
                raise SqlSyntaxError(
                    "the connector is named twice",
                    remedy=f"FROM {connector.upper()} has named it: remove 'connector'",
                    position=options["connector"].position,
                    statement=self.script.text,
                )
            spelling = "from"
        self._clauses(node, options)
        self._include(included.values(), options)
        on_error = node.args.get("on_error")
        return st.CreateSource(
            name=node.name,
            columns=columns,
            watermark=watermark,
            connector=connector,
            options=options,
            on_error=self._on_error(on_error) if on_error else None,
            if_not_exists=node.args["exists"],
            or_replace=node.args["replace"],
            spelling="with" if spelling == "with" else "from",
            **self.common,
        )

    def _clauses(self, node: Any, options: dict[str, st.OptionValue]) -> None:
        """FORMAT and USING SCHEMA REGISTRY are options under another name."""
        clause = node.args.get("format")
        if clause:
            if "format" in options:
                raise self._error("the format is given twice", clause, "remove option 'format' or the clause")
            options["format"] = st.OptionValue(clause.name, self._position(clause))
            self._options(
                clause.args["options"], lambda option: f"{clause.name}.{_plain_key(option)}", options
            )
        registry = node.args.get("registry") or []
        self._options(registry, lambda option: f"schema.registry.{_plain_key(option)}", options)

    def _included(self, nodes: Iterable[Any]) -> dict[str, Any]:
        """By the name of the column, in lower case."""
        found: dict[str, Any] = {}
        for node in nodes:
            name = node.args["alias"]
            if name.lower() in found:
                raise self._error(
                    f"INCLUDE names two columns '{name}'", node, "give one of them another name"
                )
            found[name.lower()] = node
        return found

    def _include(self, nodes: Iterable[Any], options: dict[str, st.OptionValue]) -> None:
        """INCLUDE is options under another name, too."""
        for node in nodes:
            key = f"include.{node.name}.as"
            if key in options:
                raise self._error(f"{node.name.upper()} is included twice", node, "remove one of the two")
            options[key] = st.OptionValue(node.args["alias"], self._position(node))

    def _options(
        self,
        nodes: Iterable[Any],
        key_of: Callable[[Any], str],
        into: dict[str, st.OptionValue] | None = None,
    ) -> dict[str, st.OptionValue]:
        found = {} if into is None else into
        for node in nodes:
            key = key_of(node)
            if key in found:
                spelt = f" ('{node.name}' is another way to write it)" if node.name != key else ""
                raise self._error(f"option '{key}' is given twice{spelt}", node, "remove one of the two")
            found[key] = st.OptionValue(node.args["value"], self._position(node))
        return found

    def _on_error(self, node: Any) -> st.OnError:
        options = self._options(node.args["options"], lambda option: option.name.lower().replace(".", "_"))
        return st.OnError(node.name, options, self._position(node))

    def _columns(
        self, nodes: list[Any], included: dict[str, Any], options: dict[str, st.OptionValue]
    ) -> tuple[tuple[st.Column, ...], st.Watermark | None]:
        from forebay.sql.types import arrow_type  # a SELECT has no types

        columns: dict[str, st.Column] = {}
        watermarks = [node for node in nodes if isinstance(node, ast.WatermarkSpec)]
        for node in nodes:
            if isinstance(node, ast.WatermarkSpec):
                continue
            if node.name.lower() in columns:
                remedy = "names of columns differ in more than upper and lower case"
                raise self._error(f"column '{node.name}' is declared twice", node.this, remedy)
            try:
                kind = arrow_type(node.args["kind"])
            except StatementError as error:
                raise error.at(self._position(node.args["kind"]), self.script.text) from None
            columns[node.name.lower()] = st.Column(node.name, kind, node.args["nullable"])
        if len(watermarks) > 1:
            raise self._error("there is a second watermark", watermarks[1], "a source has one event time")
        if nodes and not columns:
            raise self._error("the list of columns holds no column", nodes[0], "declare the columns first")
        for name, node in included.items():
            if name in columns:
                remedy = f"write INCLUDE {node.name.upper()} AS another name"
                raise self._error(f"column '{columns[name].name}' is declared already", node, remedy)
        names = {name: column.name for name, column in columns.items()}
        names |= {name: node.args["alias"] for name, node in included.items()}
        names |= {
            value.text.lower(): value.text for key, value in options.items() if _ADDS_COLUMN.fullmatch(key)
        }
        watermark = self._watermark(watermarks[0], names) if watermarks else None
        return tuple(columns.values()), watermark

    def _watermark(self, node: Any, columns: dict[str, str]) -> st.Watermark:
        column = columns.get(node.name.lower())
        if column is None:
            guess = did_you_mean(node.name, [name.upper() for name in columns])
            known = next((found for found in columns.values() if found.upper() == guess), None)
            remedy = f"did you mean {known}?" if known else "declare the column, with type TIMESTAMP"
            raise self._error(f"WATERMARK FOR '{node.name}': no such column", node.this, remedy)
        expression, by = node.args.get("expression"), node.args.get("key")
        key = columns.get(by.name.lower()) if by else None
        if by and (key is None or key == column):
            known = "is the watermark's own column" if key else "no such column"
            raise self._error(
                f"PER KEY '{by.name}': {known}", by, "name the column that tells the keys apart"
            )
        delay = None if expression is None else self._delay(expression, column)
        return st.Watermark.of(column, delay, key)

    def _late(self, node: Any) -> st.LateClause:
        """ALLOW LATENESS and LATE DATA TO."""
        if node is None:
            return st.LateClause()
        lateness, table = node.args.get("lateness"), node.args.get("table")
        allowed = 0
        if lateness is not None:
            try:
                allowed = interval_ms(lateness)
            except IntervalError as error:
                raise self._error(f"ALLOW LATENESS: {error}", lateness, EXAMPLE) from None
            if allowed < 0:
                raise self._error("the allowed lateness is negative", lateness, EXAMPLE)
        return st.LateClause(allowed, table.name if table else None, bool(node.args.get("letters")))

    def _delay(self, expression: Any, column: str) -> int:
        inner = expression.unnest()
        subtracts = isinstance(inner, exp.Sub)
        base = inner.this if subtracts else inner
        if not isinstance(base, exp.Column) or base.table or base.name.lower() != column.lower():
            remedy = _WATERMARK_HINT.format(column)
            raise UnsupportedSqlError(
                f"a watermark is its own column '{column}', less an interval",
                remedy=remedy,
                position=self._position(expression),
                statement=self.script.text,
            )
        if not subtracts:
            return 0
        try:
            delay = interval_ms(inner.expression)
        except IntervalError as error:
            raise self._error(f"the watermark's delay: {error}", expression, EXAMPLE) from None
        if delay < 0:
            raise self._error("the watermark's delay is negative", expression, EXAMPLE)
        return delay


def _plain_key(node: Any) -> str:
    return str(node.name) if node.args["quoted"] else str(node.name).lower().replace("_", ".")


def _source_key(node: Any) -> str:
    key = _plain_key(node)
    return _ALIASES.get(key, key)
