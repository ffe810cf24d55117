"""Dead letters of a pool: the same letters as those of a source, for the same tools.

A record whose letter is on its way is not done. It is when the letter is durable, and only then can its offset be
committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from forebay.backoff import Backoff
from forebay.deadletter.destinations import KafkaDestination
from forebay.deadletter.letter import Letter
from forebay.deadletter.letter_spans import letters_written
from forebay.deadletter.letter_topic import check_topic, ensure_topic
from forebay.deadletter.policy import ErrorPolicy
from forebay.errors import ForebayError
from forebay.options import Options
from forebay.pool.record import Record

log = logging.getLogger("forebay.pool")


class Letters:
    """Writes letters one batch after another, in a thread of its own."""

    def __init__(
        self,
        name: str,
        options: Options,
        finished: Callable[[Record], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._name = name
        self._options = options
        self._policy = ErrorPolicy("dead_letter", options["dead.letter.topic"])
        self._destination = KafkaDestination(name, options["dead.letter.topic"], options)
        self._finished = finished
        self._failed = failed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="forebay-pool-letters")
        self._pending: list[tuple[Record, Letter]] = []
        self._sending: asyncio.Task[None] | None = None
        self.written = 0

    def prepare(self, partitions: int) -> None:
        """Make the topic if it is not there."""
        check_topic(self._policy, self._options)
        ensure_topic(self._policy, self._options, partitions)

    def put(self, record: Record, kind: str, message: str, stacktrace: str | None) -> None:
        self._pending.append((record, self._letter(record, kind, message, stacktrace)))
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def flushed(self) -> None:
        """Until what was put is durable."""
        if self._sending is not None:
            await asyncio.wait([self._sending])

    def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _send(self) -> None:
        backoff = Backoff()
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                while True:
                    try:
                        await asyncio.get_running_loop().run_in_executor(
                            self._thread, self._write, [letter for _, letter in batch]
                        )
                        break
                    except ForebayError as error:
                        if not error.retryable:
                            raise
                        wait_s = backoff.failed()
                        log.warning("dead letters are tried again in %.1f s: %s", wait_s, error.message)
                        await asyncio.sleep(wait_s)
                backoff.over()
                self.written += len(batch)
                for record, _ in batch:
                    self._finished(record)
        except Exception as error:
            self._failed(error)
        finally:
            self._sending = None

    def _write(self, letters: list[Letter]) -> None:
        began_ns = time.time_ns()
        for letter in letters:
            self._destination.write(letter)
        self._destination.flush()
        letters_written(self._options["dead.letter.topic"], letters, began_ns)

    def _letter(self, record: Record, kind: str, message: str, stacktrace: str | None) -> Letter:
        value = record.raw
        return Letter(
            source=self._name,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp,
            key=record.key,
            value=value,
            headers=tuple(record.headers),
            kind=kind,
            message=message,
            failed_at_ms=int(time.time() * 1000),
            size=len(value or b""),
            stacktrace=stacktrace,
        ).cut(self._policy.max_raw_bytes)
