"""Reads and decodes ranges of offsets in native code; judges here what is not a record.

The same promises as `reader.py` and `rows.py` together, which take its place where the wheel is absent, and go on
where it does not speak what the broker speaks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import KafkaError

from forebay.connectors.contract import RawRecord, RejectedRecord, Segment, SourceBatch, TracedRecord, Wanted
from forebay.errors import ConnectorError, OffsetOutOfRangeError, UnexpectedError
from forebay.kafka.missing_acls import READ, on_topics
from forebay.kafka.offsets import Range, judge
from forebay.kafka.reader import GONE, LOOK_S, STALL_S, stalled
from forebay.kafka.rows import RowDecoder
from forebay.kafka.settings import consumer_settings, from_native, native_settings, translate
from forebay.native import native, stretches
from forebay.options import Options

if TYPE_CHECKING:
    from forebay_native import BrokerError, Event, Part, Reader, Rejected

_WAIT_MS = 1000
_ALL = Wanted()
_BATCH_SHARE = 8  # of the budget: a batch is held three times on its way to Spark, and may have doubled
log = logging.getLogger("forebay.native")


_DAMAGED = KafkaError.UNKNOWN  # from the native reader alone: a broker's unknown error may pass
# Its TLS does not take the broker's certificate, and OpenSSL may; or it does not know a version, a format or an error.
_FOR_LIBRDKAFKA = (KafkaError._SSL, KafkaError._UNSUPPORTED_FEATURE)


class NotSpokenError(Exception):
    """What is left of the ranges is for librdkafka to read: it has the last word."""


class NativeReader:
    """Reads a few ranges. `on_lost` hears of ranges that are gone, when that is allowed."""

    def __init__(
        self,
        reader: Reader,
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
        self._before: dict[int, int] = {}  # where it stood before the last batch
        self._keep()
        for item in ranges:
            reader.add(item.topic, item.partition, item.start, item.end)
        if wanted.letters is not None:
            reader.letters(wanted.letters)
        if wanted.traces and hasattr(reader, "trace"):
            reader.trace(wanted.traces)

    @staticmethod
    def open(
        ranges: Sequence[Range],
        rows: RowDecoder,
        options: Options,
        on_lost: Callable[[Range], None] | None = None,
        wanted: Wanted = _ALL,
    ) -> NativeReader | None:
        """None where it is not installed, or does not know the format or one of the client's settings."""
        if native() is None or "\0" in str(rows.schema):
            return None  # a NUL ends a name in Arrow's C interface
        from forebay_native import Reader

        budget = options["fetch.budget.bytes"]
        try:
            reader = Reader(
                native_settings(consumer_settings(options)),
                rows.values,
                rows.keys,
                rows.schema,
                rows.origins,
                max_rows=options["max.poll.records"],
                max_bytes=budget // _BATCH_SHARE,
                longest=budget,
            )
        except ValueError as error:  # NotNativeError, or what cannot cross: a schema, a text that is no UTF-8
            _say_once(str(error))
            return None
        return NativeReader(reader, ranges, rows, options, on_lost, wanted)

    def batches(self) -> Iterator[SourceBatch]:
        """The records in batches, each partition's in order."""
        moved = looked = time.monotonic()
        position = self._reader.open
        while not self._reader.done:
            self._keep()
            self._before = self._reader.open
            part = self._part()
            if part.batch is not None or part.skipped or part.rejected or part.counted:
                yield self._batch(part)
                moved = time.monotonic()
            for event in part.events:
                self._on_event(event)
            if (wanted := self._reader.wanted) is not None:
                lesson = self._rows.lesson(wanted.header, wanted.of_key)
                self._reader.learn(lesson.plan, lesson.kind, lesson.message)
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
        most, reported = self._wanted.most, self._wanted.reported
        self._reader.keep(
            None if most is None else most(), self._wanted.whole, None if reported is None else reported()
        )

    def _part(self) -> Part:
        from forebay_native import BrokerError

        try:
            return self._reader.read(_WAIT_MS)
        except BrokerError as fault:  # what a broker says is an event
            raise UnexpectedError(fault.message) from fault

    def _batch(self, part: Part) -> SourceBatch:
        records = self._rows.empty() if part.batch is None else pa.record_batch(part.batch)
        return SourceBatch(
            records,
            [self._rejected(each) for each in part.rejected],
            part.skipped,
            records.num_rows - part.taken,
            part.counted,
            stretches(part.stretches),
            {self._place(index): count for index, count in part.good.items()},
            None if self._wanted.letters is None else self._wanted.letters.staged,
            part.case_mismatches,
            getattr(part, "bytes", 0),  # a wheel of the version before does not count them
            self._segments(part, records.num_rows),
            self._traced(part),
        )

    def _traced(self, part: Part) -> list[TracedRecord]:
        # A wheel of the version before knows of no traces.
        found: Sequence[tuple[int, int, str, str | None]] = getattr(part, "traced", ())
        return [
            TracedRecord(*self._place(index), offset, parent, kind or "")
            for index, offset, parent, kind in found
        ]

    def _segments(self, part: Part, rows: int) -> list[Segment]:
        """Ranges are read one after another. Records without a row may be of any range: what may be theirs is left out."""
        if rows != part.taken:
            return []
        found, before = [], 0
        for index, count in sorted(part.good.items()):
            end = before + count - part.skipped
            if end > before:
                found.append(Segment(self._place(index), before, end))
            before += count
        return found

    def _rejected(self, bad: Rejected) -> RejectedRecord:
        raw = bad.record and RawRecord(
            bad.record.timestamp_ms, bad.record.key, bad.record.value, bad.record.headers
        )
        return RejectedRecord(
            *self._place(bad.range), bad.offset, bad.kind, bad.message, bad.path, bad.of_key, bad.before, raw
        )

    def _place(self, index: int) -> tuple[str, int]:
        return self._ranges[index].topic, self._ranges[index].partition

    @property
    def last(self) -> list[Range]:
        """What the last batch was read of."""
        here = self._reader.open
        found = [
            Range(*self._place(index), start, here.get(index, self._ranges[index].end))
            for index, start in self._before.items()
        ]
        return [item for item in found if len(item) > 0]

    @property
    def rest(self) -> list[Range]:
        """What has not been read."""
        return [self._rest(index, offset) for index, offset in self._reader.open.items()]

    def _rest(self, index: int, offset: int) -> Range:
        item = self._ranges[index]
        return Range(item.topic, item.partition, offset, item.end)

    def _on_event(self, event: Event) -> None:
        index, error = event.range, event.error
        rest = self._rest(index, self._reader.open.get(index, self._ranges[index].end))
        if error.code in GONE:
            self._judge(index, rest, at_end=False)
        elif error.code == _DAMAGED:
            raise ConnectorError(f"reading {rest}: {error.message}")
        else:
            raise self._refused(error, rest)

    def _refused(self, error: BrokerError, rest: Range) -> Exception:
        """What an error that does not pass ends with. Those that do, the reader retries by itself."""
        if error.code in _FOR_LIBRDKAFKA:
            _say_once(error.message)
            return NotSpokenError(error.message)
        doing = f"reading {rest.topic}-{rest.partition}"
        return translate(from_native(error), self._options, doing, *on_topics(READ, [rest.topic]))

    def _look_for_the_rest(self) -> None:
        """After a silence: is the topic gone, or was the log cut short of what was planned?"""
        for index, offset in self._reader.open.items():
            self._judge(index, self._rest(index, offset), at_end=True)

    def _judge(self, index: int, rest: Range, *, at_end: bool) -> None:
        from forebay_native import BrokerError

        try:
            found = self._reader.watermarks(index)
        except BrokerError as error:
            if error.may_pass:
                return  # the broker is away: that is waited for
            raise self._refused(error, rest) from None
        low, high = found.low, found.high
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
