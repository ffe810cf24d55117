"""Spans of a micro-batch and of some of its records, made on the driver of what tasks say.

A batch is a span by itself, linked to the records below. A record whose producer keeps its trace has one in that trace, so
that it goes on from the producer to the view; one that did not decode has its dead letter below it. They are made when the
batch is kept: what is tried again leaves none. No attribute has anything of a record's content, nor a message that may quote it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from forebay.connectors.contract import SourceConnector, TracedRecord
from forebay.deadletter.policy import ErrorPolicy
from forebay.runtime.task_accounts import TaskAccount
from forebay.source.task_traces import MOST
from forebay.telemetry.spans import PARENT, context_of, watched

log = logging.getLogger("forebay.telemetry")

TRACER = "forebay.source"


class BatchSpans:
    """Of one batch; made when it begins."""

    def __init__(self, source: str, connector: SourceConnector, batch: int) -> None:
        self._otel = watched()
        self._source = source
        self._connector = connector
        self._batch = batch
        self._began_ns = time.time_ns()

    def kept(
        self, views: Sequence[str], tasks: Iterable[TaskAccount], policy: Callable[[], ErrorPolicy]
    ) -> None:
        """The views have it. Never raises: a view does not fail for its telemetry."""
        if self._otel is None:
            return
        try:
            self._make(self._otel, views, list(tasks), policy())
        except Exception:
            log.exception("no spans of batch %d of source '%s'", self._batch, self._source)

    def _make(
        self, otel: Any, views: Sequence[str], tasks: Sequence[TaskAccount], policy: ErrorPolicy
    ) -> None:
        records = sum(task.account.records for task in tasks)
        if not records:
            return
        tracer, ended_ns = otel.trace.get_tracer(TRACER), time.time_ns()
        topics = sorted(self._connector.topics() or ())
        where = topics[0] if len(topics) == 1 else self._source
        traced = [
            (each, task, context) for each, task in _some(tasks)
            if (context := context_of(otel, [(PARENT, each.parent.encode())])) is not None
        ]  # fmt: skip
        links = [otel.trace.Link(_span_context(otel, context)) for _, _, context in traced]
        whole = tracer.start_span(
            f"receive {where}", kind=otel.trace.SpanKind.CONSUMER, links=links, start_time=self._began_ns,
            attributes={
                **self._common(views, where if len(topics) == 1 else None, "receive"),
                "messaging.batch.message_count": records,
                "forebay.rejected": sum(task.account.rejected.total() for task in tasks),
                "forebay.dead_letters": sum(task.account.dlq for task in tasks),
            },
        )  # fmt: skip
        for record, task, context in traced:
            self._record(
                otel, tracer, record, context, whole, views, ended_ns, _letter_topic(record, task, policy)
            )
        whole.end(ended_ns)

    def _record(
        self, otel: Any, tracer: Any, record: TracedRecord, context: Any, whole: Any, views: Sequence[str],
        ended_ns: int, letter_topic: str | None,
    ) -> None:  # fmt: skip
        place = {
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
        }
        span = tracer.start_span(
            f"process {record.topic}", context=context, kind=otel.trace.SpanKind.CONSUMER,
            links=[otel.trace.Link(whole.get_span_context())], start_time=self._began_ns,
            attributes={**self._common(views, record.topic, "process"), **place},
        )  # fmt: skip
        if record.kind:
            span.set_attribute("error.type", record.kind)
            span.set_status(otel.trace.StatusCode.ERROR)
        if letter_topic is not None:
            letter = tracer.start_span(
                f"send {letter_topic}", context=otel.trace.set_span_in_context(span),
                kind=otel.trace.SpanKind.PRODUCER, start_time=self._began_ns,
                attributes={
                    "messaging.system": "kafka", "messaging.operation.type": "send", "messaging.operation.name": "dead_letter",
                    "messaging.destination.name": letter_topic, "forebay.source": self._source, "error.type": record.kind,
                    "forebay.letter.topic": record.topic, "forebay.letter.partition": str(record.partition),
                    "forebay.letter.offset": record.offset,
                },
            )  # fmt: skip
            letter.end(ended_ns)
        span.end(ended_ns)

    def _common(self, views: Sequence[str], topic: str | None, operation: str) -> dict[str, Any]:
        found = {
            "messaging.system": "kafka",
            "messaging.operation.type": operation,
            "messaging.operation.name": operation,
            "messaging.destination.name": topic,
            "messaging.consumer.group.name": self._connector.group,
            "forebay.source": self._source,
            "forebay.batch": self._batch,
            "forebay.views": list(views),
        }
        return {name: value for name, value in found.items() if value is not None}


def _some(tasks: Sequence[TaskAccount]) -> list[tuple[TracedRecord, TaskAccount]]:
    """Of all tasks no more than of one: each is a span or two, and the next batch waits for them."""
    found = [(each, task) for task in tasks for each in task.traced]
    good, bad = (
        [pair for pair in found if bool(pair[0].kind) is refused][:MOST] for refused in (False, True)
    )
    return [*good, *bad]


def _span_context(otel: Any, context: Any) -> Any:
    return otel.trace.get_current_span(context).get_span_context()


def _letter_topic(record: TracedRecord, task: TaskAccount, policy: ErrorPolicy) -> str | None:
    """Where its letter went. The rate limit may have kept it out: where that is not certain, there is no span for it."""
    if not record.kind or policy.strategy != "dead_letter" or policy.topic is None:
        return None
    for part in task.account.limited:
        if (part.topic, part.partition) == record[:2] and part.start <= record.offset < part.end:
            return None
    return policy.topic
