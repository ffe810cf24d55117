"""The producer that all writers here share: it waits for room, and keeps what the library says of its connections.

How long an answer is waited for, and what becomes of a record that is not taken, is for the writer to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from forebay.kafka.callbacks import called_back
from forebay.kafka.causes import Heard
from forebay.kafka.missing_acls import KINDS
from forebay.kafka.settings import CLIENT_LOG, is_refusal

ROOM_S = 0.1  # one look whether the queue has room again
Delivered = Callable[[KafkaError | None, Message], None]
"""Hears once of each record: the error, or None and where the record is."""


class OutgoingRecord(NamedTuple):
    """A record on its way. A value of None is a tombstone; without a partition the key decides, without a time the clock."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class KafkaProducer(Producer):  # type: ignore[misc]
    """`refusal` is the broker's word that it does not let us in, `heard` the last words about each broker."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.refusal: KafkaError | None = None
        self.heard = Heard()
        super().__init__({**settings, "error_cb": called_back(self._on_error)}, logger=CLIENT_LOG)

    def forget(self) -> None:
        """What was said before was about somebody else's records."""
        self.refusal = None
        self.heard.clear()

    def offer(self, record: OutgoingRecord, delivered: Delivered) -> bool:
        """Put a record into the library's queue; False while there is no room. KafkaException if it is never taken."""
        where: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        if record.timestamp_ms is not None:
            where["timestamp"] = record.timestamp_ms
        try:
            self.produce(
                record.topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=delivered,
                **where,
            )
        except BufferError:
            return False
        return True

    def hear(self, wait_s: float) -> None:
        """Hear what became of records. One that has failed for good keeps that as its refusal, if it is one."""
        try:
            self.poll(wait_s)
        except KafkaException as failed:
            if not self._refuses(failed.args[0]):
                raise
            self.refusal = self.refusal or failed.args[0]

    def put(self, record: OutgoingRecord, delivered: Delivered) -> None:
        """Put a record into the library's queue. Blocks while there is no room in it."""
        while not self.offer(record, delivered):
            self.poll(ROOM_S)

    def commit(self, call_s: float, give_up: Callable[[KafkaError], bool]) -> None:
        """Commit the transaction. Blocks; asked again for as long as the broker has not decided and nobody gives up.

        Whether a commit that timed out took place is not known. Asked again, the answer is the same as to the first call.
        """
        while True:
            try:
                self.commit_transaction(call_s)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or give_up(error.args[0]):
                    raise

    def _on_error(self, error: KafkaError) -> None:
        if self._refuses(error):
            self.refusal = self.refusal or error
        self.heard.note(error.str())

    @staticmethod
    def _refuses(error: KafkaError) -> bool:
        """Who may not write at all learns that from an error of the client: to records that wait, that is silence."""
        return is_refusal(error) or error.code() in KINDS
