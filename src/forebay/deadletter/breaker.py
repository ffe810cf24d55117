"""Circuit breakers: a source of which too much is bad is stopped, rather than emptied into a bin.

Judged a partition at a time, in the task that reads it. How a partition fared is handed from one
micro-batch to the next by the offset where the one ends and the other starts, so that a task that is repeated starts
from the same: in a file (`HealthFolder`), or with the task itself and its answer (`HandedHealth`). A partition that
several tasks of a batch read is judged once more when all have answered (`Health.then`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Protocol

from forebay.connectors.contract import RejectedRecord
from forebay.deadletter.policy import ErrorPolicy
from forebay.files import write_whole

FEWEST = 100  # records before a ratio means anything
MEMORY = 1_000  # records: what was before counts for no more than these


@dataclass
class Health:
    """Of one partition, up to some offset."""

    records: float = 0
    bad: float = 0
    run: int = 0  # bad ones in a row, up to here
    longest: int = 0  # since this task began
    leading: int = 0  # bad ones in a row before the first good one of this task
    only_bad: bool = True  # since this task began

    def see(self, rejected: Iterable[RejectedRecord], good: int) -> None:
        """A batch: its bad records, in order, and how many good ones are between and behind them."""
        seen = 0
        for record in rejected:
            if record.before > seen:
                seen, self.run, self.only_bad = record.before, 0, False
            self.run += 1
            self.leading += self.only_bad
            self.bad += 1
            self.records += 1
            self.longest = max(self.longest, self.run)
        if good > seen:
            self.run, self.only_bad = 0, False
        self.records += good

    def then(self, after: Health) -> Health:
        """How the partition fared up to the end of the task that read what comes next, which began with nothing known."""
        return Health(
            self.records + after.records,
            self.bad + after.bad,
            self.run + after.run if after.only_bad else after.run,
            max(self.longest, self.run + after.leading, after.longest),
            self.leading + (after.leading if self.only_bad else 0),
            self.only_bad and after.only_bad,
        )

    def fault(self, policy: ErrorPolicy) -> str | None:
        """Why the source must stop, if it must."""
        most = policy.max_consecutive_errors
        if most is not None and self.longest >= most:
            return f"{self.longest} records in a row are bad, and max_consecutive_errors is {most}"
        ratio = policy.max_error_ratio
        if ratio is not None and self.records >= FEWEST and self.bad > ratio * self.records:
            share = self.bad / self.records
            return (
                f"{share:.1%} of the last {self.records:.0f} records are bad, and max_error_ratio is {ratio}"
            )
        return None

    def handed_on(self) -> Health:
        """What the next task starts from."""
        scale = min(1.0, MEMORY / self.records) if self.records else 1.0
        return Health(self.records * scale, self.bad * scale, self.run, self.run)


class HealthKeeper(Protocol):
    """Who knows how a partition fared up to an offset."""

    def load(self, topic: str, partition: int, offset: int) -> Health:
        """Well, where nothing is known."""
        ...

    def save(self, topic: str, partition: int, start: int, end: int, health: Health) -> None:
        """A task that read [start, end) has found this. Nobody starts before `start` any more."""
        ...


@dataclass
class HandedHealth:
    """What a task is given, and what it found."""

    known: Mapping[tuple[str, int, int], Health] = field(default_factory=dict)  # by topic, partition, offset
    found: dict[tuple[str, int, int], tuple[int, Health]] = field(
        default_factory=dict
    )  # by where the task's range began: where it ended, and how it was

    def load(self, topic: str, partition: int, offset: int) -> Health:
        known = self.known.get((topic, partition, offset))
        return Health() if known is None else replace(known)

    def save(self, topic: str, partition: int, start: int, end: int, health: Health) -> None:
        self.found[topic, partition, start] = end, health


class HealthFolder:
    """Files, named by the offset up to which they tell."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def load(self, topic: str, partition: int, offset: int) -> Health:
        try:
            return Health(*json.loads(self._path(topic, partition, offset).read_bytes()))
        except FileNotFoundError:
            return Health()

    def save(self, topic: str, partition: int, start: int, end: int, health: Health) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        path = self._path(topic, partition, end)
        write_whole(path, json.dumps(astuple(health.handed_on())).encode())
        for old in self._root.glob(f"{_stem(topic, partition)}@*.json"):
            if int(old.stem.rpartition("@")[2]) < start:
                old.unlink(missing_ok=True)

    def _path(self, topic: str, partition: int, offset: int) -> Path:
        return self._root / f"{_stem(topic, partition)}@{offset}.json"


def _stem(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"  # Kafka's topics have letters, digits, dots, dashes and underscores
