"""Spans of a replay: a record that is sent again goes on in the trace that its producer began.

Its letter has the record's own headers, the trace among them. The record that is sent carries the span of the replay on, so
that whoever processes it hangs below that: same trace, next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forebay.deadletter.identity import Identity
from forebay.telemetry.spans import PARENT, STATE, context_headers, context_of, failed, watched

MOST = 64  # of one transaction: a replay of a hundred thousand letters is not to be a hundred thousand spans

RecordHeader = tuple[str, bytes | None]


class ReplaySpans:
    """Of the letters of one transaction."""

    def __init__(self, source: str, target: str) -> None:
        self._otel = watched()
        self._source = source
        self._target = target
        self._open: dict[Identity, Any] = {}

    def headers(self, identity: Identity, own: Sequence[RecordHeader]) -> list[RecordHeader]:
        """The record's own headers, with the replay's span in place of the producer's, where that is followed."""
        if self._otel is None or len(self._open) >= MOST:
            return list(own)
        context = context_of(self._otel, own)
        if context is None:
            return list(own)
        span = self._otel.trace.get_tracer("forebay.deadletter").start_span(
            f"send {self._target}", context=context, kind=self._otel.trace.SpanKind.PRODUCER,
            attributes={
                "messaging.system": "kafka", "messaging.operation.type": "send", "messaging.operation.name": "replay",
                "messaging.destination.name": self._target, "forebay.source": self._source,
                "forebay.letter.topic": identity.topic, "forebay.letter.partition": str(identity.partition),
                "forebay.letter.offset": identity.offset,
            },
        )  # fmt: skip
        self._open[identity] = span
        carried = [each for each in own if each[0] not in (PARENT, STATE)]
        return [*carried, *context_headers(span)]

    def sent(self, places: Mapping[Identity, tuple[int, int]]) -> None:
        """The transaction is committed; where each record is now."""
        for identity, span in self._open.items():
            if identity in places:
                partition, offset = places[identity]
                span.set_attribute("messaging.destination.partition.id", str(partition))
                span.set_attribute("messaging.kafka.offset", offset)
            span.end()
        self._open.clear()

    def failed(self, error: BaseException) -> None:
        """Nothing of the transaction was sent."""
        for span in self._open.values():
            failed(self._otel, span, error)
            span.end()
        self._open.clear()
