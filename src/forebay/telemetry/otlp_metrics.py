"""Prometheus' metric families as OpenTelemetry's: the same numbers, read once.

`forebay_source_lag_seconds` is `forebay.source.lag` in `s`, and so on: what turns these back into Prometheus' names (a collector,
Prometheus' own OTLP receiver) arrives at those of docs/metrics.md. Labels keep their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

SCOPE = "forebay"
_UNITS = {"_timestamp_seconds": "s", "_seconds": "s", "_bytes": "By"}
_PARTS = ("source", "partition", "query", "pool", "agent", "board")

# What OpenTelemetry's conventions for messaging have a name for, by ours; and their names for our labels.
STANDARD = {
    "forebay_source_records": "messaging.client.consumed.messages",
    "forebay_pool_records": "messaging.client.consumed.messages",
    "forebay_query_batch_seconds": "messaging.process.duration",
    "forebay_pool_handler_seconds": "messaging.process.duration",
}


def metrics_data(families: Iterable[Metric], resource: Any, started_ns: int, now_ns: int) -> MetricsData:
    """All of them, as an exporter takes them."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = _with_standard([each for each in families if each.samples], started_ns, now_ns)
    scope = ScopeMetrics(InstrumentationScope(SCOPE), list(metrics), "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def otel_name(name: str) -> tuple[str, str]:
    """The name and the unit of a family, as OpenTelemetry has them."""
    unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")
    first, _, rest = name.partition("_")
    part, _, what = rest.partition("_")
    if first != "forebay" or part not in _PARTS:
        return name, unit
    if unit == "s" and not what.endswith("timestamp_seconds"):
        what = what.removesuffix("_seconds")
    return f"forebay.{part}.{what}", unit


def _with_standard(families: Sequence[Metric], started_ns: int, now_ns: int) -> Iterator[Any]:
    from opentelemetry.sdk.metrics.export import Metric as Exported

    standard: dict[str, list[Any]] = {}
    for family in families:
        name, unit = otel_name(family.name)
        points = _points(family, lambda labels: labels, started_ns, now_ns)
        yield Exported(name, family.documentation, unit, _data(family.type, points))
        if family.name in STANDARD:
            same = _points(family, _conventional, started_ns, now_ns)
            standard.setdefault(STANDARD[family.name], []).extend(same)
    for name, points in standard.items():
        histogram = name.endswith("duration")
        data = _data("histogram" if histogram else "counter", points)
        yield Exported(name, "", "s" if histogram else "{message}", data)


def _conventional(labels: Mapping[str, str]) -> dict[str, str]:
    own = {f"forebay.{name}": value for name, value in labels.items()}
    return {"messaging.system": "kafka", "messaging.operation.name": "process", **own}


def _data(kind: str, points: Sequence[Any]) -> Any:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Sum

    if kind == "counter":
        return Sum(points, AggregationTemporality.CUMULATIVE, True)
    if kind == "histogram":
        return Histogram(points, AggregationTemporality.CUMULATIVE)
    return Gauge(points)


def _points(family: Metric, named: Any, started_ns: int, now_ns: int) -> list[Any]:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

    if family.type == "histogram":
        return list(_histograms(family.samples, named, started_ns, now_ns))
    start = started_ns if family.type == "counter" else None
    return [
        NumberDataPoint(named(dict(sample.labels)), start, now_ns, _number(sample.value))  # type: ignore[arg-type, unused-ignore]
        for sample in family.samples
    ]


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else float(value)


def _histograms(samples: Iterable[Sample], named: Any, started_ns: int, now_ns: int) -> Iterator[Any]:
    """Prometheus counts up to each bound, OpenTelemetry between two of them."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    buckets: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in samples:
        key = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        if sample.name.endswith("_bucket"):
            buckets.setdefault(key, {})[float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    for key, found in buckets.items():
        bounds = sorted(found)
        counts = [int(found[bound]) for bound in bounds]
        between = [count - before for count, before in zip(counts, [0, *counts], strict=False)]
        yield HistogramDataPoint(
            named(dict(key)), started_ns, now_ns, counts[-1], sums.get(key, 0.0), between, bounds[:-1],
            None, None,  # type: ignore[arg-type, unused-ignore]
        )  # fmt: skip
