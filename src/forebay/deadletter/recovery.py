"""Recovery: letters for records that the rate limit kept out, read again where the topic still has them.

Each is decoded once more, for its reason. Letters are counted once by identity, so a recovery that is killed
half-way is run again from its beginning and nothing is there twice.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from forebay.connectors.contract import RejectedRecord, SourceConfig
from forebay.deadletter.letter import Letter
from forebay.deadletter.reader import Progress, read_ranges, silent
from forebay.deadletter.seen import Seen
from forebay.formats import Kind
from forebay.kafka.admin import Cluster
from forebay.kafka.offsets import Partition, Range
from forebay.kafka.rows import RowDecoder
from forebay.options import Options

NEAR = 2_000  # offsets: reading over so many good records costs less than asking the broker once more
DECODES_NOW = "kept out by the rate limit; it decodes now, so that a replay delivers it"
RANGES_KEPT = 20

Write = Callable[[Sequence[Letter]], None]
"""Puts letters where the source's letters are; they are there for good when it returns."""


@dataclass
class RecoveryReport:
    """What came back of what was kept out."""

    source: str
    dry_run: bool = False
    kept_out: int = 0  # records in the ledger
    recovered: int = 0  # letters written; in a dry run, records that the topic still has
    decode_now: int = 0  # of these, records that the source as it is defined now would take
    gone: int = 0  # the topic does not have them any more
    gone_ranges: list[str] = field(default_factory=list)


def recover(
    config: SourceConfig,
    options: Options,
    ranges: Iterable[Range],
    write: Write,
    *,
    dry_run: bool = False,
    progress: Progress = silent,
) -> RecoveryReport:
    """Write a letter for each record of these ranges that can still be had."""
    wanted = _merged(ranges)
    report = RecoveryReport(config.name, dry_run, kept_out=sum(len(item) for item in wanted))
    rows = RowDecoder(config.schema, options)
    found = Seen()
    for messages in _read(wanted, options):
        if not dry_run:
            letters = list(_letters(config.name, messages, rows))
            write(letters)
            report.decode_now += sum(letter.message == DECODES_NOW for letter in letters)
        for message in messages:
            found.add((message.topic(), message.partition(), message.offset()))
        report.recovered += len(messages)
        progress(report.recovered, report.kept_out)
    report.gone = report.kept_out - report.recovered
    if report.gone:
        report.gone_ranges = [str(item) for item in _missing(wanted, found)][:RANGES_KEPT]
    return report


def _merged(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets, each once, in order: a repeated task may have written a range twice."""
    merged: list[Range] = []
    for item in sorted(ranges, key=lambda item: (item.topic, item.partition, item.start)):
        last = merged[-1] if merged else None
        if last and (last.topic, last.partition) == (item.topic, item.partition) and item.start <= last.end:
            merged[-1] = Range(last.topic, last.partition, last.start, max(last.end, item.end))
        else:
            merged.append(item)
    return merged


def _read(wanted: Sequence[Range], options: Options) -> Iterator[list[Message]]:
    """The records of these ranges that the topic has. Near ranges are read in one go, others left out."""
    by_partition: dict[Partition, list[Range]] = defaultdict(list)
    for item in wanted:
        by_partition[item.topic, item.partition].append(item)
    starts = _starts(by_partition, options)
    for key, ranges in by_partition.items():
        for bundle in _bundles(ranges):
            whole = Range(*key, max(bundle[0].start, starts[key]), bundle[-1].end)
            pending = iter(bundle)
            current: Range | None = next(pending)
            for messages in read_ranges([whole], options):
                kept = []
                for message in messages:
                    while current is not None and message.offset() >= current.end:
                        current = next(pending, None)
                    if current is not None and message.offset() >= current.start:
                        kept.append(message)
                if kept:
                    yield kept


def _starts(partitions: Iterable[Partition], options: Options) -> dict[Partition, int]:
    cluster = Cluster(options)
    try:
        return cluster.earliest(list(partitions))
    finally:
        cluster.close()


def _bundles(ranges: Sequence[Range]) -> Iterator[list[Range]]:
    bundle = [ranges[0]]
    for item in ranges[1:]:
        if item.start - bundle[-1].end > NEAR:
            yield bundle
            bundle = []
        bundle.append(item)
    yield bundle


def _letters(source: str, messages: Sequence[Message], rows: RowDecoder) -> Iterator[Letter]:
    reasons: dict[tuple[str, int, int], RejectedRecord] = {}
    for batch in rows.decode(messages):
        reasons.update(((bad.topic, bad.partition, bad.offset), bad) for bad in batch.rejected)
    now = int(time.time() * 1000)
    for message in messages:
        bad = reasons.get((message.topic(), message.partition(), message.offset()))
        stamped, stamp = message.timestamp()
        value = message.value()
        yield Letter(
            source,
            message.topic(),
            message.partition(),
            message.offset(),
            stamp if stamped else None,
            message.key(),
            value,
            tuple(message.headers() or ()),
            bad.kind if bad else str(Kind.Other),
            bad.message if bad else DECODES_NOW,
            now,
            field=getattr(bad, "path", None) or None,
            stage="KEY" if getattr(bad, "of_key", False) else "VALUE",
            size=len(value or b""),
        )


def _missing(wanted: Sequence[Range], found: Seen) -> Iterator[Range]:
    """What of the ranges was not found. `found` is used up: offsets that are asked for are in it afterwards."""
    for item in wanted:
        start = None
        for offset in range(item.start, item.end + 1):
            absent = offset < item.end and found.add((item.topic, item.partition, offset))
            if absent and start is None:
                start = offset
            elif not absent and start is not None:
                yield Range(item.topic, item.partition, start, offset)
                start = None
