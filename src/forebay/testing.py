"""For your tests: a pool's handler without a broker.

    from forebay.testing import handle, record

    [outcome] = handle(bill, [record({"id": 1}, key="ann")], format="json")
    assert outcome.verdict == "done"

What decides is the pool's own: its decoders, its order, its workers, its attempts and its verdicts. What is not there is
Kafka: groups, commits, transactions that a broker refuses. For those there is `forebay.DevStack`, a real broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

from forebay.errors import PoolStateError
from forebay.kafka.producer import OutgoingRecord
from forebay.pool.decoding import decoding
from forebay.pool.failures import Verdict
from forebay.pool.handlers import Adapted, Awaited, Handler
from forebay.pool.lease import Lease
from forebay.pool.outputs import MOST_BYTES, Outbox
from forebay.pool.pool import Pool
from forebay.pool.record import CopiedMessage, Record

__all__ = ["HandledRecord", "handle", "record"]

_NOWHERE = {
    "bootstrap_servers": "localhost:9092",
    "topics": ["test"],
    "group_id": "test",
}  # never connected to


@dataclass(frozen=True)
class HandledRecord:
    """What became of a record."""

    record: Record
    verdict: str
    """`done`; or what the pool does with a record that has failed for good: `dead_letter`, `skip` or `halt`; or `pending`:
    it was never handled, because a record before it in its order has halted."""
    attempts: int
    """How often it was tried; 0 for one that is pending."""
    error: BaseException | None
    """Why the last attempt failed."""
    sent: tuple[OutgoingRecord, ...]
    """What `record.send()` was given by a record that is done: each with `topic`, `key`, `value`, `headers`, `partition`."""


def record(
    value: Any = None,
    *,
    key: bytes | str | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    topic: str = "test",
    partition: int = 0,
    offset: int = 0,
    timestamp: int | None = None,
) -> Record:
    """A record as a handler is given it. Bytes and text are taken as they are, None is a tombstone, all else is JSON."""
    plain = value is None or isinstance(value, bytes | str)
    raw = _bytes(value) if plain else orjson.dumps(value)
    stamp = (TIMESTAMP_NOT_AVAILABLE, 0) if timestamp is None else (TIMESTAMP_CREATE_TIME, timestamp)
    made = Record(CopiedMessage(topic, partition, offset, _bytes(key), raw, list(headers), stamp), None)
    if not plain:
        made._value = orjson.loads(raw or b"")
    return made


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def handle(
    handler: Handler,
    records: Sequence[Record],
    *,
    pool: Pool | None = None,
    transactional: bool = False,
    errors: Mapping[type[BaseException], str] | None = None,
    **settings: Any,
) -> list[HandledRecord]:
    """Handle records as a pool would that has just read them; returns an outcome for each, in their order.

    The pool is yours (`pool`, which is not started), or one of these settings, which are those of `forebay.Pool`. Values
    are decoded anew, by its `format`. Retries do not wait. Raises PoolHaltedError where the pool would end with it. It
    runs an event loop of its own: in a test that is async, `await asyncio.to_thread(handle, …)`.
    """
    if pool is None:
        pool = Pool(errors=errors, **_NOWHERE | settings)
    elif settings or errors:
        raise PoolStateError("the pool has settings already", remedy="give handle() a pool, or settings")
    return asyncio.run(_Rehearsal(pool, transactional).handle(handler, records))


class _Rehearsal(Pool):
    """A pool without a consumer. It is its own dead-letter topic, and its own transactions."""

    def __init__(self, pool: Pool, transactional: bool) -> None:
        vars(self).update(vars(pool))
        if transactional or self._transactions is not None:
            self._transactions = self  # type: ignore[assignment]
        if self.options["dead.letter.topic"]:
            self._letters = self  # type: ignore[assignment]
        self._errors: dict[Record, tuple[int, BaseException]] = {}  # the last attempt that failed, and why
        self._buried: set[Record] = set()

    async def handle(self, handler: Handler, records: Sequence[Record]) -> list[HandledRecord]:
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._decode = decoding(self.options)
        adapted = Adapted(handler, self.options)
        self._crew = self._make_crew(adapted)
        leases = {place: Lease(*place) for place in {(each.topic, each.partition) for each in records}}
        given = [Record(each._message, leases[each.topic, each.partition]) for each in records]
        if self._decode is not None:
            self._decode(given)
        watch = self._loop.create_task(self._watch_handlers())
        try:
            self._crew.take(given)
            while tasks := [slot.task for slot in self._crew.slots if slot.task is not None]:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            adapted.close()
        if self._ended.done():
            self._ended.result()
        return [self._outcome(each) for each in given]

    def _outcome(self, record: Record) -> HandledRecord:
        failed, error = self._errors.get(record, (0, None))
        if failed < record.attempt:  # the last attempt did not fail, or there was none
            outbox: Outbox | None = getattr(record, "_outbox", None)
            sent = tuple(outbox.records) if outbox and record.done else ()
            return HandledRecord(
                record, "done" if record.done else "pending", int(record.done) and record.attempt, None, sent
            )
        verdict = (
            Verdict.DEAD_LETTER if record in self._buried else Verdict.SKIP if record.done else Verdict.HALT
        )
        return HandledRecord(record, verdict, failed, error, ())

    def around(self, handler: Awaited) -> Awaited:
        async def call(given: Any) -> None:
            for each in given if isinstance(given, list) else (given,):
                each._outbox = Outbox(MOST_BYTES)
            await handler(given)

        return call

    def put(self, record: Record, kind: str, message: str, stacktrace: str | None) -> None:
        self._buried.add(record)
        self._crew.finished(record)

    def _failed(self, record: Record, error: BaseException) -> None:
        self._errors[record] = record.attempt, error
        super()._failed(record, error)

    def _retry(self, record: Record, wait_s: float) -> None:
        self._crew.again(record)

    def _make_room(self) -> None:
        """No partition is heavy: nobody knows its lag."""

    def handler_times(self) -> tuple[list[int], float]:
        return list(self._crew.times), self._crew.total_s
