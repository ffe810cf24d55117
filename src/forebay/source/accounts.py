"""What a task read: how many records, which were rejected, what became of those.

A task sends it to the driver in an accumulator that is a dictionary by split: a task that is repeated replaces what it said.
The driver writes it down before the batch is done, a file a split, until it is counted. It says which ranges it is about,
so that it is found whatever the splits were when somebody counts: they depend on how many tasks could run at a time, and that
changes. Of two files about the same records the newer one counts.

Of a shared read, one file has the tasks of a whole batch: it is about many views, and is there until all have counted it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from forebay.connectors.contract import SourceBatch, Split, Stretch
from forebay.deadletter.ledger import joined
from forebay.files import write_whole
from forebay.hiding import NOTHING, Mask


class Span(NamedTuple):
    """Records [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    def overlaps(self, other: Span) -> bool:
        return self[:2] == other[:2] and self.start < other.end and other.start < self.end

    def holds(self, other: Span) -> bool:
        return self[:2] == other[:2] and self.start <= other.start and other.end <= self.end


@dataclass
class Account:
    """Of one split, or of several added up."""

    records: int = 0  # good, bad and skipped
    rejected: Counter[str] = field(default_factory=Counter)  # by kind
    example: str | None = None
    skipped: int = 0
    dlq: int = 0  # of the rejected: those that are letters
    limited: list[Stretch] = field(default_factory=list)  # of the rejected: those the rate limit kept out
    case_mismatches: int = 0  # of the good: with a NULL for a field that differs from its column only in case
    bytes: int = 0  # of keys and values as they were fetched
    mask: Mask = field(default=NOTHING, repr=False, compare=False)  # what the example must not show

    @property
    def rate_limited(self) -> int:
        return sum(stretch.bad for stretch in self.limited)

    def count(self, batch: SourceBatch) -> None:
        self.records += batch.read
        self.skipped += batch.skipped
        self.case_mismatches += batch.case_mismatches
        self.bytes += batch.bytes
        for bad in batch.rejected:
            self.rejected[bad.kind] += 1
            self.example = bad.words(self.mask)
        if batch.counted:
            self.rejected.update(batch.counted)

    def add(self, other: Account) -> None:
        self.records += other.records
        self.skipped += other.skipped
        self.case_mismatches += other.case_mismatches
        self.bytes += other.bytes
        self.rejected += other.rejected
        self.example = other.example or self.example
        self.dlq += other.dlq
        self.limited = joined([*self.limited, *other.limited])


@dataclass(frozen=True)
class FoundAccounts:
    """What is written down about some ranges. `whole`: every record in them is accounted for."""

    account: Account
    whole: bool
    files: tuple[
        Path, ...
    ]  # of this view alone: all that were about these ranges, the ones that do not count among them

    def remove(self) -> None:
        """Once it is in the catalog."""
        for path in self.files:
            path.unlink(missing_ok=True)


def send(accumulator: int, split: Split, form: Mapping[str, Any]) -> None:
    """In a task: to the driver, when the task ends. Spark counts the accumulators of tasks that succeed."""
    from pyspark.accumulators import Accumulator

    Accumulator(accumulator, {name_of(split): dict(form)}, ByName())


class ByName:
    """How an accumulator of dictionaries adds up: a name that comes again replaces what it said."""

    def zero(self, value: dict[str, Any]) -> dict[str, Any]:
        return {}

    def addInPlace(self, value: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
        value.update(more)
        return value


def write(folder: Path, name: str, form: Mapping[str, Any]) -> None:
    """On the driver: keep what a task said until it is counted."""
    folder.mkdir(parents=True, exist_ok=True)
    # A clean batch that nobody counted is counted again; what became of bad records is known only here.
    durable = bool(form["dlq"] or form["limited"])
    write_whole(folder / f"{name}.json", json.dumps(form).encode(), durable=durable)


def to_form(split: Split, account: Account) -> dict[str, Any]:
    """An account as JSON, with the ranges that it is about."""
    return {
        "written": time.time_ns(),
        "spans": [tuple(span) for span in split.spans()],
        "records": account.records,
        "rejected": account.rejected,
        "example": account.example,
        "skipped": account.skipped,
        "dlq": account.dlq,
        "limited": account.limited,
        "case_mismatches": account.case_mismatches,
        "bytes": account.bytes,
    }


def find(folders: Iterable[Path], wanted: Iterable[Split], view: str) -> FoundAccounts:
    """What files in some folders say about the records of some splits, which were read for a view in any splits."""
    splits = list(wanted)
    spans = joined_spans(Span(*span) for split in splits for span in split.spans())
    total, taken, files = Account(), list[Span](), list[Path]()
    found = [each for folder in folders for each in _forms(folder)]
    for path, form in sorted(found, key=lambda each: -each[1]["written"]):
        about = [Span(*span) for span in form["spans"]]
        if view not in form.get("views", (view,)):
            continue
        if not any(span.overlaps(want) for span in about for want in spans):
            continue
        if "views" not in form:
            files.append(path)
        new = not any(span.overlaps(other) for span in about for other in taken)
        if new and all(any(want.holds(span) for want in spans) for span in about):
            taken += about
            total.add(from_form(form))
    whole = all(split.spans() for split in splits) and _length(taken) == _length(spans)
    return FoundAccounts(total, whole, tuple(files))


def name_of(split: Split, *more: str) -> str:
    """A name for what a task does: the same whenever it is repeated."""
    return hashlib.sha256("\0".join([repr(split), *more]).encode()).hexdigest()[:32]


def _forms(folder: Path) -> Iterable[tuple[Path, dict[str, Any]]]:
    for path in folder.glob("*.json"):
        try:
            form = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):
            continue  # a power failure may leave one empty that nobody needed to be durable
        if isinstance(form, dict):  # a list is what an older version wrote
            yield from ((path, each) for each in form.get("tasks", (form,)))


def from_form(form: Mapping[str, Any]) -> Account:
    """The account of such a form."""
    return Account(
        form["records"], Counter(form["rejected"]), form["example"], form["skipped"], form["dlq"],
        [Stretch(*each) for each in form["limited"]], form.get("case_mismatches", 0),
        form.get("bytes", 0),
    )  # fmt: skip


def joined_spans(spans: Iterable[Span]) -> list[Span]:
    """The same records in as few spans as possible, in order: a large range may be cut into several splits."""
    found: list[Span] = []
    for each in sorted(spans):
        if found and found[-1][:2] == each[:2] and found[-1].end >= each.start:
            found[-1] = found[-1]._replace(end=max(found[-1].end, each.end))
        else:
            found.append(each)
    return found


def _length(spans: Sequence[Span]) -> int:
    return sum(max(0, span.end - span.start) for span in spans)
