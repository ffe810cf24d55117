"""A span for each handled record or batch, linked to what its producer was doing; what it sends carries the span on.

Only where OpenTelemetry is installed and a tracer provider is set: otherwise handlers are called as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.telemetry.spans import QUIET, failed, watched

if TYPE_CHECKING:
    from forebay.pool.handlers import Awaited
    from forebay.pool.record import Record


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
            f"process {first.topic}",
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
            **QUIET,
        ) as span:
            try:
                await handler(given)
            except Exception as error:
                failed(otel, span, error)
                raise

    return call
