"""A span for a dead letter that was written, in the trace of its record."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from forebay.deadletter.letter import Letter
from forebay.telemetry.spans import context_of, watched

MOST = 64  # of those that are written together


def letters_written(topic: str, letters: Iterable[Letter], began_ns: int) -> None:
    """They were sent. Nothing of the record's content is in a span, nor the error's words, which may quote it."""
    otel = watched()
    if otel is None:
        return
    tracer = otel.trace.get_tracer("forebay.deadletter")
    followed = ((letter, context_of(otel, letter.headers)) for letter in letters)
    for letter, context in islice((pair for pair in followed if pair[1] is not None), MOST):
        tracer.start_span(
            f"send {topic}", context=context, kind=otel.trace.SpanKind.PRODUCER, start_time=began_ns,
            attributes={
                "messaging.system": "kafka", "messaging.operation.type": "send", "messaging.operation.name": "dead_letter",
                "messaging.destination.name": topic, "forebay.source": letter.source, "error.type": letter.kind,
                "forebay.letter.topic": letter.topic, "forebay.letter.partition": str(letter.partition),
                "forebay.letter.offset": letter.offset,
            },
        ).end()  # fmt: skip
