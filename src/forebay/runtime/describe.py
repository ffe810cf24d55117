"""SHOW and DESCRIBE: what exists and how it fares, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from forebay import sql
from forebay.catalog import Catalog, QueryState, Totals
from forebay.deadletter.policy import ErrorPolicy
from forebay.errors import ForebayError
from forebay.runtime.results import Result
from forebay.runtime.sources import Sources, unknown
from forebay.runtime.views import Views


@dataclass(frozen=True)
class SourceStatus:
    """A source as `Session.sources()` gives it."""

    name: str
    connector: str
    format: str | None
    topic: str | None
    group: str | None
    columns: tuple[str, ...]
    views: tuple[str, ...]
    on_error: str = "skip"
    errors_total: int = 0
    dlq_total: int = 0
    rate_limited: int = 0
    waits_for: str | None = (
        None  # the view that is behind the group's offsets, which stand still until it is not
    )


@dataclass(frozen=True)
class QueryStatus:
    """A view's query as `Session.queries()` gives it. `records` counts the rejected ones too."""

    view: str
    state: str
    batch: int
    records: int
    rejected: int
    late: int
    records_per_second: float
    lag: int | None
    batch_ms: int
    message: str


@dataclass(frozen=True)
class SourceLag:
    """How far a source's group is behind in one partition, as the broker sees it."""

    source: str
    group: str | None
    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int


class Describer:
    """Answers SHOW and DESCRIBE from the catalog, from the running queries and from the brokers."""

    def __init__(
        self,
        catalog: Catalog,
        sources: Sources,
        views: Views,
        commit_errors: Callable[[], Mapping[str, ForebayError]],
    ) -> None:
        self._catalog = catalog
        self._sources = sources
        self._views = views
        self._commit_errors = commit_errors

    def sources(self) -> list[SourceStatus]:
        found = []
        errors = {each.source_name: each for each in self._catalog.source_errors()}
        for name in self._sources.names():
            statement = self._sources.statement(name)
            known = errors.get(name)
            text = self._sources.config(statement).options
            found.append(
                SourceStatus(
                    name,
                    statement.connector,
                    text.get("format", "json") if statement.connector == "kafka" else None,
                    text.get("topic") or text.get("topics") or text.get("topic.pattern"),
                    text.get("group.id"),
                    tuple(column.name for column in statement.columns),
                    tuple(self._views.over(name)),
                    self._sources.policy(name).strategy,
                    known.errors_total if known else 0,
                    known.dlq_total if known else 0,
                    known.rate_limited if known else 0,
                    self._waits_for(name),
                )
            )
        return found

    def _waits_for(self, source: str) -> str | None:
        """The view that is furthest behind what the group has committed, if one is, as far as this process knows."""
        connector = self._sources.connected().get(source)
        group = connector.current_offsets() if connector is not None else None
        if connector is None or group is None:
            return None
        behind = {
            view: connector.count(position, group.offsets)
            for view in self._views.over(source)
            if (position := self._views.position(view, source)) is not None
        }
        slowest = max(behind, key=lambda view: behind[view], default=None)
        return slowest if slowest is not None and behind[slowest] else None

    def queries(self) -> list[QueryStatus]:
        return [self._query(name) for name in self._views.names()]

    def _query(self, name: str) -> QueryStatus:
        totals = self._catalog.totals(view=name)
        records = sum(item.records for item in totals)
        rejected = sum(sum(item.rejected.values()) for item in totals)
        late = sum(item.late for item in totals)
        batch = max((item.batch for item in totals), default=-1)
        state, message, pid = self._catalog.state(name) or (QueryState.STOPPED, "", 0)
        query = self._views.running.get(name)
        if query is not None:
            progress = query.progress
            # A group that cannot be told does not hold up the view; its lag would be a riddle all the same.
            failing = [error for source, error in self._commit_errors().items() if source in query.connectors]
            message = message or "; ".join(error.message for error in failing)
            return QueryStatus(
                name, str(query.state), batch, records, rejected, late, round(progress.records_per_second, 1), progress.lag,
                progress.batch_ms, message,
            )  # fmt: skip
        if state in (QueryState.RUNNING, QueryState.STARTING, QueryState.RETRYING) and not psutil.pid_exists(
            pid
        ):
            state, message = QueryState.STOPPED, f"process {pid} ended without stopping it"
        recent = self._catalog.batches(name, 1)
        return QueryStatus(
            name,
            str(state),
            batch,
            records,
            rejected,
            late,
            0.0,
            None,
            recent[0][4] if recent else 0,
            message,
        )

    def lag(self) -> list[SourceLag]:
        found = []
        for name in self._sources.names():
            connector = self._sources.connector(name)
            group = connector.options.get("group.id")
            found += [
                SourceLag(name, group, row.topic, row.partition, row.committed, row.end, row.lag)
                for row in connector.lag()
            ]
        return found

    # -- as tables -----------------------------------------------------------------------------------

    def show(self, kind: str) -> Result:
        if kind == "sources":
            return table_of(SourceStatus, self.sources())
        if kind == "queries":
            return table_of(QueryStatus, self.queries())
        if kind == "views":
            rows = []
            for definition in self._catalog.all("view"):
                detail = definition.detail
                rows.append(
                    (definition.name, ", ".join(detail["sources"]), detail["emit"], ", ".join(detail["keys"]),
                     _time(definition.created_ms))
                )  # fmt: skip
            return Result.of(("name", "sources", "emit", "keys", "created"), rows)
        return Result.of(("name", "view", "target"), [])

    def show_create(self, kind: str, name: str) -> Result:
        definition = self._catalog.get(name)
        if definition is None or definition.kind != kind:
            known = self._sources.names() if kind == "source" else self._views.names()
            raise unknown(kind, name, known)
        return Result.of(("create_statement",), [(definition.sql,)])

    def describe_view(self, name: str, extended: bool) -> Result:
        schema = pa.schema(self._views.table(name).open().schema().to_arrow())
        definition = self._catalog.get(name)
        assert definition is not None
        hidden = sql.WEIGHT if definition.detail.get("kept") == "rows" else None
        rows = [
            (field.name, sql.type_name(from_arrow_type(field.type)))
            for field in schema
            if field.name != hidden
        ]
        notes = [f"Sources: {', '.join(definition.detail['sources'])}", f"Emit: {definition.detail['emit']}"]
        if extended:
            status = self._query(name)
            notes += [f"{key}: {value}" for key, value in vars(status).items() if key != "view"]
            notes += [
                f"{_time(at)} {state} {message}".rstrip()
                for at, state, message in self._catalog.history(name)[-10:]
            ]
            notes.append(f"Table: {self._views.paths(name).table}")
        return Result.of(("column", "type"), rows, notes)

    def describe_source(self, name: str, extended: bool) -> Result:
        statement = self._sources.statement(name)
        connector = self._sources.peek(name)
        mark = statement.watermark
        rows = [
            (
                field.name,
                sql.type_name(field.dataType),
                "YES" if field.nullable else "NO",
                mark.text if mark and mark.column.lower() == field.name.lower() else "",
            )
            for field in connector.full_schema().fields
        ]
        options = connector.options
        notes = [f"Connector: {statement.connector}"]
        for label, key in (("Topic", "topic"), ("Topics", "topics"), ("Topic pattern", "topic.pattern"),
                           ("Group ID", "group.id"), ("Format", "format")):  # fmt: skip
            if options.get(key) is not None:
                value = options[key]
                notes.append(f"{label}: {', '.join(value) if isinstance(value, tuple) else value}")
        notes.append(f"On error: {_policy(self._sources.policy(name))}")
        if extended:
            notes += self._extended(name)
        return Result.of(("column", "type", "nullable", "watermark"), rows, notes)

    def _extended(self, name: str) -> list[str]:
        connector = self._sources.peek(name)
        table = connector.options.table
        lines = ["", "Options:"]
        for option in table.options:
            value = connector.options.given.get(option.name)
            if value is not None:
                lines.append(f"  {option.name} = {table.shown(option.name, value)}")
            elif option.default is not None:
                lines.append(f"  {option.name} = {option.default} (default)")
        lines += [
            f"  {key} = {table.shown(key, text)}"
            for key, text in connector.options.given.items()
            if key not in table
        ]
        for totals in self._catalog.totals(source=name):
            lines += _totals(totals)
        failing = self._commit_errors().get(name)
        if failing is not None:
            lines += ["", f"Commits fail: {failing.message}"]
        if waits_for := self._waits_for(name):
            lines += ["", f"The group waits for view {waits_for}, which is behind it"]
        return [*lines, *self._lag_lines(name)]

    def _lag_lines(self, name: str) -> list[str]:
        try:
            health = self._sources.connector(name).health_check()
        except ForebayError as error:
            return ["", f"Health: {error.message}"]
        lines = ["", f"Health: {health.message}"]
        return lines + [
            f"  {key}: {value}" for key, value in health.details.items() if key.startswith("lag.")
        ]


def _policy(policy: ErrorPolicy) -> str:
    where = policy.topic or policy.path
    return f"{policy.strategy} to {where}" if where else policy.strategy


def _totals(totals: Totals) -> list[str]:
    rejected = sum(totals.rejected.values())
    lines = [
        "",
        f"View {totals.view}:",
        f"  records: {totals.records}",
        f"  delivered: {totals.records - rejected - totals.skipped}",
        f"  rejected: {rejected}",
    ]
    if totals.skipped:
        lines.append(f"  skipped: {totals.skipped} (header lines, comments or tombstones)")
    lines += [f"  rejected.{kind}: {count}" for kind, count in sorted(totals.rejected.items())]
    if totals.dlq:
        lines.append(f"  dlq: {totals.dlq} (of the rejected: became dead letters)")
    if totals.rate_limited:
        lines.append(
            f"  rate_limited: {totals.rate_limited} (of the rejected: kept out by the limit, in the ledger)"
        )
    if totals.example:
        lines.append(f"  example: {totals.example}")
    if totals.late:
        lines.append(f"  late: {totals.late} (came after their window was closed, and are not in it)")
    lines += [f"  lost: {gone}" for gone in totals.lost]
    return lines


def table_of(kind: type[Any], items: Sequence[Any]) -> Result:
    """Dataclasses as a table, a field a column."""
    names = list(kind.__dataclass_fields__)
    rows = [
        tuple(", ".join(v) if isinstance(v := getattr(item, name), tuple) else v for name in names)
        for item in items
    ]
    return Result.of(names, rows)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
