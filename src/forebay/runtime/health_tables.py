"""`forebay_catalog.sources`, `partitions`, `batches` and `events`: how a home fares, as tables for SELECT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from forebay.catalog import Catalog, QueryState
from forebay.catalog.audit import AuditLog
from forebay.connectors.contract import HealthStatus
from forebay.deadletter.entry import moment
from forebay.runtime.known import KnownSources
from forebay.runtime.source_flow import SourceFlow
from forebay.runtime.source_metrics import SourceMetrics, source_metrics
from forebay.runtime.states import hint_of
from forebay.runtime.status import view_state, views_over
from forebay.source.watermarks import Decision

_TIME = pa.timestamp("us", "UTC")


def _schema(*columns: tuple[str, pa.DataType] | tuple[str, pa.DataType, bool]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, bool(rest and rest[0])) for name, kind, *rest in columns])


SOURCES = _schema(
    ("name", pa.string()), ("connector", pa.string()), ("topic", pa.string(), True), ("group_id", pa.string(), True),
    ("state", pa.string()), ("healthy", pa.bool_(), True), ("message", pa.string()), ("hint", pa.string()),
    ("views", pa.string()), ("paused", pa.bool_()), ("lag", pa.int64(), True), ("lag_seconds", pa.float64(), True),
    ("catch_up", pa.string()), ("watermark", _TIME, True), ("records", pa.int64()), ("bytes", pa.int64()), ("errors", pa.int64()),
    ("batches", pa.int64()), ("commits", pa.int64(), True), ("commit_failures", pa.int64(), True),
    ("rebalances", pa.int64(), True), ("paused_partitions", pa.int64(), True), ("batch_ms_mean", pa.float64(), True),
    ("batch_ms_p99", pa.int64(), True), ("last_batch", _TIME, True), ("records_per_second", pa.float64(), True),
)  # fmt: skip
PARTITIONS = _schema(
    ("source", pa.string()), ("group_id", pa.string(), True), ("topic", pa.string()), ("partition", pa.int32()),
    ("committed", pa.int64(), True), ("end_offset", pa.int64()), ("lag", pa.int64()), ("lag_seconds", pa.float64(), True),
    ("watermark", _TIME, True), ("idle", pa.bool_(), True),
)  # fmt: skip
BATCHES = _schema(
    ("view", pa.string()), ("batch", pa.int64()), ("at", _TIME), ("records", pa.int64()), ("bytes", pa.int64()),
    ("rejected", pa.int64()), ("duration_ms", pa.int64()),
)  # fmt: skip
EVENTS = _schema(
    ("at", _TIME), ("name", pa.string()), ("kind", pa.string()), ("state", pa.string(), True),
    ("message", pa.string()), ("hint", pa.string()),
)  # fmt: skip
AUDIT = _schema(
    ("at", _TIME), ("actor", pa.string()), ("action", pa.string()), ("target", pa.string()), ("detail", pa.string()),
    ("outcome", pa.string()), ("message", pa.string()),
)  # fmt: skip


@dataclass(frozen=True)
class HealthTables:
    """`health` is what a source's brokers say, and may block; `own` what its connector has counted in this process."""

    home: Path
    catalog: Catalog
    sources: KnownSources
    health: Callable[[str], HealthStatus]
    own: Callable[[str], Mapping[str, float]]
    watermark: Callable[[str], Decision | None]

    def source_rows(self) -> pa.Table:
        return pa.Table.from_pylist([self._source(name) for name in self.sources.names()], SOURCES)

    def _source(self, name: str) -> dict[str, Any]:
        health, facts, flow = self.health(name), self.sources.facts(name), SourceFlow.of(self.home, name)
        paused, watermark = flow.paused_ms is not None, self.watermark(name)
        found = source_metrics(self.catalog, name, health, self.own(name), paused=paused, watermark=watermark)
        worst, why = self._worst(name, found)
        return {
            "name": name,
            "connector": facts.connector,
            "topic": facts.options.get("topic") or facts.options.get("topics") or facts.options.get("topic.pattern"),
            "group_id": facts.options.get("group.id"),
            "state": found.state,
            "healthy": health.healthy,
            "message": why or ("" if health.healthy else health.message),
            "hint": hint_of(QueryState(found.state), view=worst, source=name),
            "views": ", ".join(views_over(self.catalog, name)),
            "paused": paused,
            "lag": found.lag,
            "lag_seconds": found.lag_s,
            "catch_up": str(flow),
            "watermark": moment(found.watermark_ms),
            "records": found.records,
            "bytes": found.bytes,
            "errors": found.errors,
            "batches": found.batches,
            "commits": found.commits,
            "commit_failures": found.commit_failures,
            "rebalances": found.rebalances,
            "paused_partitions": found.paused_partitions,
            "batch_ms_mean": found.batch_ms_mean,
            "batch_ms_p99": found.batch_ms_p99,
            "last_batch": moment(found.last_batch_ms),
            "records_per_second": found.records_per_s,
        }  # fmt: skip

    def _worst(self, name: str, found: SourceMetrics) -> tuple[str, str]:
        """The view that the source has its state from, and why."""
        for view in views_over(self.catalog, name):
            state, message = view_state(self.catalog, view)
            if state == found.state:
                return view, message
        return "…", ""

    def partition_rows(self) -> pa.Table:
        """Of brokers that do not answer there is nothing to tell: `sources` says why."""
        rows = []
        for name in self.sources.names():
            group, decision = self.sources.facts(name).options.get("group.id"), self.watermark(name)
            marks = {(each.topic, each.partition): each for each in decision.partitions} if decision else {}
            for each in self.health(name).partitions:
                mark = marks.get((each.topic, each.partition))
                rows.append(
                    {"source": name, "group_id": group, "topic": each.topic, "partition": each.partition,
                     "committed": each.committed, "end_offset": each.end, "lag": each.lag, "lag_seconds": each.lag_s,
                     "watermark": moment(mark.mark_ms) if mark else None, "idle": mark.idle if mark else None}
                )  # fmt: skip
        return pa.Table.from_pylist(rows, PARTITIONS)

    def batch_rows(self) -> pa.Table:
        rows = [
            {**dict(zip(BATCHES.names, row, strict=True)), "at": moment(row[2])}
            for row in self.catalog.all_batches()
        ]
        return pa.Table.from_pylist(rows, BATCHES)

    def event_rows(self) -> pa.Table:
        rows = [
            {"at": moment(each.at_ms), "name": each.name, "kind": each.kind, "state": each.state, "message": each.message,
             "hint": hint_of(QueryState(each.state), view=each.name) if each.state else ""}
            for each in self.catalog.events()
        ]  # fmt: skip
        return pa.Table.from_pylist(rows, EVENTS)

    def audit_rows(self) -> pa.Table:
        """Who changed what, in the order in which it was written down."""
        log = AuditLog(self.home)
        try:
            rows = [
                {"at": moment(each.at_ms), "actor": each.actor, "action": each.action, "target": each.target,
                 "detail": each.detail, "outcome": each.outcome, "message": each.message}
                for each in reversed(log.entries())
            ]  # fmt: skip
        finally:
            log.close()
        return pa.Table.from_pylist(rows, AUDIT)
