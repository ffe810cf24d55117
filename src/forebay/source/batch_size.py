"""How many records the next batch may have: as many as the pipeline manages in `batch.target.ms`.

The first batch is small, because nobody knows yet what a record costs. A full batch that took less than the target makes
the next one larger, by a factor of eight at most; one that took longer makes it smaller. A batch that held all there was
says nothing about a larger one, so the size stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from forebay.connectors.alignment import HeldBack

FIRST = 50_000  # records of a first batch: what one task reads, and a small part of what any machine manages
LEAST = (
    5_000  # below this a batch costs what it costs however small it is, and smaller ones would only be more
)
GROWTH = 8.0  # two batches lead from the first to millions
SHRINK = 0.25  # one slow batch may be the machine's fault
FULL = 0.5  # of what it might have had: a batch that says what larger ones would take


class Cause(StrEnum):
    """Why the next batch may have as many records as it may."""

    FIRST = "first"  # nothing is known yet
    GREW = "grew"  # the last one took less than the target
    SHRANK = "shrank"  # the last one took longer
    KEPT = "kept"  # the last one says nothing about a larger one, or was right
    CAPPED = "capped"  # max.records.per.batch
    BUDGET = "budget"  # so much of the budget in flight is free
    ALIGNED = "aligned"  # partitions that are ahead in event time get less
    WAITING = "waiting"  # for a fuller batch, as max.delay.ms allows
    BACKPRESSURE = "backpressure"  # above the high watermark: nothing is fetched
    PAUSED = "paused"  # PAUSE SOURCE: nothing is fetched


@dataclass(frozen=True)
class BatchSize:
    """A decision: at most so many records, and why, in words."""

    records: int
    cause: Cause
    why: str
    ahead: tuple[str, ...] = ()  # partitions that get less of it than they have


def first(most: int | None) -> BatchSize:
    """For a read that has just begun."""
    size = BatchSize(FIRST, Cause.FIRST, "first batch: nothing is known of what a record costs")
    return capped(size, most)


def following(
    before: BatchSize, records: int, took_s: float, target_s: float, most: int | None = None
) -> BatchSize:
    """After a batch of so many records, which might have had as many as `before` says."""
    took = f"last batch took {took_s:.1f} s of {target_s:g} s"
    factor = min(GROWTH, max(SHRINK, target_s / max(took_s, 1e-9)))
    if factor < 1:
        # What it had is what took so long, and not what it might have had.
        smaller = min(before.records, max(LEAST, int(records * factor)))
        if smaller < before.records:
            return capped(BatchSize(smaller, Cause.SHRANK, f"shrank: {took}"), most)
        return capped(BatchSize(before.records, Cause.KEPT, f"kept: {took}, and fewer cost as much"), most)
    if records < before.records * FULL:
        text = f"kept: last batch had all {records:,} records that there were"
        return capped(BatchSize(before.records, Cause.KEPT, text), most)
    larger = max(before.records, int(records * factor))
    if larger == before.records:
        return capped(BatchSize(larger, Cause.KEPT, f"kept: {took}"), most)
    return capped(BatchSize(larger, Cause.GREW, f"grew: {took}"), most)


def aligned(size: BatchSize, held: HeldBack) -> BatchSize:
    """The same, of which some partitions get less."""
    return replace(size, cause=Cause.ALIGNED, why=str(held), ahead=held.names)


def capped(size: BatchSize, most: int | None) -> BatchSize:
    """No more than `max.records.per.batch`."""
    if most is None or size.records < most:
        return size
    return BatchSize(most, Cause.CAPPED, "capped by max.records.per.batch")
