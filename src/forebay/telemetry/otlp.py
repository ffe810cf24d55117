"""Spans and metrics by OTLP, set up by OpenTelemetry's own OTEL_* variables and by nothing else.

A program that has set a tracer provider keeps it. Otherwise one is made when spans are first asked for, if a variable names
a receiver. Without one there is no provider, no thread, and no import.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from prometheus_client.registry import Collector

from forebay.threads import keep_running

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("forebay.telemetry")

Signal = Literal["TRACES", "METRICS"]

INTERVAL_MS = 60_000  # OpenTelemetry's own default
CLOSE_S = 5.0  # for the last numbers, when a process ends


@cache
def wanted(signal: Signal) -> bool:
    """Whether the environment says that this goes somewhere. Asked for each record that is sent, so looked up once."""
    environ = os.environ
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if not (
        environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    ):
        return False
    exporters = environ.get(f"OTEL_{signal}_EXPORTER", "").strip() or "otlp"
    if "otlp" not in [each.strip() for each in exporters.split(",")]:
        return False
    protocol = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    if protocol and protocol.strip() != "http/protobuf":
        _say_once(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}, and Forebay sends http/protobuf only: nothing is sent"
        )
        return False
    return True


@cache
def set_up_traces() -> None:
    """A tracer provider for this process, unless the program has one. Once."""
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        _say_missing()
        return
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    provider = TracerProvider(resource=resource())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


@cache
def resource() -> Any:
    """Who sends: what the variables say, or `forebay`. The same for spans and metrics of a process."""
    from opentelemetry.sdk.resources import Resource

    own = {"service.instance.id": uuid.uuid4().hex}
    named = "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not (os.environ.get("OTEL_SERVICE_NAME") or named):
        own["service.name"] = "forebay"
    return Resource.create(own)


class MetricsPush:
    """Sends what a collector has, every OTEL_METRIC_EXPORT_INTERVAL milliseconds and when it is closed.

    `close()` may block for some seconds, where the receiver does not answer.
    """

    def __init__(self, collector: Collector, exporter: Any) -> None:
        self._collector = collector
        self._exporter = exporter
        self._started_ns = time.time_ns()
        self._interval_s = _interval_ms() / 1000
        self._closed = threading.Event()
        self._thread = keep_running("forebay-otlp", self._run, self._closed)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(CLOSE_S)
        self._send()
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            self._send()

    def _send(self) -> None:
        from forebay.telemetry.otlp_metrics import metrics_data

        data = metrics_data(self._collector.collect(), resource(), self._started_ns, time.time_ns())
        self._exporter.export(data, timeout_millis=CLOSE_S * 1000)


def push(collector: Callable[[], Collector]) -> MetricsPush | None:
    """Send metrics from now on, if the environment says where to; None if it does not."""
    if not wanted("METRICS"):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError:
        _say_missing()
        return None
    return MetricsPush(collector(), OTLPMetricExporter())


def _interval_ms() -> float:
    try:
        return max(100.0, float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or INTERVAL_MS))
    except ValueError:
        _say_once("OTEL_METRIC_EXPORT_INTERVAL is not a number of milliseconds; 60000 is taken")
        return INTERVAL_MS


def _say_missing() -> None:
    _say_once(
        "OTEL_EXPORTER_OTLP_ENDPOINT is set, and OpenTelemetry's exporter is not installed: no spans and metrics are sent; "
        "pip install 'forebay[otel]', or OTEL_SDK_DISABLED=true"
    )


@cache
def _say_once(what: str) -> None:
    log.warning("%s", what)
