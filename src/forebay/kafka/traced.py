"""Which of Kafka's messages carry a trace that their producer keeps. The native reader has the same in `kafka/traces.rs`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from confluent_kafka import Message

from forebay.connectors.contract import TracedRecord

_PARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_SAMPLED = 1


def traced_of(messages: Sequence[Message], refused: Mapping[int, str]) -> list[TracedRecord]:
    """Those whose last `traceparent` header says *sampled*; `refused` is the kind of those that are, by their index."""
    found = []
    for index, message in enumerate(messages):
        headers = message.headers()
        if not headers:
            continue
        parent = next((value for name, value in reversed(headers) if name == "traceparent"), None)
        if parent and _PARENT.fullmatch(parent) and int(parent[-2:], 16) & _SAMPLED:
            place = (message.topic(), message.partition(), message.offset())
            found.append(TracedRecord(*place, parent.decode(), refused.get(index, "")))
    return found
