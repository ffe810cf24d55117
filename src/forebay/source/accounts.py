"""What a task read, written down by the task: how many records, which were rejected, what became of those.

A file a split, named by the split, so that a task that is repeated writes the same file again and
nothing is counted twice. Rows would cost every good record something; an accumulator counts repeats.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forebay.connectors.contract import SourceBatch, Split, Stretch
from forebay.deadletter.ledger import joined
from forebay.deadletter.policy import write_whole


@dataclass
class Account:
    """Of one split, or of several added up."""

    records: int = 0  # good, bad and skipped
    rejected: Counter[str] = field(default_factory=Counter)  # by kind
    example: str | None = None
    skipped: int = 0
    dlq: int = 0  # of the rejected: those that are letters
    limited: list[Stretch] = field(default_factory=list)  # of the rejected: those the rate limit kept out

    @property
    def rate_limited(self) -> int:
        return sum(stretch.bad for stretch in self.limited)

    def count(self, batch: SourceBatch) -> None:
        self.records += batch.read
        self.skipped += batch.skipped
        for bad in batch.rejected:
            self.rejected[bad.kind] += 1
            self.example = f"{bad.topic}-{bad.partition} at offset {bad.offset}: {bad.kind}: {bad.message}"
        if batch.counted:
            self.rejected.update(batch.counted)

    def add(self, other: Account) -> None:
        self.records += other.records
        self.skipped += other.skipped
        self.rejected += other.rejected
        self.example = other.example or self.example
        self.dlq += other.dlq
        self.limited = joined([*self.limited, *other.limited])


def write(folder: Path, split: Split, account: Account) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, split)
    form = [account.records, account.rejected, account.example, account.skipped, account.dlq, account.limited]
    # A clean batch that nobody counted is counted again; what became of bad records is known only here.
    write_whole(path, json.dumps(form).encode(), durable=bool(account.dlq or account.limited))


def read(folder: Path, splits: Sequence[Split]) -> Account | None:
    """All splits added up; None if one of them was not written down."""
    total = Account()
    for split in splits:
        try:
            form = json.loads(_path(folder, split).read_text())
        except FileNotFoundError:
            return None
        # One that an older version left behind has neither letters nor limits.
        records, rejected, example, skipped, dlq, limited = [*form, 0, []] if len(form) == 4 else form
        stretches = [Stretch(*each) for each in limited]
        total.add(Account(records, Counter(rejected), example, skipped, dlq, stretches))
    return total


def remove(folder: Path, splits: Sequence[Split]) -> None:
    """Once they are in the catalog."""
    for split in splits:
        _path(folder, split).unlink(missing_ok=True)


def name_of(split: Split, *more: str) -> str:
    """A name for what a task does: the same whenever it is repeated."""
    return hashlib.sha256("\0".join([repr(split), *more]).encode()).hexdigest()[:32]


def _path(folder: Path, split: Split) -> Path:
    return folder / f"{name_of(split)}.json"
