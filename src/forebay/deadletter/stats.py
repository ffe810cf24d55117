"""Letters counted: by kind, partition, hour, state and field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from forebay.deadletter.entry import Entry
from forebay.tables import counted, html_lines, html_table

HOUR_MS = 3_600_000
SHOWN = 5  # kinds and fields of a line, the most frequent
FIELDS_KEPT = 1_000  # a path may hold a key of the record's own, and then each has one of its own


@dataclass(repr=False)
class LetterStats:
    """Counters over the letters of one source or of several; `DeadLetters.stats()` gives them."""

    total: int = 0
    bytes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    partitions: Counter[tuple[str, int]] = field(default_factory=Counter)
    hours: Counter[int] = field(default_factory=Counter)  # by the hour of the failure, epoch milliseconds
    fields: Counter[str] = field(default_factory=Counter)

    def __repr__(self) -> str:
        return f"<{self._line()}>"

    def _line(self) -> str:
        def listed(counts: Counter[str]) -> str:
            return ", ".join(f"{count:,} {name}" for name, count in counts.most_common(SHOWN))

        parts = [
            f"{counted(self.total, 'letter')} of {self.bytes:,} bytes",
            listed(self.states),
            listed(self.kinds),
        ]
        return "; ".join(part for part in parts if part)

    def _repr_html_(self) -> str:
        rows = [("kind", name, count) for name, count in self.kinds.most_common()]
        rows += [("state", name, count) for name, count in self.states.most_common()]
        rows += [
            ("partition", f"{topic}/{number}", n) for (topic, number), n in sorted(self.partitions.items())
        ]
        rows += [("field", name, count) for name, count in self.fields.most_common(SHOWN)]
        return (html_table(("by", "what", "letters"), rows) if rows else "") + html_lines([self._line()])

    def add(self, entry: Entry) -> None:
        """Count one more letter."""
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
