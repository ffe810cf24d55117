"""Reads and decodes ranges of offsets in native code; judges here what is not a record.

The same promises as `reader.py` and `rows.py` together, which take its place where the wheel is absent, and go on
where it does not speak what the broker speaks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError

from forebay.connectors.contract import RawRecord, RejectedRecord, SourceBatch, Stretch, Wanted
from forebay.errors import ConnectorError, OffsetOutOfRangeError
from forebay.kafka.offsets import Range, judge
from forebay.kafka.reader import GONE, LOOK_S, STALL_S, stalled
from forebay.kafka.rows import RowDecoder
from forebay.kafka.settings import consumer_settings, native_settings, translate
from forebay.native import native
from forebay.options import Options

_WAIT_MS = 1000
_ALL = Wanted()
_BATCH_SHARE = 8  # of the budget: a batch is held three times on its way to Spark, and may have doubled
log = logging.getLogger("forebay.native")


# Its TLS does not take the broker's certificate, and OpenSSL may; or it does not know a version, a format or an error.
_FOR_LIBRDKAFKA = (KafkaError._SSL, KafkaError._UNSUPPORTED_FEATURE)


class NotSpokenError(Exception):
    """What is left of the ranges is for librdkafka to read: it has the last word."""


class NativeReader:
    """Reads a few ranges. `on_lost` hears of ranges that are gone, when that is allowed."""

    def __init__(
        self,
        reader: Any,
        ranges: Sequence[Range],
        rows: RowDecoder,
        options: Options,
        on_lost: Callable[[Range], None] | None = None,
        wanted: Wanted = _ALL,
    ) -> None:
        self._reader = reader
        self._wanted = wanted
        self._ranges = ranges
        self._rows = rows
        self._options = options
        self._on_lost = on_lost
        self._keep()
        for item in ranges:
            reader.add(item.topic, item.partition, item.start, item.end)
        if wanted.letters is not None:
            reader.letters(wanted.letters)

    @staticmethod
    def open(
        ranges: Sequence[Range],
        rows: RowDecoder,
        options: Options,
        on_lost: Callable[[Range], None] | None = None,
        wanted: Wanted = _ALL,
    ) -> NativeReader | None:
        """None where it is not installed, or does not know the format or one of the client's settings."""
        module = native()
        if module is None or "\0" in str(rows.schema):
            return None  # a NUL ends a name in Arrow's C interface
        budget = options["fetch.budget.bytes"]
        limits = (options["max.poll.records"], budget // _BATCH_SHARE, budget)
        settings = native_settings(consumer_settings(options))
        try:
            reader = module.Reader(settings, rows.values, rows.keys, rows.schema, rows.origins, limits)
        except ValueError as error:
            _say_once(str(error))
            return None
        return NativeReader(reader, ranges, rows, options, on_lost, wanted)

    def batches(self) -> Iterator[SourceBatch]:
        """The records in batches, each partition's in order."""
        moved = looked = time.monotonic()
        position = self._reader.open
        while not self._reader.done:
            self._keep()
            batch, counts, refused, events = self._reader.read(_WAIT_MS)
            if batch is not None or any(counts) or refused[0] or refused[1][0]:
                yield self._batch(batch, refused, *counts)
                moved = time.monotonic()
            for index, code, text in events:
                self._on_event(index, code, text)
            if (wanted := self._reader.wanted) is not None:
                self._reader.learn(*self._rows.lesson(*wanted))
                moved = time.monotonic()
            now = time.monotonic()
            if self._reader.open != position:  # past a gap, too, which has no records
                position, moved = self._reader.open, now
            if now - moved > STALL_S:
                raise stalled(self._options, STALL_S, self.rest, self._reader.trouble)
            if now - max(moved, looked) > LOOK_S:
                self._look_for_the_rest()
                looked = time.monotonic()

    def _keep(self) -> None:
        most, told = self._wanted.most, self._wanted.told
        self._reader.keep(
            None if most is None else most(), self._wanted.whole, None if told is None else told()
        )

    def _batch(self, batch: Any, refused: Any, taken: int, skipped: int, mismatched: int) -> SourceBatch:
        rejected, (kinds, stretches), good = refused
        records = self._rows.empty() if batch is None else pa.record_batch(batch)
        return SourceBatch(
            records,
            [self._rejected(*each) for each in rejected],
            skipped,
            records.num_rows - taken,
            dict(kinds),
            [Stretch(*self._place(index), *span) for index, *span in stretches],
            {self._place(index): count for index, count in good},
            None if self._wanted.letters is None else self._wanted.letters.staged,
            mismatched,
        )

    def _rejected(
        self,
        index: int,
        offset: int,
        before: int,
        kind: str,
        message: str,
        path: str,
        of_key: bool,
        record: tuple[Any, ...] | None,
    ) -> RejectedRecord:
        raw = None if record is None else RawRecord(*record)
        return RejectedRecord(*self._place(index), offset, kind, message, path, of_key, before, raw)

    def _place(self, index: int) -> tuple[str, int]:
        return self._ranges[index].topic, self._ranges[index].partition

    @property
    def rest(self) -> list[Range]:
        """What has not been read."""
        return [self._rest(index, offset) for index, offset in self._reader.open]

    def _rest(self, index: int, offset: int) -> Range:
        item = self._ranges[index]
        return Range(item.topic, item.partition, offset, item.end)

    def _on_event(self, index: int, code: int, text: str) -> None:
        rest = self._rest(index, dict(self._reader.open).get(index, self._ranges[index].end))
        if code in GONE:
            self._judge(index, rest, at_end=False)
        elif code == -1:
            raise ConnectorError(f"reading {rest}: {text}")
        else:
            raise self._refused(code, text, rest)

    def _refused(self, code: int, text: str, rest: Range) -> Exception:
        """What an error that does not pass ends with. Those that do, the reader retries by itself."""
        if code in _FOR_LIBRDKAFKA:
            _say_once(text)
            return NotSpokenError(text)
        return translate(KafkaError(code, text), self._options, f"reading {rest.topic}-{rest.partition}")

    def _look_for_the_rest(self) -> None:
        """After a silence: is the topic gone, or was the log cut short of what was planned?"""
        for index, offset in self._reader.open:
            self._judge(index, self._rest(index, offset), at_end=True)

    def _judge(self, index: int, rest: Range, *, at_end: bool) -> None:
        try:
            low, high = self._reader.watermarks(index)
        except RuntimeError as error:
            code, text = error.args
            if code:
                raise self._refused(code, text, rest) from None
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


@cache
def _say_once(why: str) -> None:
    log.warning("the native reader is left out: %s; decoding in Python, several times slower", why)
