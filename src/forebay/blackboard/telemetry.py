"""Spans of what a blackboard does, where OpenTelemetry is installed; elsewhere they cost nothing.

Attributes are (`kafka.topic`, `partition`, `offset`, `transaction_id`, `artifact.id`, `artifact.type`,
`correlation_id`) beside OpenTelemetry's own names for messaging.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from forebay.blackboard.artifact import Document
from forebay.telemetry.spans import QUIET, context_headers, failed, watched

Placed = Mapping[tuple[str, int], int]


def _attributes(topic: str, document: Document, operation: str) -> dict[str, Any]:
    found = {
        "messaging.system": "kafka",
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
        "messaging.message.id": document["id"],
        "messaging.message.conversation_id": document["correlation_id"],
        "kafka.topic": topic,
        "artifact.id": document["id"],
        "artifact.type": document["type"],
        "correlation_id": document["correlation_id"],
    }
    return {name: value for name, value in found.items() if value is not None}


@contextmanager
def publishing(topic: str, document: Document) -> Iterator[Any]:
    """Around a publish; gives the span, or None."""
    otel = watched()
    if otel is None:
        yield None
        return
    with otel.trace.get_tracer("forebay.blackboard").start_as_current_span(
        f"send {topic}",
        kind=otel.trace.SpanKind.PRODUCER,
        attributes=_attributes(topic, document, "send"),
        **QUIET,
    ) as span:
        try:
            yield span
        except Exception as error:
            failed(otel, span, error)
            raise


def published(span: Any, topic: str, placed: Placed, transaction: str | None) -> None:
    """Where it went is known only afterwards."""
    if span is None:
        return
    for (name, partition), after in placed.items():
        if name == topic:
            place(span, partition, after - 1, transaction)


def place(span: Any, partition: int, offset: int, transaction: str | None) -> None:
    span.set_attribute("partition", partition)
    span.set_attribute("offset", offset)
    span.set_attribute("messaging.destination.partition.id", str(partition))
    span.set_attribute("messaging.kafka.offset", offset)
    if transaction:
        span.set_attribute("transaction_id", transaction)


def context(span: Any) -> list[tuple[str, bytes | None]]:
    """Headers that let a consumer's span find this one."""
    return [] if span is None else context_headers(span)


@contextmanager
def handling(
    agent: str,
    group: str,
    topic: str,
    partition: int,
    offset: int,
    document: Document,
    headers: Sequence[tuple[str, bytes | None]],
    transaction: str | None = None,
) -> Iterator[Any]:
    """Around an agent's work on an artifact; linked to the span that published it.

    The pool has a span for the record; this one is inside it, and there is one for each agent.
    """
    otel = watched()
    if otel is None:
        yield None
        return
    carrier = {name: data.decode(errors="replace") for name, data in headers if data is not None}
    origin = otel.trace.get_current_span(otel.propagate.extract(carrier)).get_span_context()
    attributes = _attributes(topic, document, "process") | {
        "messaging.consumer.group.name": group,
        "agent.name": agent,
    }
    with otel.trace.get_tracer("forebay.blackboard").start_as_current_span(
        f"agent {agent}",
        kind=otel.trace.SpanKind.CONSUMER,
        attributes=attributes,
        links=[otel.trace.Link(origin)] if origin.is_valid else [],
        **QUIET,
    ) as span:
        place(span, partition, offset, transaction)
        try:
            yield span
        except Exception as error:
            failed(otel, span, error)
            raise
