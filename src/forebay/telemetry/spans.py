"""OpenTelemetry's spans, where somebody looks at them; elsewhere nothing is even imported.

Somebody looks where the program has set a tracer provider, or where OTEL_EXPORTER_OTLP_ENDPOINT names a receiver
(`otlp.py`). A record's trace is the one in its `traceparent` header, as W3C defines it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from types import SimpleNamespace
from typing import Any

from forebay.telemetry import otlp

PARENT = "traceparent"
STATE = "tracestate"  # what vendors add to it

RecordHeaders = Iterable[tuple[str, bytes | None]]


@cache
def _installed() -> Any:
    """OpenTelemetry's modules; None where they are not installed, which takes long to find out."""
    try:
        from opentelemetry import propagate, trace
    except ImportError:
        return None
    return SimpleNamespace(propagate=propagate, trace=trace)


def watched() -> Any:
    """OpenTelemetry, where somebody looks at spans; None elsewhere."""
    if otlp.wanted("TRACES"):
        otlp.set_up_traces()
    elif "opentelemetry.trace" not in sys.modules:
        return None  # nobody can have set a provider: it is not worth an import to find that out
    otel = _installed()
    if otel is None or isinstance(otel.trace.get_tracer_provider(), otel.trace.ProxyTracerProvider):
        return None
    return otel


QUIET = {"record_exception": False, "set_status_on_exception": False}
"""For `start_as_current_span`: by itself it would send the error's words along, and these may quote the record."""


def failed(otel: Any, span: Any, error: BaseException) -> None:
    """It ended with this error: its class is said, and nothing more. The words are in the log and in the dead letter."""
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(otel.trace.StatusCode.ERROR)


def context_headers(span: Any = None) -> list[tuple[str, bytes | None]]:
    """Headers by which a consumer's span finds this one, or the current one."""
    otel = watched()
    if otel is None:
        return []
    carrier: dict[str, str] = {}
    otel.propagate.inject(carrier, context=None if span is None else otel.trace.set_span_in_context(span))
    return [(name, value.encode()) for name, value in carrier.items()]


def context_of(otel: Any, headers: RecordHeaders) -> Any:
    """The context that a record carries; None where it has none that is valid and that its producer keeps."""
    carrier = {name: data.decode(errors="replace") for name, data in headers if data is not None}
    context = otel.propagate.extract(carrier)
    found = otel.trace.get_current_span(context).get_span_context()
    return context if found.is_valid and found.trace_flags.sampled else None
