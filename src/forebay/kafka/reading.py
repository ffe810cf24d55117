"""Ranges of a log as batches: natively where that is possible, with librdkafka where it is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from forebay.connectors.contract import Segment, SourceBatch, Wanted
from forebay.formats import RefusalKind
from forebay.kafka.consumers import CACHE
from forebay.kafka.offsets import Range
from forebay.kafka.rows import RowDecoder
from forebay.kafka.settings import consumer_settings
from forebay.options import Options

LIBRARY_QUEUE = 64 << 20  # bytes that librdkafka fetches ahead by default

OnLost = Callable[[Range], None] | None


def read(
    ranges: Sequence[Range], rows: RowDecoder, options: Options, on_lost: OnLost, wanted: Wanted
) -> Iterator[SourceBatch]:
    """All of them, in order. What is gone is handed to `on_lost`; without one it is an error."""
    from forebay.kafka.native_reader import NativeReader, NotSpokenError

    reader = NativeReader.open(ranges, rows, options, on_lost, wanted)
    if reader is None:
        yield from _read_plain(ranges, rows, options, on_lost, wanted)
        return
    try:
        for batch in reader.batches():
            if rows.refuses_times_of(batch.records):
                yield from _with_times_refused(batch, reader.last, rows, options, wanted)
            else:
                yield batch
    except NotSpokenError:
        rest = reader.rest
    else:
        return
    yield from _read_plain(rest, rows, options, on_lost, wanted)


def _with_times_refused(
    batch: SourceBatch, ranges: Sequence[Range], rows: RowDecoder, options: Options, wanted: Wanted
) -> Iterator[SourceBatch]:
    """A batch of the native reader without the records from the future, and these by themselves.

    The batch does not say which record a row is of, nor has it their bytes. So the records are read again, and decoded
    where both are at hand. What did not decode was reported, and its letter made, by the native reader.
    """
    again = list(_read_plain(ranges, rows, options, lambda _: None, wanted))
    future = [bad for part in again for bad in part.rejected if bad.kind == RefusalKind.FUTURE_TIMESTAMP]
    yield replace(
        batch,
        records=pa.concat_batches([part.records for part in again]) if again else rows.empty(),
        extra=sum(part.extra for part in again),
        good=sum((Counter(part.good) for part in again), Counter()),
        case_mismatches=sum(part.case_mismatches for part in again),
        segments=_joined_segments(again),
    )
    yield SourceBatch(rows.empty(), future)


def _joined_segments(parts: Sequence[SourceBatch]) -> list[Segment]:
    """Of the rows of several batches, one behind the other."""
    found, before = list[Segment](), 0
    for part in parts:
        found += [Segment(place, before + start, before + end) for place, start, end in part.segments]
        before += part.records.num_rows
    return found


def _read_plain(
    ranges: Sequence[Range], rows: RowDecoder, options: Options, on_lost: OnLost, wanted: Wanted
) -> Iterator[SourceBatch]:
    from forebay.kafka.reader import RangeReader

    with CACHE.borrow(consumer_settings(options, **_queue(options))) as consumer:
        reader = RangeReader(consumer, ranges, options, on_lost)
        for messages in reader.chunks(options["max.poll.records"]):
            yield from rows.decode(messages, whole=wanted.whole, traced=wanted.traces > 0)


def _queue(options: Options) -> dict[str, Any]:
    """The library fetches ahead in threads of its own, until so much waits for its reader."""
    if "kafka.queued.max.messages.kbytes" in options.given:
        return {}
    share = int(options["fetch.budget.bytes"] * options["backpressure.high.watermark"])
    return {"queued.max.messages.kbytes": max(1, min(LIBRARY_QUEUE, share) >> 10)}
