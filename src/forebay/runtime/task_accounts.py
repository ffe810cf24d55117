"""What tasks say of what they read, on the driver: judged over all tasks of a batch, and handed on to the next batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.connectors.contract import TracedRecord
from forebay.deadletter.breaker import Health, HealthFolder
from forebay.deadletter.limiter import Bucket, SharedLimiter
from forebay.deadletter.policy import SourceFolder
from forebay.errors import TooManyErrorsError
from forebay.source import event_times
from forebay.source.accounts import Account, ByName, Span, from_form
from forebay.source.treatment import Place

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True)
class TaskAccount:
    """Of one task. `views` are those that it read for, of a shared read."""

    account: Account
    letters_left: Bucket | None  # of those that were lent to it; None where there is no limit
    health: Mapping[Place, tuple[int, Health]]  # by where a range began: where it ended, and how it was
    views: Sequence[str] = ()
    event_times: Mapping[tuple[str, int], int] = field(
        default_factory=dict
    )  # the greatest of each partition, in microseconds
    loan: str = ""  # whose letters were lent to it
    traced: Sequence[TracedRecord] = ()  # some of the records that carry a trace
    spans: Sequence[Span] = ()  # what it read
    form: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)  # as it was sent

    @staticmethod
    def of(form: Mapping[str, Any]) -> TaskAccount:
        health = {
            (topic, number, start): (end, Health(**each))
            for topic, number, start, end, each in form.get("health", ())
        }
        left = form.get("letters_left")
        return TaskAccount(
            from_form(form),
            None if left is None else Bucket(**left),
            health,
            form.get("views", ()),
            event_times.from_form(form),
            form.get("loan", ""),
            [TracedRecord(*each) for each in form.get("traced", ())],
            [Span(*span) for span in form.get("spans", ())],
            form,
        )


class AccountCollector:
    """Takes the accounts of one query's tasks over one source."""

    def __init__(self, context: SparkContext) -> None:
        self._accumulator = context.accumulator({}, ByName())

    @property
    def id(self) -> int:
        """What tasks name it by."""
        return int(self._accumulator.aid)

    def take(self) -> dict[str, Mapping[str, Any]]:
        """All that came since it was last asked, by split. After a job, those of all its tasks are there."""
        found: dict[str, Mapping[str, Any]] = self._accumulator.value
        self._accumulator.value = {}
        return found


def judge(source: str, folder: SourceFolder, tasks: Iterable[TaskAccount]) -> None:
    """Raises where too much of a partition is bad, over all tasks that read it. Before anything of the batch is kept."""
    policy = folder.read_policy()
    for (topic, number), (_, _, health) in _joined(tasks).items() if policy.breaks else ():
        fault = health.fault(policy)
        if fault:
            raise TooManyErrorsError(
                f"source '{source}' stops: {topic}-{number}: {fault}",
                remedy=f"fix what writes the topic, or ALTER SOURCE {source} ON ERROR = … with a higher "
                "limit, then start the view again; nothing of this batch was kept",
            )


def hand_on(folder: SourceFolder, health: Path, tasks: Sequence[TaskAccount]) -> None:
    """After a batch: how partitions fared is kept for the next one, and letters that were not needed are given back."""
    for (topic, number), (start, end, found) in _joined(tasks).items():
        HealthFolder(health).save(topic, number, start, end, found)
    left: dict[str, list[Bucket]] = {}
    for task in tasks:
        if task.letters_left is not None:
            left.setdefault(task.loan, []).append(task.letters_left)
    for loan, buckets in left.items():
        SharedLimiter(folder.bucket, folder.read_policy().max_per_second).give_back(buckets, loan)


def newest_times(tasks: Iterable[TaskAccount]) -> dict[tuple[str, int], int]:
    """The greatest event time of each partition in a batch."""
    found: dict[tuple[str, int], int] = {}
    for place, at in (each for task in tasks for each in task.event_times.items()):
        found[place] = max(at, found.get(place, at))
    return found


def _joined(tasks: Iterable[TaskAccount]) -> dict[tuple[str, int], tuple[int, int, Health]]:
    """By topic and partition: where the batch began and ended in it, and how it was."""
    found: dict[tuple[str, int], tuple[int, int, Health]] = {}
    ranges = [each for task in tasks for each in task.health.items()]
    for (topic, number, start), (end, health) in sorted(ranges, key=lambda each: each[0]):
        known = found.get((topic, number))
        found[topic, number] = (
            (start, end, health) if known is None else (known[0], end, known[2].then(health))
        )
    return found
