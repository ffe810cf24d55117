"""Prometheus metrics of a session: its sources, their groups, its views.

Nothing is counted twice: they are read off the catalog, the connectors and the running queries when somebody asks,
and asking waits for no broker. The table of names is in docs/metrics.md.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from forebay.catalog import BatchTimes, Catalog, QueryState, SourceErrors, Totals
from forebay.connectors.contract import HealthStatus, SourceConnector
from forebay.deadletter.outcomes import LetterState, Outcomes
from forebay.errors import ForebayError
from forebay.runtime.flow_metrics import flow_metrics
from forebay.runtime.health import HealthWatch
from forebay.runtime.live_run import LiveRun
from forebay.runtime.source_flow import SourceFlow
from forebay.runtime.source_metrics import state_now
from forebay.source.watermarks import Decision

_ERRORS: dict[str, tuple[str, str]] = {
    "dlq_total": ("forebay_source_dead_letters", "Bad records that became dead letters."),
    "skipped": ("forebay_source_skipped", "Bad records that were left out."),
    "rate_limited": (
        "forebay_source_rate_limited",
        "Bad records that the rate limit kept out of the letters.",
    ),
}
_TOTALS: dict[str, tuple[str, str]] = {
    "records": ("forebay_source_records", "Records that were read, good and bad."),
    "bytes": ("forebay_source_bytes", "Bytes of their keys and values, as they were fetched."),
    "skipped": ("forebay_source_without_row", "Records without a row: header lines, comments, tombstones."),
    "case_mismatches": (
        "forebay_source_case_mismatches",
        "Records with a NULL for a field that differs from its column only in case.",
    ),
}
_OWN: dict[str, tuple[str, str]] = {
    "commits_total": ("forebay_source_commits", "Commits of the group's offsets that the brokers confirmed."),
    "commit_failures_total": ("forebay_source_commit_failures", "Commits that failed, and were made again."),
    "rebalances_total": ("forebay_source_rebalances", "Times that partitions came or went."),
}
_OWN_NOW: dict[str, tuple[str, str]] = {
    "assigned_partitions": (
        "forebay_source_assigned_partitions",
        "Partitions that this process reads, where the group is shared.",
    ),
}


class SessionCollector(Collector):
    """`prometheus_client.REGISTRY.register(session.collector())`."""

    def __init__(
        self,
        catalog: Catalog,
        outcomes: Outcomes,
        sources: Callable[[], Mapping[str, SourceConnector]],
        queries: Mapping[str, LiveRun],
        watch: HealthWatch,
        commit_errors: Callable[[], Mapping[str, ForebayError]],
        flow: Callable[[str], SourceFlow],
        watermark: Callable[[str], Decision | None] = lambda source: None,
    ) -> None:
        self._flow = flow
        self._catalog = catalog
        self._outcomes = outcomes
        self._sources = sources
        self._queries = queries
        self._watch = watch
        self._commit_errors = commit_errors
        self._watermark = watermark

    def collect(self) -> Iterator[Metric]:
        sources = self._sources()
        try:
            totals, errors = self._catalog.totals(), self._catalog.source_errors()
            settled = self._outcomes.counts()
            held_back = (QueryState.PAUSED, QueryState.BACKPRESSURED)
            stopped = {name for name in sources if state_now(self._catalog, name) in held_back}
            times = {each.view: self._catalog.batch_times(each.view) for each in totals}
            ledgers = {name: sum(part.bad for part in self._catalog.ledger(name)) for name in sources}
        except sqlite3.ProgrammingError:
            return  # the session is closed, and has nothing to tell any more
        yield from _health(sources, self._watch.last(), stopped)
        yield from _counts(sources, totals, errors)
        yield from _batches(sources, totals, times)
        yield from _letters(ledgers, settled)
        yield from _commits(sources, self._commit_errors())
        yield from _watermarks({name: self._watermark(name) for name in sources})
        yield from _views(dict(self._queries), totals)
        yield from flow_metrics([self._flow(name) for name in sources])


def _health(
    sources: Mapping[str, SourceConnector], found: Mapping[str, HealthStatus], stopped: set[str]
) -> Iterator[Metric]:
    """`stopped` are those that nothing is fetched from now."""
    healthy = _gauge("forebay_source_healthy", "1 while the brokers answer and have its topics.", "source")
    brokers = _gauge("forebay_source_brokers", "How many brokers there are.", "source")
    lag = _gauge(
        "kafka_consumergroup_lag", "Records that are not committed.", "consumergroup", "topic", "partition"
    )
    age = _gauge(
        "forebay_source_lag_seconds", "How old the oldest unread record is.", "source", "topic", "partition"
    )
    lags: dict[tuple[str, str, str], int] = {}  # two sources may share a group, and a series stands once
    paused = _gauge("forebay_source_paused_partitions", "Partitions that are not fetched from now.", "source")
    for name, connector in sources.items():
        if name not in found:
            continue  # it was not asked yet
        health, group = found[name], connector.group
        healthy.add_metric([name], health.healthy)
        if "brokers" in health.details:
            brokers.add_metric([name], int(health.details["brokers"]))
        for each in health.partitions if group else ():
            lags[str(group), each.topic, str(each.partition)] = each.lag
            if each.lag_s is not None:
                age.add_metric([name, each.topic, str(each.partition)], each.lag_s)
        if health.partitions:
            paused.add_metric([name], len(health.partitions) if name in stopped else 0)
    for labels, records in lags.items():
        lag.add_metric(labels, records)
    yield from (healthy, brokers, lag, age, paused)


def _counts(
    sources: Iterable[str], totals: Iterable[Totals], errors: Iterable[SourceErrors]
) -> Iterator[Metric]:
    """Views over one source meet the same records: the one that met most tells, as in `source_errors`."""
    most: dict[str, Totals] = {}
    for each in totals:
        if each.source not in most or each.records > most[each.source].records:
            most[each.source] = each
    bad = {each.source_name: each for each in errors}
    for found, named in ((most, _TOTALS), (bad, _ERRORS)):
        for field, (name, text) in named.items():
            yield _counter(name, text, "source", {key: getattr(found.get(key), field, 0) for key in sources})
    kinds = CounterMetricFamily(
        "forebay_source_errors", "Records that did not decode.", labels=["source", "kind"]
    )
    last = _gauge("forebay_source_last_error_timestamp_seconds", "When one last did not decode.", "source")
    for source in sources:
        for kind, count in bad[source].by_kind.items() if source in bad else ():
            kinds.add_metric([source, kind], count)
        if source in bad and bad[source].last_error_ms:
            last.add_metric([source], bad[source].last_error_ms / 1000)
    yield from (kinds, last)


def _batches(
    sources: Iterable[str], totals: Sequence[Totals], times: Mapping[str, BatchTimes | None]
) -> Iterator[Metric]:
    """Of the view that met most, again; those of all views are in a histogram."""
    mean = _gauge(
        "forebay_source_batch_mean_seconds", "How long its last batches took, on average.", "source"
    )
    p99 = _gauge(
        "forebay_source_batch_p99_seconds", "What 99 % of its last batches did not exceed.", "source"
    )
    count = CounterMetricFamily("forebay_source_batches", "Micro-batches in its life.", labels=["source"])
    for source in sources:
        of = max(
            (each for each in totals if each.source == source), key=lambda each: each.records, default=None
        )
        found = times.get(of.view) if of is not None else None
        count.add_metric([source], found.batches if found else 0)
        if found is not None:
            mean.add_metric([source], found.mean_ms / 1000)
            p99.add_metric([source], found.p99_ms / 1000)
    yield from (count, mean, p99)


def _letters(ledgers: Mapping[str, int], settled: Mapping[tuple[str, LetterState], int]) -> Iterator[Metric]:
    done = _gauge(
        "forebay_source_settled_letters", "Dead letters that somebody has dealt with.", "source", "state"
    )
    kept_out = _gauge(
        "forebay_source_ledger_records", "Records that the rate limit kept out, not recovered yet.", "source"
    )
    for source, records in ledgers.items():
        kept_out.add_metric([source], records)
        for state in LetterState:
            if state is not LetterState.OPEN:
                done.add_metric([source, state], settled.get((source, state), 0))
    yield from (done, kept_out)


def _commits(sources: Mapping[str, SourceConnector], failing: Mapping[str, ForebayError]) -> Iterator[Metric]:
    own = {name: connector.metrics().custom for name, connector in sources.items()}
    for field, (name, text) in _OWN.items():
        values = {source: custom[field] for source, custom in own.items() if field in custom}
        yield _counter(name, text, "source", values)
    for field, (name, text) in _OWN_NOW.items():
        now = _gauge(name, text, "source")
        for source, custom in own.items():
            if field in custom:
                now.add_metric([source], custom[field])
        yield now
    stuck = _gauge(
        "forebay_source_commit_failing", "1 while the group's offsets cannot be committed.", "source"
    )
    for source in sources:
        stuck.add_metric([source], source in failing)
    yield stuck


def _watermarks(sources: Mapping[str, Decision | None]) -> Iterator[Metric]:
    labels = ("source", "topic", "partition")
    whole = _gauge("forebay_source_watermark_timestamp_seconds", "The watermark of a source.", "source")
    marks = _gauge(
        "forebay_partition_watermark_timestamp_seconds", "Greatest event time less the delay.", *labels
    )
    idle = _gauge("forebay_partition_idle", "1 while the watermark does not wait for a partition.", *labels)
    holds = _gauge("forebay_partition_holds_watermark", "1 for the partition that holds it back.", *labels)
    for source, found in sources.items():
        if found is None:
            continue
        if found.watermark_ms is not None:
            whole.add_metric([source], found.watermark_ms / 1000)
        for each in found.partitions:
            place = [source, each.topic, str(each.partition)]
            if each.mark_ms is not None:
                marks.add_metric(place, each.mark_ms / 1000)
            idle.add_metric(place, each.idle)
            holds.add_metric(place, each is found.held_by)
    yield from (whole, marks, idle, holds)


def _views(queries: Mapping[str, LiveRun], totals: Sequence[Totals]) -> Iterator[Metric]:
    of = {view: [each for each in totals if each.view == view] for view in queries}
    figures: dict[tuple[str, str], dict[str, int]] = {
        ("forebay_query_records", "Records that a view has read, good and bad."): {
            view: sum(each.records for each in found) for view, found in of.items()
        },
        ("forebay_query_rejected", "Records that did not decode."): {
            view: sum(sum(each.rejected.values()) for each in found) for view, found in of.items()
        },
        ("forebay_query_late", "Rows that came after their window was closed."): {
            view: sum(each.late for each in found) for view, found in of.items()
        },
        ("forebay_query_batches", "Micro-batches in a view's life."): {
            view: 1 + max((each.batch for each in found), default=-1) for view, found in of.items()
        },
    }
    for (name, text), values in figures.items():
        yield _counter(name, text, "view", values)
    states = _gauge("forebay_query_state", "1 for the state that a view's query is in.", "view", "state")
    lag = _gauge(
        "forebay_query_lag_records", "Records that a view has not read, when it last looked.", "view"
    )
    times = HistogramMetricFamily(
        "forebay_query_batch_seconds", "How long a micro-batch with records takes.", labels=["view"]
    )
    for view, query in queries.items():
        for state in QueryState:
            states.add_metric([view, state], query.state is state)
        if query.progress.lag is not None:
            lag.add_metric([view], query.progress.lag)
        times.add_metric([view], query.batch_times.buckets(), query.batch_times.total_s)
    yield from (states, lag, times)


def _counter(name: str, text: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)
