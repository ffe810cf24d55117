"""SHOW and DESCRIBE: what exists and how it fares, as tables."""

from __future__ import annotations

from dataclasses import replace

from forebay import sql
from forebay.catalog import Catalog, Totals
from forebay.deadletter.policy import ErrorPolicy
from forebay.errors import ForebayError
from forebay.runtime.definitions import describe_view, kind_of, show_create
from forebay.runtime.results import Result
from forebay.runtime.session_health import SessionHealth
from forebay.runtime.source_flow import SourceFlow
from forebay.runtime.source_metrics import oldest
from forebay.runtime.source_watermarks import decisions, described
from forebay.runtime.sources import Sources
from forebay.runtime.states import hint_of
from forebay.runtime.status import (
    QueryStatus,
    SourceLag,
    SourceStatus,
    query_status,
    shown,
    source_statuses,
)
from forebay.runtime.views import Views
from forebay.source.budget import Budget
from forebay.source.watermarks import Decision


class Describer:
    """Answers SHOW and DESCRIBE from the catalog, from the running queries and from the brokers."""

    def __init__(
        self,
        catalog: Catalog,
        sources: Sources,
        views: Views,
        health: SessionHealth,
    ) -> None:
        self._catalog = catalog
        self._sources = sources
        self._views = views
        self._health = health

    def sources(self) -> list[SourceStatus]:
        known = self._health.known()
        return [
            replace(
                status,
                waits_for=self._waits_for(status.name),
                lag=sum(each.lag for each in known[status.name].partitions) if status.name in known else None,
                lag_s=oldest(known[status.name].partitions) if status.name in known else None,
            )
            for status in source_statuses(self._views.home, self._catalog, self._sources)
        ]

    def _waits_for(self, source: str) -> str | None:
        """The view that is furthest behind what the group has committed, if one is, as far as this process knows."""
        connector = self._sources.connected().get(source)
        group = connector.current_offsets() if connector is not None else None
        if connector is None or group is None or connector.share is not None:
            return None
        behind = {
            view: connector.count(position, group.offsets)
            for view in self._views.awaited(self._views.over(source))
            if (position := self._views.position(view, source)) is not None
        }
        slowest = max(behind, key=lambda view: behind[view], default=None)
        return slowest if slowest is not None and behind[slowest] else None

    def queries(self) -> list[QueryStatus]:
        return [self._query(name) for name in self._views.names()]

    def _query(self, name: str) -> QueryStatus:
        known = query_status(self._views.home, self._catalog, name)
        query = self._views.running.get(name)
        if query is None:
            return known
        progress = query.progress
        # Brokers that are away and offsets that cannot be committed do not stop the view, but they explain its lag.
        outages = self._health.outages()
        found = [outages[source] for source in query.connectors if source in outages]
        with query.changed:
            state, message = query.state, query.message  # the catalog hears of them a moment later
        return replace(
            known,
            state=str(state),
            records_per_second=round(progress.records_per_second, 1),
            lag=progress.lag,
            batch_ms=progress.batch_ms,
            message=message or "; ".join(dict.fromkeys(found)),
            hint=hint_of(state, view=name, source=next(iter(query.connectors), "…")),
        )

    def lag(self) -> list[SourceLag]:
        found = []
        for name in self._sources.names():
            connector, flow = self._sources.connector(name), str(SourceFlow.of(self._views.home, name))
            found += [SourceLag.of(name, connector.group, row, flow) for row in connector.lag()]
        return found

    # -- as tables -----------------------------------------------------------------------------------

    def show(self, kind: str) -> Result:
        return shown(kind, self._catalog, self.sources, self.queries, self.lag)

    def show_create(self, kind: str, name: str) -> Result:
        return show_create(self._catalog, kind, name)

    def describe(self, kind: str | None, name: str, extended: bool) -> Result:
        """Of a source or a view; where nobody says which, of the one that has the name."""
        if (kind or kind_of(self._catalog, name)) == "source":
            return self.describe_source(name, extended)
        return self.describe_view(name, extended)

    def describe_view(self, name: str, extended: bool) -> Result:
        status = self._query(name) if extended else None
        return describe_view(self._views.home, self._catalog, name, status)

    def describe_source(self, name: str, extended: bool) -> Result:
        statement = self._sources.statement(name)
        connector = self._sources.peek(name)
        mark = statement.watermark
        rows = [
            (
                field.name,
                sql.type_name(field.type),
                "YES" if field.nullable else "NO",
                mark.shown if mark and mark.column.lower() == field.name.lower() else "",
            )
            for field in connector.full_schema()
        ]
        notes = [f"Connector: {statement.connector} ({connector.info().description})"]
        notes += [f"{label}: {value}" for label, value in connector.summary()]
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
        flow = SourceFlow.of(self._views.home, name)
        lines += ["", "Flow:", *flow.lines(Budget.of(connector.options))]
        for totals in self._catalog.totals(source=name):
            lines += _totals(totals)
        failing = self._health.commit_errors().get(name)
        if failing is not None:
            lines += ["", f"Commits fail: {failing.message}"]
        running = self._sources.connected().get(name)
        if running is not None and running.share is not None:
            lines += ["", *running.share.lines()]
        if running is not None and (trouble := running.group_trouble()):
            lines += ["", f"Group: {trouble}"]
        if waits_for := self._waits_for(name):
            lines += ["", f"The group waits for view {waits_for}, which is behind it"]
        return [*lines, *described(self.watermarks(name)), *self._lag_lines(name)]

    def watermarks(self, source: str) -> dict[str, Decision]:
        """By who reads the source, as of the last look."""
        return decisions(self._views.home, source, self._views.over(source))

    def _lag_lines(self, name: str) -> list[str]:
        try:
            health = self._sources.connector(name).health_check()
        except ForebayError as error:
            return ["", f"Health: {error.message}"]
        lines = ["", f"Health: {health.message}"]
        for each in health.partitions:
            lines.append(f"  lag.{each.topic}.{each.partition}: {each.lag}")
            if each.lag and each.lag_s is not None:
                lines.append(f"  lag_seconds.{each.topic}.{each.partition}: {each.lag_s:.1f}")
        return lines


def _policy(policy: ErrorPolicy) -> str:
    where = policy.topic or policy.path
    return f"{policy.strategy} to {where}" if where else policy.strategy


def _totals(totals: Totals) -> list[str]:
    rejected = sum(totals.rejected.values())
    lines = [
        "",
        f"View {totals.view}:",
        f"  records: {totals.records}",
        f"  bytes: {totals.bytes}",
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
    if totals.case_mismatches:
        lines.append(
            f"  case_mismatches: {totals.case_mismatches} (a column is NULL: the field differs from it only in case)"
        )
    if totals.late:
        lines.append(f"  late: {totals.late} (came after their window was closed, and are not in it)")
    if totals.lost_ranges:
        ranges = "1 range" if totals.lost_ranges == 1 else f"{totals.lost_ranges} ranges"
        shown = f", the newest {len(totals.lost)}:" if len(totals.lost) < totals.lost_ranges else ""
        lines.append(f"  lost.total: {totals.lost_records} offsets in {ranges}{shown}")
    lines += [f"  lost: {gone}" for gone in totals.lost]
    return lines
