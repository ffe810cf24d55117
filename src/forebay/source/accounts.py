"""What a task read, written down by the task: how many records, which were rejected.

A file a split, named by the split, so that a task that is repeated writes the same file again and
nothing is counted twice. Rows would cost every good record something; an accumulator counts repeats.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forebay.connectors.contract import SourceBatch, Split


@dataclass
class Account:
    """Of one split, or of several added up."""

    records: int = 0  # good, bad and skipped
    rejected: Counter[str] = field(default_factory=Counter)  # by kind
    example: str | None = None
    skipped: int = 0

    def count(self, batch: SourceBatch) -> None:
        self.records += batch.read
        self.skipped += batch.skipped
        for bad in batch.rejected:
            self.rejected[bad.kind] += 1
            self.example = f"{bad.topic}-{bad.partition} at offset {bad.offset}: {bad.kind}: {bad.message}"

    def add(self, other: Account) -> None:
        self.records += other.records
        self.skipped += other.skipped
        self.rejected += other.rejected
        self.example = other.example or self.example


def write(folder: Path, split: Split, account: Account) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, split)
    draft = path.with_suffix(f".{uuid.uuid4().hex}")
    draft.write_text(json.dumps([account.records, account.rejected, account.example, account.skipped]))
    draft.replace(path)


def read(folder: Path, splits: Sequence[Split]) -> Account | None:
    """All splits added up; None if one of them was not written down."""
    total = Account()
    for split in splits:
        try:
            records, rejected, example, skipped = json.loads(_path(folder, split).read_text())
        except FileNotFoundError:
            return None
        total.add(Account(records, Counter(rejected), example, skipped))
    return total


def remove(folder: Path, splits: Sequence[Split]) -> None:
    """Once they are in the catalog."""
    for split in splits:
        _path(folder, split).unlink(missing_ok=True)


def _path(folder: Path, split: Split) -> Path:
    return folder / f"{hashlib.sha256(repr(split).encode()).hexdigest()[:32]}.json"
