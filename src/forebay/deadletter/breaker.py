"""Circuit breakers: a source of which too much is bad is stopped, rather than emptied into a bin.

Judged a partition at a time, in the task that reads it. How a partition fared is handed from one
micro-batch to the next in a file named by the offset where the one ends and the other starts, so that a
task that is repeated starts from the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

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

    def see(self, rejected: Iterable[RejectedRecord], good: int) -> None:
        """A batch: its bad records, in order, and how many good ones are between and behind them."""
        seen = 0
        for record in rejected:
            if record.before > seen:
                seen, self.run = record.before, 0
            self.run += 1
            self.bad += 1
            self.records += 1
            self.longest = max(self.longest, self.run)
        if good > seen:
            self.run = 0
        self.records += good

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


def load(folder: Path, topic: str, partition: int, offset: int) -> Health:
    """How the partition fared up to an offset; well, where nothing is known."""
    try:
        return Health(*json.loads(_path(folder, topic, partition, offset).read_bytes()))
    except FileNotFoundError:
        return Health()


def save(folder: Path, topic: str, partition: int, offset: int, health: Health) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(_path(folder, topic, partition, offset), json.dumps(astuple(health.handed_on())).encode())


def forget(folder: Path, topic: str, partition: int, below: int) -> None:
    """What nobody starts from any more."""
    for path in folder.glob(f"{_stem(topic, partition)}@*.json"):
        if int(path.stem.rpartition("@")[2]) < below:
            path.unlink(missing_ok=True)


def _path(folder: Path, topic: str, partition: int, offset: int) -> Path:
    return folder / f"{_stem(topic, partition)}@{offset}.json"


def _stem(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"  # Kafka's topics have letters, digits, dots, dashes and underscores
