"""A span for each handled record or batch, linked to what its producer was doing; what it sends carries the span on.

Only where OpenTelemetry is installed and a tracer provider is set: otherwise handlers are called as they are.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.pool.handlers import Awaited
    from forebay.pool.record import Record


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
    otel = _installed()
    if otel is None or isinstance(otel.trace.get_tracer_provider(), otel.trace.ProxyTracerProvider):
        return None
    return otel


def context_headers(span: Any = None) -> list[tuple[str, bytes | None]]:
    """Headers by which a consumer's span finds this one, or the current one (W3C's `traceparent`)."""
    otel = watched()
    if otel is None:
        return []
    carrier: dict[str, str] = {}
    otel.propagate.inject(carrier, context=None if span is None else otel.trace.set_span_in_context(span))
    return [(name, value.encode()) for name, value in carrier.items()]


def traced(handler: Awaited, group: str) -> Awaited:
    """The handler inside spans; the handler itself where nobody looks at spans."""
    otel = watched()
    if otel is None:
        return handler
    propagate, trace = otel.propagate, otel.trace
    tracer = trace.get_tracer("forebay.pool")

    def link(record: Record) -> Any:
        carrier = {name: data.decode(errors="replace") for name, data in record.headers if data is not None}
        context = trace.get_current_span(propagate.extract(carrier)).get_span_context()
        return trace.Link(context) if context.is_valid else None

    async def call(given: Any) -> None:
        records: list[Record] = given if isinstance(given, list) else [given]
        first = records[0]
        attributes: dict[str, Any] = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.destination.name": first.topic,
            "messaging.consumer.group.name": group,
        }
        if isinstance(given, list):
            attributes["messaging.batch.message_count"] = len(records)
        else:
            attributes["messaging.destination.partition.id"] = str(first.partition)
            attributes["messaging.kafka.offset"] = first.offset
        links = [found for record in records if (found := link(record)) is not None]
        with tracer.start_as_current_span(
            f"process {first.topic}", kind=trace.SpanKind.CONSUMER, attributes=attributes, links=links
        ) as span:
            try:
                await handler(given)
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise  # the span notes it as an exception by itself

    return call
