"""Reads and decodes ranges of offsets in native code; judges here what is not a record.

The same promises as `reader.py` and `rows.py` together, which take its place where the wheel is absent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError

from forebay.connectors.contract import RejectedRecord, SourceBatch
from forebay.errors import ConnectorError, OffsetOutOfRangeError, ReadStalledError
from forebay.kafka.offsets import Range, judge
from forebay.kafka.reader import FATAL, GONE, LOOK_S, STALL_S
from forebay.kafka.rows import RowDecoder
from forebay.kafka.settings import address, consumer_settings, translate
from forebay.native import librdkafka, native
from forebay.options import Options

_WAIT_MS = 1000
_QUEUE_SHARE = 8  # of the budget: the library may hold twice its limit, and a batch is held three times
_QUEUED_MESSAGES = 10_000


class NativeReader:
    """Reads a few ranges. `on_lost` hears of ranges that are gone, when that is allowed."""

    def __init__(
        self,
        ranges: Sequence[Range],
        rows: RowDecoder,
        options: Options,
        on_lost: Callable[[Range], None] | None = None,
    ) -> None:
        self._ranges = ranges
        self._rows = rows
        self._options = options
        self._on_lost = on_lost
        self._reader: Any = None

    @staticmethod
    def can_read(rows: RowDecoder) -> bool:
        """Whether the native reader is here and knows this format with these options."""
        module = native()
        if module is None or librdkafka() is None or "\0" in str(rows.schema):
            return False  # a NUL ends a name in Arrow's C interface
        if rows.keys is not None or not rows.one_row_each:
            return False  # the native reader takes keys as they are, and each record as one row
        try:
            if rows.values is not None:
                module.Decoder(*rows.values)
        except ValueError:
            return False
        return True

    def batches(self) -> Iterator[SourceBatch]:
        """The records in batches, each partition's in order."""
        if not self._ranges:
            return
        module = native()
        assert module is not None
        budget = self._options["fetch.budget.bytes"] // _QUEUE_SHARE
        limits = (self._options["max.poll.records"], budget)
        self._reader = module.Reader(
            librdkafka(),
            self._settings(budget),
            self._rows.values,
            self._rows.schema,
            self._rows.origins,
            limits,
        )
        try:
            for item in self._ranges:
                self._reader.add(item.topic, item.partition, item.start, item.end)
            yield from self._read()
        finally:
            self._reader.close()

    def _settings(self, budget: int) -> list[tuple[str, str]]:
        settings = consumer_settings(self._options)
        settings.setdefault("queued.min.messages", _QUEUED_MESSAGES)
        # By powers of two: each other setting is another client with connections of its own.
        share = budget >> (len(self._ranges) - 1).bit_length()
        settings.setdefault("queued.max.messages.kbytes", max(1, share >> 10))
        return sorted((key, _text(value)) for key, value in settings.items())

    def _read(self) -> Iterator[SourceBatch]:
        moved = looked = time.monotonic()
        while not self._reader.done:
            batch, rejected, events = self._reader.read(_WAIT_MS)
            for index, code, text in events:
                self._on_event(index, code, text)
            now = time.monotonic()
            if batch is not None or rejected:
                moved = now
                yield self._batch(batch, rejected)
            elif now - moved > STALL_S:
                rest = ", ".join(str(self._rest(index, offset)) for index, offset in self._reader.open)
                raise ReadStalledError(
                    f"no records from Kafka at {address(self._options)} for {STALL_S:.0f} s while reading {rest}"
                )
            elif now - max(moved, looked) > LOOK_S:
                self._look_for_the_rest()
                looked = time.monotonic()

    def _batch(self, batch: Any, rejected: list[tuple[int, int, str, str, bytes | None]]) -> SourceBatch:
        records = self._rows.empty() if batch is None else pa.record_batch(batch)
        return SourceBatch(
            records,
            [
                RejectedRecord(
                    self._ranges[index].topic, self._ranges[index].partition, offset, kind, message
                )
                for index, offset, kind, message, _ in rejected
            ],
        )

    def _rest(self, index: int, offset: int) -> Range:
        item = self._ranges[index]
        return Range(item.topic, item.partition, offset, item.end)

    def _on_event(self, index: int, code: int, text: str) -> None:
        rest = self._rest(index, dict(self._reader.open).get(index, self._ranges[index].end))
        if code in GONE:
            self._judge(index, rest, at_end=False)
        elif code in FATAL:
            raise translate(KafkaError(code, text), self._options, f"reading {rest.topic}-{rest.partition}")
        elif code == -1:
            raise ConnectorError(f"reading {rest}: {text}")
        # Everything else (a broker away, a leader moving) the library retries by itself.

    def _look_for_the_rest(self) -> None:
        """After a silence: is the topic gone, or was the log cut short of what was planned?"""
        for index, offset in self._reader.open:
            self._judge(index, self._rest(index, offset), at_end=True)

    def _judge(self, index: int, rest: Range, *, at_end: bool) -> None:
        try:
            low, high = self._reader.watermarks(index, 10_000)
        except RuntimeError as error:
            code, text = error.args
            if code in FATAL:
                raise translate(
                    KafkaError(code, text), self._options, f"reading {rest.topic}-{rest.partition}"
                ) from None
            return  # the broker is away: that is waited for
        if at_end and low <= rest.start < high:
            return  # there is something to come
        lost, resume = judge(rest, low, high)
        if lost is not None and self._on_lost is None:
            raise OffsetOutOfRangeError(f"{len(lost)} records are gone before they were read: {lost}")
        if lost is not None and self._on_lost is not None:
            self._on_lost(lost)
        if resume is not None:
            self._reader.seek(index, resume)
        else:
            self._reader.give_up(index)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
