"""Letters counted: by kind, partition, hour, state and field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from forebay.deadletter.entry import Entry

HOUR_MS = 3_600_000
FIELDS_KEPT = 1_000  # a path may hold a key of the record's own, and then each has one of its own


@dataclass
class LetterStats:
    """Counters over the letters of one source or of several."""

    total: int = 0
    bytes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    partitions: Counter[tuple[str, int]] = field(default_factory=Counter)
    hours: Counter[int] = field(default_factory=Counter)  # by the hour of the failure, epoch milliseconds
    fields: Counter[str] = field(default_factory=Counter)

    def add(self, entry: Entry) -> None:
        letter = entry.letter
        self.total += 1
        self.bytes += letter.size
        self.kinds[letter.kind] += 1
        self.states[str(entry.outcome.state)] += 1
        self.partitions[letter.topic, letter.partition] += 1
        self.hours[letter.failed_at_ms // HOUR_MS * HOUR_MS] += 1
        if letter.field and (letter.field in self.fields or len(self.fields) < FIELDS_KEPT):
            self.fields[letter.field] += 1


def count(entries: Iterable[Entry]) -> LetterStats:
    stats = LetterStats()
    for entry in entries:
        stats.add(entry)
    return stats
