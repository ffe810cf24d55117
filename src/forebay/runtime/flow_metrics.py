"""Metrics of the flow of sources: what is in flight, how large batches may be and why, how long catching up takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from forebay.runtime.source_flow import SourceFlow
from forebay.source.batch_size import Cause


def flow_metrics(flows: Iterable[SourceFlow]) -> Iterator[Metric]:
    """Of some sources. Nothing is asked: it is read off the files that their reads write."""
    paused = _gauge("forebay_source_paused", "1 while the source is paused by PAUSE SOURCE.", "source")
    records = _gauge(
        "forebay_source_in_flight_records", "Records planned, and not in the tables yet.", "source"
    )
    size = _gauge("forebay_source_in_flight_bytes", "Their bytes, as far as one can tell.", "source")
    most = _gauge(
        "forebay_source_batch_limit_records", "The most records of the next micro-batch.", "source", "read"
    )
    causes = _gauge(
        "forebay_source_batch_decision", "1 for why it is so many.", "source", "read", "cause"
    )  # fmt: skip
    ahead = _gauge(
        "forebay_source_aligned_partitions",
        "Partitions that get less, since they are ahead in event time.",
        "source",
        "read",
    )
    left = _gauge(
        "forebay_query_catch_up_seconds",
        "Until a view has caught up, at this rate; +Inf if it does not.",
        "view",
    )
    seconds: dict[str, float] = {}  # a view over two sources has caught up when it has with both
    for flow in flows:
        paused.add_metric([flow.source], flow.paused_ms is not None)
        records.add_metric([flow.source], flow.in_flight.records)
        size.add_metric([flow.source], flow.in_flight.bytes)
        decided = {
            plan.read: plan for plan in flow.plans
        }  # a source that is joined with itself has two of one name
        for read, plan in decided.items():
            most.add_metric([flow.source, read], plan.most)
            ahead.add_metric([flow.source, read], len(plan.ahead))
            for cause in Cause:
                causes.add_metric([flow.source, read, cause], plan.cause is cause)
        for plan in flow.plans:
            needs = None if plan.catch_up is None else plan.catch_up.seconds
            for view in plan.views if needs is not None else ():
                seconds[view] = max(seconds.get(view, 0.0), needs or 0.0)
    for view, needs in seconds.items():
        left.add_metric([view], needs)
    yield from (paused, records, size, most, causes, ahead, left)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)
