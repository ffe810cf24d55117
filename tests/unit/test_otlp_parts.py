"""What the OTEL_* variables mean here, and how Prometheus' families become OpenTelemetry's: renamed, not counted again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from forebay.telemetry import otlp, spans
from forebay.telemetry.otlp_metrics import metrics_data, otel_name

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    for each in (otlp.wanted, otlp._say_once):
        each.cache_clear()
    yield
    for each in (otlp.wanted, otlp._say_once):
        each.cache_clear()


@pytest.mark.parametrize(
    ("given", "traces", "metrics"),
    [
        ({}, False, False),
        (ENDPOINT, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, True, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://localhost:4318/v1/metrics"}, False, True),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, False, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False, True),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "console, otlp"}, True, True),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True, True),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"}, True, False),
    ],
)
def test_the_variables_say_what_is_sent(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], traces: bool, metrics: bool
) -> None:
    for name in ("", "_TRACES", "_METRICS"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP{name}_ENDPOINT", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert (otlp.wanted("TRACES"), otlp.wanted("METRICS")) == (traces, metrics)


def test_a_protocol_that_is_not_spoken_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with caplog.at_level(logging.WARNING):
        spans.watched()  # asks, as every batch does
        assert otlp.push(lambda: pytest.fail("nobody collects")) is None
        otlp.wanted.cache_clear()
        assert not otlp.wanted("TRACES")
    assert caplog.text.count("http/protobuf only") == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("forebay_source_records", ("forebay.source.records", "")),
        ("forebay_source_dead_letters", ("forebay.source.dead_letters", "")),
        ("forebay_source_lag_seconds", ("forebay.source.lag", "s")),
        ("forebay_source_bytes", ("forebay.source.bytes", "By")),
        ("forebay_query_batch_seconds", ("forebay.query.batch", "s")),
        ("forebay_agent_seconds", ("forebay.agent.seconds", "s")),
        (
            "forebay_source_watermark_timestamp_seconds",
            ("forebay.source.watermark_timestamp_seconds", "s"),
        ),
        ("kafka_consumergroup_lag", ("kafka_consumergroup_lag", "")),
    ],
)
def test_names_are_those_that_become_prometheus_names_again(name: str, expected: tuple[str, str]) -> None:
    assert otel_name(name) == expected


def test_numbers_labels_and_buckets_are_those_of_prometheus() -> None:
    counter = CounterMetricFamily("forebay_source_records", "Read.", labels=["source"])
    counter.add_metric(["s"], 12)
    gauge = GaugeMetricFamily("forebay_source_lag_seconds", "Lag.", labels=["source", "topic", "partition"])
    gauge.add_metric(["s", "t", "0"], 1.5)
    times = HistogramMetricFamily("forebay_query_batch_seconds", "Times.", labels=["view"])
    times.add_metric(["v"], [("0.1", 2.0), ("1.0", 5.0), ("+Inf", 6.0)], 7.25)
    empty = GaugeMetricFamily("forebay_source_brokers", "Brokers.", labels=["source"])
    [whole] = metrics_data([counter, gauge, times, empty], None, 1, 2).resource_metrics
    found: dict[str, Any] = {metric.name: metric for metric in whole.scope_metrics[0].metrics}
    assert found.keys() == {
        "forebay.source.records", "forebay.source.lag", "forebay.query.batch",
        "messaging.client.consumed.messages", "messaging.process.duration",
    }  # fmt: skip
    [records] = found["forebay.source.records"].data.data_points
    assert (records.value, dict(records.attributes)) == (12, {"source": "s"})
    assert found["forebay.source.records"].data.is_monotonic
    [lag] = found["forebay.source.lag"].data.data_points
    assert (lag.value, lag.attributes["topic"]) == (1.5, "t")
    for name in ("forebay.query.batch", "messaging.process.duration"):
        [point] = found[name].data.data_points
        assert (point.count, point.sum, list(point.bucket_counts), list(point.explicit_bounds)) == (
            6, 7.25, [2, 3, 1], [0.1, 1.0],
        )  # fmt: skip
    [standard] = found["messaging.client.consumed.messages"].data.data_points
    assert standard.attributes["forebay.source"] == "s"
    assert standard.attributes["messaging.system"] == "kafka"
