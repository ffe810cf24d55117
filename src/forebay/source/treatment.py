"""How a task treats records that do not decode. It gets to know with its split, and what it found goes back with its account.

A task reads and writes nothing of the session's home: it may run on another machine. The process that plans a batch looks at
the policy, so that one that ALTER SOURCE has changed takes effect with the next batch, and shares the letters that the rate
limit lets through among the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forebay.connectors.contract import SourceConfig, SourceConnector, Split
from forebay.deadletter.breaker import HandedHealth, Health, HealthKeeper
from forebay.deadletter.bulk import BulkLetters
from forebay.deadletter.destinations import Destination, FileDestination, KafkaDestination
from forebay.deadletter.limiter import Bucket, SharedLimiter, TaskLimiter, shares
from forebay.deadletter.policy import ErrorPolicy, SourceFolder
from forebay.deadletter.router import Router
from forebay.source import accounts

Place = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True)
class Treatment:
    """For one task."""

    policy: ErrorPolicy
    share: Bucket | None  # of the letters that the rate limit lets through; None: no limit
    health: Mapping[Place, Health]  # how partitions fared, up to where the task begins
    loan: str = ""  # whose share it is a part of


def treatments(
    splits: Sequence[Split | None],
    folder: SourceFolder,
    health: HealthKeeper,
    loan: str,
    reads: Callable[[], int],
) -> list[Treatment]:
    """For the tasks of a batch, of one of so many reads that share the letters; `loan` names this one."""
    policy = folder.read_policy()
    lent: Sequence[Bucket] = ()
    if policy.strategy == "dead_letter" and policy.max_per_second > 0 and splits:
        lent = shares(SharedLimiter(folder.bucket, policy.max_per_second).lend(loan, reads()), len(splits))
    return [
        Treatment(
            policy, lent[number] if lent else None, _known(split, health) if policy.breaks else {}, loan
        )
        for number, split in enumerate(splits)
    ]


def _known(split: Split | None, health: HealthKeeper) -> dict[Place, Health]:
    spans = () if split is None else split.spans()
    return {(topic, number, start): health.load(topic, number, start) for topic, number, start, _ in spans}


class TreatingRouter(Router):
    """A task's router, made of its treatment. `who` reads, so that a task that is repeated replaces its own letters."""

    def __init__(
        self, config: SourceConfig, connector: SourceConnector, split: Split, treatment: Treatment, who: str
    ) -> None:
        policy, name = treatment.policy, accounts.name_of(split, who)

        def destination() -> Destination:
            if policy.path is not None:
                return FileDestination(Path(policy.path), f"{config.name}-{name}")
            assert policy.topic is not None
            return KafkaDestination(config.name, policy.topic, connector.options, policy.brokers)

        bulk = None
        if policy.strategy == "dead_letter":
            bulk = BulkLetters.open(config.name, policy, connector.options, split.topic_ids())
        self._loan = treatment.loan
        self._share = None if treatment.share is None else TaskLimiter(treatment.share)
        self._found = HandedHealth(treatment.health)
        super().__init__(
            config.name, policy, split, self._found, destination, self._share, bulk, connector.mask
        )

    def to_form(self) -> dict[str, Any]:
        """What goes back to the driver besides the account."""
        return {
            "letters_left": None if self._share is None else asdict(self._share.left()),
            "loan": self._loan,
            "health": [[*place, end, asdict(each)] for place, (end, each) in self._found.found.items()],
        }
