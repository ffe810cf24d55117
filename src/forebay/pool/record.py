"""What a handler is given: a thin face over the client library's message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from forebay.errors import ConnectorStateError, OutputError
from forebay.pool.outputs import Data, Outbox
from forebay.telemetry.spans import context_headers

if TYPE_CHECKING:
    from forebay.pool.lease import Lease

Headers = list[tuple[str, bytes | None]]


class Record:
    """One record of a topic. `value` is what the pool's format makes of it; without a format, its bytes."""

    # One is made for each record there is: what most records never need is a slot that stays empty.
    __slots__ = (
        "_attempts",
        "_lane",
        "_lease",
        "_message",
        "_outbox",
        "_refusal",
        "_rejected",
        "_value",
        "done",
    )

    _attempts: int  # that have failed
    _lane: bytes | None  # in which it waits for others, or None
    _outbox: Outbox  # what it has sent, of a transactional pool
    _refusal: tuple[str, str]  # why it does not decode: the kind, the message
    _rejected: tuple[
        OutputError, int
    ]  # what the broker said to what an attempt has sent, and how often it did
    _value: Any  # decoded

    def __init__(self, message: Any, lease: Lease | None) -> None:
        self._message = message
        self._lease = lease
        self.done = False

    @property
    def topic(self) -> str:
        """The topic that it was read from."""
        return self._message.topic()  # type: ignore[no-any-return]

    @property
    def partition(self) -> int:
        """The partition of that topic."""
        return self._message.partition()  # type: ignore[no-any-return]

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        return self._message.offset()  # type: ignore[no-any-return]

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition and offset: which record it is."""
        return self.topic, self.partition, self.offset

    @property
    def key(self) -> bytes | None:
        """The key's bytes, whatever the format; None if it has none."""
        return self._message.key()  # type: ignore[no-any-return]

    @property
    def value(self) -> Any:
        """What the pool's format makes of the value; without a format, its bytes. None of a tombstone."""
        try:
            return self._value
        except AttributeError:
            return self._message.value()

    @property
    def raw(self) -> bytes | None:
        """The value's bytes, whatever the format."""
        return self._message.value()  # type: ignore[no-any-return]

    @property
    def headers(self) -> Headers:
        """In order; names may repeat."""
        return self._message.headers() or []

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since 1970, as the producer or the broker set it."""
        kind, ms = self._message.timestamp()
        return None if kind == TIMESTAMP_NOT_AVAILABLE else ms

    @property
    def attempt(self) -> int:
        """1 when it is handled for the first time."""
        return getattr(self, "_attempts", 0) + 1

    def send(
        self,
        topic: str,
        value: Data,
        *,
        key: Data = None,
        headers: Sequence[tuple[str, Data]] = (),
        partition: int | None = None,
    ) -> None:
        """Of a transactional pool: a record that is written if, and only if, this one is committed.

        OutputError for what is of a wrong type or larger than the client library takes. What the broker does not take
        is known only later: then this record has failed, and is handled again or not, as the pool's options say.
        What a failed attempt has sent is forgotten. Where there are spans, it carries the current one's context, unless
        `headers` have one.
        """
        context = context_headers()
        if context:
            given = {pair[0] for pair in headers}
            context = [pair for pair in context if pair[0] not in given]
        self._send(topic, value, key, [*headers, *context], partition)

    def _send(
        self,
        topic: str,
        value: Data,
        key: Data,
        headers: Sequence[tuple[str, Data]],
        partition: int | None = None,
    ) -> None:
        """As it is given: a dead letter's last header must stay the last."""
        outbox = getattr(self, "_outbox", None)
        if outbox is None:
            raise ConnectorStateError(
                "record.send() needs a transaction, and this pool has none",
                remedy="await pool.transactional('my-id').run(handler)",
            )
        outbox.put(topic, value, key, headers, partition)

    def _unsend(self) -> None:
        """Forget what this attempt has sent."""
        self._outbox.records.clear()

    def __repr__(self) -> str:
        return f"<Record {self.topic}-{self.partition} at offset {self.offset}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """What a handler in another process is given: the same record, without its ties to the pool."""
        copied = CopiedMessage(
            self.topic,
            self.partition,
            self.offset,
            self.key,
            self.raw,
            self.headers,
            self._message.timestamp(),
        )
        return _restored, (copied, getattr(self, "_attempts", 0), hasattr(self, "_value"), self.value)


class CopiedMessage:
    """A message that no client library holds: it can be pickled, or made by a test."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    def topic(self) -> Any:
        return self._parts[0]

    def partition(self) -> Any:
        return self._parts[1]

    def offset(self) -> Any:
        return self._parts[2]

    def key(self) -> Any:
        return self._parts[3]

    def value(self) -> Any:
        return self._parts[4]

    def headers(self) -> Any:
        return self._parts[5]

    def timestamp(self) -> Any:
        return self._parts[6]


def _restored(message: CopiedMessage, attempts: int, decoded: bool, value: Any) -> Record:
    record = Record(message, None)
    record._attempts = attempts
    if decoded:
        record._value = value
    return record
