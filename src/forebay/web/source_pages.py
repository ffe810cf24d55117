"""Sources: the list, and the page about one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forebay.catalog import EventKind, QueryState
from forebay.deadletter.groups import pattern_of
from forebay.deadletter.policy import STRATEGIES
from forebay.errors import ForebayError
from forebay.runtime.known import unknown
from forebay.runtime.states import hint_of
from forebay.source.flow_folder import Plan
from forebay.source.watermarks import Decision
from forebay.web.ground import Ground
from forebay.web.model import BatchRow, EventRow, PartitionRow, ReadPlan, ShownColumn, SourcePage, SourceRow
from forebay.web.shown import columns_of, inert
from forebay.web.snapshot import Snapshot, SourceNow

BATCHES = 200
EVENTS = 100


def rows(snapshot: Snapshot) -> list[SourceRow]:
    return [row(each) for each in snapshot.sources.values()]


def row(source: SourceNow) -> SourceRow:
    """A source in a list."""
    worst, health, totals = source.worst, source.health, source.totals
    message = worst.message if worst is not None else ""
    if health is not None and not health.healthy:
        message = message or health.message
    return SourceRow(
        name=source.name,
        connector=source.facts.connector,
        format=source.facts.options.get("format", "json") if source.facts.connector == "kafka" else None,
        topic=source.topic,
        group=source.facts.options.get("group.id"),
        state=str(source.state),
        message=inert(message),
        hint=hint_of(source.state, view=worst.definition.name if worst else "…", source=source.name),
        paused=source.flow.paused_ms is not None,
        views=[view.definition.name for view in source.views],
        on_error=source.on_error,
        records=totals.records if totals else 0,
        bytes=totals.bytes if totals else 0,
        errors=source.errors,
        letters=totals.dlq if totals else 0,
        rate=source.rates.records,
        byte_rate=source.rates.bytes,
        error_rate=source.rates.errors,
        lag=source.lag,
        lag_s=source.lag_s,
        catch_up=str(source.flow),
        last_batch_ms=totals.at_ms if totals else None,
    )


def found(snapshot: Snapshot, name: str) -> SourceNow:
    """UnknownObjectError if there is none."""
    if name not in snapshot.sources:
        raise unknown("source", name, list(snapshot.sources))
    return snapshot.sources[name]


def page(ground: Ground, snapshot: Snapshot, name: str) -> SourcePage:
    """All that is known of a source. No broker is asked."""
    # What knows where watermarks are kept imports Spark: for whoever looks at a source's page alone.
    from forebay.runtime.source_watermarks import decisions, slowest

    source = found(snapshot, name)
    views = [view.definition.name for view in source.views]
    decision = slowest(decisions(ground.path, name, views).values())
    held = decision.held_by if decision else None
    own = _own(ground, name)
    batches = _batches(ground, source)
    took = sorted(each.duration_ms for each in batches if each.duration_ms > 0)
    totals, health = source.totals, source.health
    held_back = source.flow.in_flight
    policy = ground.sources.policy(name)
    return SourcePage(
        row=row(source),
        columns=_columns(ground, source),
        partitions=_partitions(source, decision),
        plans=[_plan(each) for each in source.flow.plans],
        batches=batches,
        events=events(ground, EVENTS, {name, *views}),
        errors_by_kind=dict(totals.rejected) if totals else {},
        example=about_records(ground, totals.example) if totals and totals.example else None,
        batch_ms_p50=took[(len(took) - 1) // 2] if took else None,
        batch_ms_p99=took[-(-len(took) * 99 // 100) - 1] if took else None,
        batch_ms_mean=sum(took) / len(took) if took else None,
        watermark_ms=decision.watermark_ms if decision else None,
        watermark_held_by=f"{held.topic}-{held.partition}" if held else None,
        in_flight_records=held_back.records,
        in_flight_bytes=held_back.bytes,
        commits=own.get("commits_total"),
        commit_failures=own.get("commit_failures_total"),
        commit_error=source.commit_error,
        rebalances=own.get("rebalances_total"),
        healthy=None if health is None else health.healthy,
        health="not asked yet" if health is None else inert(health.message),
        late=max((each.late for view in source.views for each in view.totals), default=0),
        lost=totals.lost if totals else (),
        rate_limited=totals.rate_limited if totals else 0,
        policies=STRATEGIES,
        definition=source.definition.sql,
        dead_letter_target=policy.topic or policy.path or "",
    )


def _own(ground: Ground, name: str) -> dict[str, int]:
    """What the connector of this process has counted; nothing where another process reads."""
    if ground.session is None:
        return {}
    try:
        return {key: int(value) for key, value in ground.session.source(name).metrics().custom.items()}
    except ForebayError:
        return {}


def _columns(ground: Ground, source: SourceNow) -> list[ShownColumn]:
    try:
        return columns_of(ground.connector(source.name).full_schema())
    except ForebayError:  # a secret or a registry that it takes to know the types
        return [ShownColumn(inert(each), "") for each in source.facts.columns]


def _partitions(source: SourceNow, decision: Decision | None) -> list[PartitionRow]:
    marks = {(each.topic, each.partition): each for each in decision.partitions} if decision else {}
    held = decision.held_by if decision else None
    health = source.health.partitions if source.health is not None else ()
    lags = {
        (each.topic, each.partition): PartitionRow(
            each.topic, each.partition, each.committed, each.end, each.lag, each.lag_s
        )
        for each in health
    }
    for place in marks:
        lags.setdefault(place, PartitionRow(*place, None, None, None, None))
    return [
        each
        if (mark := marks.get(place)) is None
        else replace(
            each,
            watermark_ms=mark.mark_ms,
            idle=mark.idle,
            unread=mark.unread,
            holds_watermark=held is not None and (held.topic, held.partition) == place,
        )
        for place, each in sorted(lags.items())
    ]


def _plan(plan: Plan) -> ReadPlan:
    return ReadPlan(
        plan.read,
        plan.views,
        str(plan.cause),
        str(plan),
        plan.most,
        plan.behind,
        "" if plan.catch_up is None else str(plan.catch_up),
        plan.records,
        plan.bytes,
        plan.at_ms,
    )


def _batches(ground: Ground, source: SourceNow) -> list[BatchRow]:
    """Of the view that has met most: the views of one read have the same batches."""
    return [] if source.totals is None else batches(ground, source.totals.view)


def batches(ground: Ground, view: str, limit: int = BATCHES) -> list[BatchRow]:
    """The newest first."""
    return [
        BatchRow(view, batch, at_ms, records, size, rejected, took)
        for batch, at_ms, records, size, rejected, took in ground.catalog.newest_batches(view, limit)
    ]


def about_records(ground: Ground, message: str) -> str:
    """A message that may quote a record: without what it quotes where payloads are hidden, or a source masks some."""
    hidden = ground.hide_payloads or any(
        "mask" in ground.sources.facts(name).options for name in ground.sources.names()
    )
    return inert(pattern_of(message) if hidden else message)


def events(ground: Ground, limit: int, names: Sequence[str] | set[str] | None = None) -> list[EventRow]:
    """The newest first, of these names or of all."""
    return [
        EventRow(
            each.at_ms,
            each.name,
            each.kind,
            each.state,
            about_records(ground, each.message)
            if each.kind == EventKind.REJECTED or ground.hide_payloads
            else inert(each.message),
            hint_of(QueryState(each.state), view=each.name) if each.state else "",
        )
        for each in ground.catalog.newest_events(limit, names)
    ]
