"""Dead letters that others wrote: Kafka Connect, Spring for Apache Kafka, Kafka Streams.

Each puts where the record is from and what happened into headers. Their letters are read as ours; who wrote them has the
system's name in front (`connect:orders-sink`), so that nobody takes it for a source of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import Message

from forebay.deadletter.letter import Letter, NotALetterError

CONNECT, SPRING, STREAMS = "__connect.errors.", "kafka_dlt-", "__streams.errors."
SYSTEMS = ("connect", "spring", "streams")


def letter_of(message: Message) -> Letter:
    """The letter that a record of a dead-letter topic is, whoever wrote it. NotALetterError for anything else."""
    headers = message.headers()
    try:
        return Letter.from_kafka(message.key(), message.value(), headers)
    except NotALetterError:
        for prefix, read in ((CONNECT, _connect), (SPRING, _spring), (STREAMS, _streams)):
            found = {name[len(prefix) :]: data for name, data in headers or () if name.startswith(prefix)}
            if found:
                return _made(message, prefix, read, {name: data or b"" for name, data in found.items()})
        raise


def system_of(writer: str) -> str | None:
    """Which system a letter's writer is of; None for our own."""
    found = writer.partition(":")[0]
    return found if found in SYSTEMS else None


_About = Mapping[str, bytes]
_Facts = tuple[
    str, str, str, str, str, str, str
]  # writer, topic, partition, offset, kind, message, stack trace


def _made(message: Message, prefix: str, read: Callable[[_About], _Facts], about: _About) -> Letter:
    known, stamp = message.timestamp()
    value = message.value()
    try:
        writer, topic, partition, offset, kind, reason, trace = read(about)
        return Letter(
            source=writer,
            topic=topic,
            partition=int(partition),
            offset=int(offset),
            timestamp_ms=stamp if known else None,
            key=message.key(),
            value=value,
            headers=tuple(
                (name, data) for name, data in message.headers() or () if not name.startswith(prefix)
            ),
            kind=kind.rpartition(".")[2] or "Other",
            message=reason or kind or "no reason given",
            failed_at_ms=stamp if known else 0,  # none of them says when it failed
            stage="KEY" if about.get("stage", b"").startswith(b"KEY") else "VALUE",
            size=len(value or b""),
            stacktrace=trace or None,
        )
    except (KeyError, ValueError) as error:
        raise NotALetterError(f"no dead letter: {error!r}") from None


def _connect(about: _About) -> _Facts:
    return (
        f"connect:{_text(about, 'connector.name') or 'unnamed'}",
        about["topic"].decode(),
        about["partition"].decode(),
        about["offset"].decode(),
        _text(about, "exception.class.name"),
        _text(about, "exception.message"),
        _text(about, "exception.stacktrace"),
    )


def _spring(about: _About) -> _Facts:
    # What failed is the cause; the exception itself says that a listener threw one.
    kind = _text(about, "exception-cause-fqcn") or _text(about, "exception-fqcn")
    return (
        f"spring:{_text(about, 'original-consumer-group') or 'unnamed'}",
        about["original-topic"].decode(),
        _number(about["original-partition"], 4),
        _number(about["original-offset"], 8),
        kind,
        _text(about, "exception-message"),
        _text(about, "exception-stacktrace"),
    )


def _streams(about: _About) -> _Facts:
    return (
        "streams:unnamed",
        about["topic"].decode(),
        about["partition"].decode(),
        about["offset"].decode(),
        _text(about, "exception"),
        _text(about, "message"),
        _text(about, "stacktrace"),
    )


def _text(about: _About, name: str) -> str:
    return about.get(name, b"").decode(errors="replace")


def _number(data: bytes, width: int) -> str:
    """Spring writes numbers as big-endian bytes; some proxies as text."""
    return str(int.from_bytes(data, "big", signed=True)) if len(data) == width else data.decode()
