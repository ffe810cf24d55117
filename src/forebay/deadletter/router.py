"""Acts on the error policy in the task that reads: bad records are left out, become letters, or end it.

Nothing here runs for a batch without bad records.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

from forebay.connectors.contract import RejectedRecord, SourceBatch, Split, Stretch, Wanted
from forebay.deadletter.breaker import Health, HealthKeeper
from forebay.deadletter.bulk import BulkLetters
from forebay.deadletter.destinations import Destination
from forebay.deadletter.ledger import joined
from forebay.deadletter.letter import Letter
from forebay.deadletter.limiter import Limiter
from forebay.deadletter.policy import ErrorPolicy
from forebay.errors import BadRecordError, TooManyErrorsError
from forebay.formats import RefusalKind
from forebay.hiding import NOTHING, Mask

EXAMPLES = 3
# Recovery decodes again what the rate limit kept out. These decode, so nobody would find them: they are always written.
UNLIMITED = frozenset({RefusalKind.FUTURE_TIMESTAMP, RefusalKind.LATE_RECORD})

_partition = attrgetter("topic", "partition")


class Router:
    """For one task. `health` is the breakers' memory."""

    def __init__(
        self,
        source: str,
        policy: ErrorPolicy,
        split: Split,
        health: HealthKeeper,
        destination: Callable[[], Destination],
        limiter: Limiter | None,
        bulk: BulkLetters | None = None,
        mask: Mask = NOTHING,
    ) -> None:
        self._mask = mask  # what errors must not quote
        self._source = source
        self._policy = policy
        self._limiter = limiter
        self._make = destination
        self._bulk = bulk
        self._destination: Destination | None = None
        self._memory = health
        self._ids = split.topic_ids()
        self._spans = {(topic, number): (start, end) for topic, number, start, end in split.spans()}
        self._health: dict[tuple[str, int], Health] = {}
        self._examples: deque[RejectedRecord] = deque(maxlen=EXAMPLES)
        self._limited: list[Stretch] = []
        self._example = 0  # of the bad records of this task: with words, and not only counted
        self.letters = 0

    @property
    def wanted(self) -> Wanted:
        """What the reader must tell of bad records for this policy; no more than that."""
        reported = None if self._policy.breaks else self._examples_wanted
        if self._policy.strategy != "dead_letter":
            return Wanted(most=reported)
        most = None if self._limiter is None else self._limiter.worth_asking
        if self._bulk is None:
            return Wanted(True, None if self._policy.breaks else most)
        return Wanted(True, most, self._bulk.handle, reported)

    def _examples_wanted(self) -> int:
        return max(0, EXAMPLES - self._example)

    @property
    def limited(self) -> list[Stretch]:
        """What the rate limit kept out."""
        return [part._replace(topic_id=self._ids.get(part.topic, "")) for part in joined(self._limited)]

    def see(self, batch: SourceBatch) -> None:
        """Every batch, clean or not. Raises where the policy says that this is the end."""
        if self._policy.breaks:
            self._judge(batch)
        if batch.rejected or batch.counted:
            self._example += len(batch.rejected)
            self._route(batch)

    def late(self, records: Sequence[RejectedRecord]) -> None:
        """Letters of records that are good, and too late for a view that wants them as letters.

        They are not among those that were refused: other views may have taken them.
        """
        assert self._policy.strategy == "dead_letter"
        for record in records:
            self._write(record)

    def finish(self) -> None:
        """Before the task ends: until every letter is durable."""
        if self._destination is not None:
            self._destination.flush()
        if self._bulk is not None and self.letters:
            self._bulk.flush()
        if self._policy.breaks:
            for place, (start, end) in self._spans.items():
                self._memory.save(*place, start, end, self._of(place))

    def close(self) -> None:
        """However the task ends."""
        if self._destination is not None:
            self._destination.close()

    def _route(self, batch: SourceBatch) -> None:
        bad = [record for record in batch.rejected if not record.gone]
        if self._policy.strategy == "fail" and bad:
            raise BadRecordError(
                f"source '{self._source}' stops at a record that {_fault(bad[0])} (ON ERROR = 'fail'): "
                f"{bad[0].words(self._mask)}",
                kind=bad[0].kind,
                remedy=f"fix what wrote it, then ALTER SOURCE {self._source} ON ERROR = 'skip' or 'dead_letter' "
                "to get past it, and start the view again; nothing of this batch was kept",
            )
        if self._policy.strategy != "dead_letter":
            return
        if self._bulk is not None and batch.lettered is not None:
            granted = batch.lettered if self._limiter is None else self._limiter.take(batch.lettered)
            kept_out = self._bulk.grant(granted) if batch.lettered else []
            self._keep_out(granted, [*kept_out, *batch.stretches])
            return
        limited = [record for record in bad if record.kind not in UNLIMITED]
        granted = len(limited) if self._limiter is None else self._limiter.take(len(limited))
        written = [record for record in bad if record.kind in UNLIMITED] + limited[:granted]
        for record in written:
            self._write(record)
        beyond = [Stretch(r.topic, r.partition, r.offset, r.offset + 1, 1) for r in limited[granted:]]
        self._keep_out(len(written), [*beyond, *batch.stretches])

    def _write(self, record: RejectedRecord) -> None:
        if self._destination is None:
            self._destination = self._make()
        id = self._ids.get(record.topic, "")
        self._destination.write(letter(self._source, record, self._policy, int(time.time() * 1000), id))

    def _keep_out(self, written: int, kept_out: Sequence[Stretch]) -> None:
        self.letters += written
        self._limited += kept_out
        if len(self._limited) > 10_000:
            self._limited = joined(self._limited)

    def _judge(self, batch: SourceBatch) -> None:
        bad = sorted((r for r in batch.rejected if not r.gone), key=_partition)  # keeps the order of each
        found = {place: list(records) for place, records in groupby(bad, _partition)}
        self._examples.extend(bad)
        for place in {*found, *batch.good}:
            health = self._of(place)
            health.see(found.get(place, ()), batch.good.get(place, 0))
            fault = health.fault(self._policy)
            if fault:
                raise TooManyErrorsError(
                    f"source '{self._source}' stops: {place[0]}-{place[1]}: {fault}; the last of them: "
                    + "; ".join(record.words(self._mask) for record in self._examples),
                    remedy=f"fix what writes the topic, or ALTER SOURCE {self._source} ON ERROR = … with a higher "
                    "limit, then start the view again; nothing of this batch was kept",
                )

    def _of(self, place: tuple[str, int]) -> Health:
        if place not in self._health:
            start, _ = self._spans.get(place, (0, 0))
            self._health[place] = self._memory.load(*place, start)
        return self._health[place]


def letter(source: str, bad: RejectedRecord, policy: ErrorPolicy, now_ms: int, topic_id: str = "") -> Letter:
    """The letter of a rejected record, with as much of its value as the policy lets it carry."""
    record = bad.record
    value = record.value if record else None
    made = Letter(
        source=source,
        topic=bad.topic,
        partition=bad.partition,
        offset=bad.offset,
        timestamp_ms=record.timestamp_ms if record else None,
        key=record.key if record else None,
        value=value,
        headers=tuple(record.headers) if record else (),
        kind=bad.kind,
        message=bad.message,
        failed_at_ms=now_ms,
        field=bad.path or None,
        stage="KEY" if bad.of_key else "VALUE",
        size=len(value or b"") if record else -1,
        topic_id=topic_id,
    )
    return made.cut(policy.max_raw_bytes) if policy.include_raw else made.without_value()


def _fault(bad: RejectedRecord) -> str:
    return "is from the future" if bad.kind == RefusalKind.FUTURE_TIMESTAMP else "does not decode"
