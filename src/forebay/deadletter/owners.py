"""Whose letters they are: a source's, or of whoever wrote them to a topic: a pool, an agent.

What became of letters is kept under the owner's `key`. A source's is its name. Others have the cluster in it as well:
a pool may have one name on two clusters, and what was sent on one says nothing about the other. A source is an owner in
`runtime/letter_owners.py`: it takes a catalog to know one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from forebay.deadletter.entry import Entry
from forebay.deadletter.letter import Letter
from forebay.deadletter.letterbox import Letterbox, Place, Progress
from forebay.deadletter.whole import RecordGoneError, whole
from forebay.errors import MissingOptionError, UnsupportedSqlError
from forebay.hiding import Mask
from forebay.kafka.admin import Cluster
from forebay.kafka.options import KAFKA
from forebay.options import Options

if TYPE_CHECKING:
    from forebay.connectors.contract import SourceConfig, Stretch
    from forebay.deadletter.explain import Explanation, Judge
    from forebay.deadletter.masked import LetterMask
    from forebay.deadletter.recovery import RecoveryReport

# What decodes a record is imported where it is used: listing letters decodes none.


class Owner(Protocol):
    """What the tools have to know of somebody who writes letters."""

    @property
    def name(self) -> str:
        """As their letters have it."""
        ...

    @property
    def place(self) -> Place: ...

    @property
    def key(self) -> str:
        """Under which outcomes, intents and watches are kept."""
        ...

    @property
    def options(self) -> Options:
        """How the brokers are reached, and what is masked."""
        ...

    def definition(self) -> str:
        """A text that is another one when the owner decodes otherwise."""
        ...

    def check(self) -> None:
        """UnsupportedSqlError where there is no topic that records could go back to."""
        ...

    def topics(self) -> tuple[str, ...]:
        """Those that the records came from; none where that is not known."""
        ...

    def explain(self, entry: Entry, flags: str | None = None) -> Explanation:
        """`flags` are how a command names this owner, for the remedy."""
        ...

    def judge(self, target: str) -> Judge | None:
        """Whether a record that goes to this topic would be taken; None where nobody here can tell."""
        ...

    def kept_out(self) -> int:
        """How many bad records have no letter, because of the rate limit; `recover` writes them."""
        ...

    def ledger(self) -> Sequence[Stretch]:
        """Where they are."""
        ...

    def judges(self, topic: str) -> bool:
        """Whether a record of that topic is read by the owner, and gets a letter if it is refused."""
        ...

    def source(self) -> tuple[SourceConfig, Options] | None:
        """How it decodes records, as it is defined now; None where nobody here knows."""
        ...

    def recover(self, letters: Iterable[Entry], dry_run: bool, progress: Progress) -> RecoveryReport:
        """Letters for what a rate limit kept out; `letters` are those that there are."""
        ...


@dataclass(frozen=True)
class TopicOwner:
    """Somebody of whom this home knows nothing but the letters in a topic."""

    name: str
    place: Place
    options: Options
    key: str

    @classmethod
    def of(cls, name: str, topic: str, options: Options, cluster: str) -> TopicOwner:
        """`cluster` is its id."""
        return cls(name, Place(topic=topic), options, f"{name}@{cluster}")

    def check(self) -> None:
        """A record goes back to the topic that its letter names."""

    def topics(self) -> tuple[str, ...]:
        return tuple(sorted(Letterbox(self.place, self.options).writers().get(self.name, ())))

    def explain(self, entry: Entry, flags: str | None = None) -> Explanation:
        from forebay.deadletter.explain import explain_alone

        return explain_alone(entry, str(self.place.topic), complete(entry.letter, self.options), flags)

    def judge(self, target: str) -> Judge | None:
        return None  # only who reads the topic knows

    def kept_out(self) -> int:
        return 0  # a pool and an agent write a letter each

    def definition(self) -> str:
        return ""

    def ledger(self) -> Sequence[Stretch]:
        return ()

    def judges(self, topic: str) -> bool:
        return False  # only who reads the topic knows

    def source(self) -> tuple[SourceConfig, Options] | None:
        return None

    def recover(self, letters: Iterable[Entry], dry_run: bool, progress: Progress) -> RecoveryReport:
        raise UnsupportedSqlError(
            f"'{self.name}' is no source of this home: what a rate limit kept out is known where its source is"
        )


def mask_of(owner: Owner) -> LetterMask | None:
    """What must not be shown of its letters; None for nothing."""
    patterns = owner.options.get("mask")
    if not patterns:
        return None
    from forebay.deadletter.masked import LetterMask

    return LetterMask(Mask(tuple(patterns)), owner.source)


def topic_options(topic: str, given: Mapping[str, Any]) -> Options:
    """How a topic of letters is reached: `given` are options of a Kafka source, its brokers and `kafka.*`."""
    try:
        return KAFKA.bind({"group.id": "forebay-letters", "topic": topic, **given})
    except MissingOptionError as error:
        raise MissingOptionError(
            error.message,
            option=error.option,
            remedy="whose letters? A source of this home (--source), or brokers (--brokers, KAFKA_BOOTSTRAP_SERVERS)",
        ) from None


def cluster_of(topic: str, options: Options) -> str:
    """The id of the cluster that has this topic; UnknownTopicError if it has none of that name."""
    cluster = Cluster(options)
    try:
        cluster.describe([topic])
        return cluster.id()
    finally:
        cluster.close()


def complete(letter: Letter, options: Options) -> Letter:
    """The letter with all of its record's value, if the topic still has it."""
    try:
        return whole(letter, options)
    except RecordGoneError:
        return letter  # then its head is all there is to see
