"""Whose letters they are: a source's of this home, or of whoever wrote them to a topic: a pool, an agent.

What became of letters is kept under the owner's `key`. A source's is its name. Others have the cluster in it as well:
a pool may have one name on two clusters, and what was sent on one says nothing about the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from forebay.catalog import Catalog
from forebay.connectors.contract import SourceConnector
from forebay.deadletter.entry import Entry
from forebay.deadletter.letter import Letter
from forebay.deadletter.outcomes import mark_of
from forebay.deadletter.reader import Letterbox, Place, Progress
from forebay.deadletter.seen import Seen
from forebay.deadletter.whole import RecordGoneError, whole
from forebay.errors import MissingOptionError, OptionConflictError, UnsupportedSqlError
from forebay.kafka.admin import Cluster
from forebay.kafka.options import KAFKA
from forebay.options import Options
from forebay.runtime.known import KnownSources, unknown

if TYPE_CHECKING:
    from forebay.deadletter.explain import Explanation, Judge
    from forebay.deadletter.recovery import RecoveryReport
    from forebay.deadletter.writer import Destination

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
        """How the brokers are reached."""
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

    def recover(self, letters: Iterable[Entry], dry_run: bool, progress: Progress) -> RecoveryReport:
        """Letters for what a rate limit kept out; `letters` are those that there are."""
        ...


@dataclass(frozen=True)
class SourceOwner:
    """A source of this home."""

    name: str
    place: Place
    _sources: KnownSources
    _catalog: Catalog

    @property
    def key(self) -> str:
        return self.name

    @property
    def options(self) -> Options:
        return self._sources.options(self.name)

    def check(self) -> None:
        self._connector()

    def topics(self) -> tuple[str, ...]:
        options = self._connector().options
        return (options["topic"],) if options.get("topic") else tuple(options.get("topics") or ())

    def explain(self, entry: Entry, flags: str | None = None) -> Explanation:
        from forebay.deadletter.explain import explain

        connector = self._connector()
        url = connector.options.get("schema.registry.url")
        shown = connector.options.table.shown("schema.registry.url", str(url)) if url else None
        record = _complete(entry.letter, connector.options)
        return explain(entry, connector.config, connector.options, shown, record, flags)

    def judge(self, target: str) -> Judge | None:
        from forebay.deadletter.explain import Judge

        if target not in self.topics():
            return None
        connector = self._connector()
        return Judge(connector.config, connector.options)

    def kept_out(self) -> int:
        return sum(stretch.bad for stretch in self._catalog.ledger(self.name))

    def recover(self, letters: Iterable[Entry], dry_run: bool, progress: Progress) -> RecoveryReport:
        from forebay.deadletter.recovery import Recovery

        policy, connector = self._sources.policy(self.name), self._connector()
        if self.place.path is None:
            policy = replace(policy, topic=self.place.topic, brokers=self.place.brokers)
        stretches = self._catalog.ledger(self.name)
        known = Seen()
        for entry in letters if stretches else ():
            known.add(entry.identity, mark_of(entry.letter))
        recovery = Recovery(connector.config, connector.options, policy, known, self._destination)
        return recovery.run(
            stretches,
            lambda stretch: self._catalog.settle_ledger(self.name, stretch),
            dry_run=dry_run,
            progress=progress,
        )

    def _destination(self) -> Destination:
        from forebay.deadletter.writer import FileDestination, KafkaDestination

        if self.place.path is not None:
            return FileDestination(self.place.path, f"{self.name}-recovered-{uuid.uuid4().hex}")
        assert self.place.topic is not None
        return KafkaDestination(self.name, self.place.topic, self.options, self.place.brokers)

    def _connector(self) -> SourceConnector:
        from forebay.kafka.connector import KafkaSource

        connector = self._sources.peek(self.name)
        if not isinstance(connector, KafkaSource):
            raise UnsupportedSqlError(
                f"source '{self.name}' is a {connector.config.connector} source: it has no topic to go back to"
            )
        return connector


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

        return explain_alone(entry, str(self.place.topic), _complete(entry.letter, self.options), flags)

    def judge(self, target: str) -> Judge | None:
        return None  # only who reads the topic knows

    def kept_out(self) -> int:
        return 0  # a pool and an agent write a letter each

    def recover(self, letters: Iterable[Entry], dry_run: bool, progress: Progress) -> RecoveryReport:
        raise UnsupportedSqlError(
            f"'{self.name}' is no source of this home: what a rate limit kept out is known where its source is"
        )


def owner_of(
    name: str,
    sources: KnownSources,
    catalog: Catalog,
    topic: str | None = None,
    given: Mapping[str, str] | None = None,
) -> Owner:
    """A source of this home, whose letters are where it writes them or in another `topic`; or whoever wrote to that topic."""
    if name in sources.names():
        if given:
            raise OptionConflictError(
                f"'{name}' is a source of this home, and knows its brokers",
                option="bootstrap.servers",
                remedy=f"--source {name} without brokers; for somebody else of that name, use another home (--home)",
            )
        place = (
            place_of(name, sources)
            if topic is None
            else Place(topic=topic, brokers=sources.policy(name).brokers)
        )
        return SourceOwner(name, place, sources, catalog)
    if topic is None:
        error = unknown("source", name, sources.names())
        error.remedy += "; letters of a pool or an agent are found by their topic (--topic, --brokers)"
        raise error
    options = topic_options(topic, given or {})
    return TopicOwner.of(name, topic, options, cluster_of(topic, options))


def owners_in(
    topic: str, sources: KnownSources, catalog: Catalog, given: Mapping[str, str] | None = None
) -> list[Owner]:
    """Everybody who has letters in a topic."""
    options = topic_options(topic, given or {})
    cluster, known = cluster_of(topic, options), sources.names()
    return [
        owner_of(name, sources, catalog, topic, given)
        if name in known
        else TopicOwner.of(name, topic, options, cluster)
        for name in sorted(Letterbox(Place(topic=topic), options).writers())
    ]


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


def place_of(source: str, sources: KnownSources) -> Place:
    """Where the letters of a source are: as its policy says, or as the one said that it was created with."""
    policy = sources.policy(source)
    for known in (policy, sources.created_policy(source)):
        if known.topic is not None:
            return Place(topic=known.topic, brokers=known.brokers)
        if known.path is not None:
            return Place(path=Path(known.path))
    raise UnsupportedSqlError(
        f"source '{source}' writes no dead letters: its policy is ON ERROR = '{policy.strategy}'",
        remedy=f"ALTER SOURCE {source} ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{source}-dlq'); "
        "--topic names a topic that has letters from before",
    )


def _complete(letter: Letter, options: Options) -> Letter:
    try:
        return whole(letter, options)
    except RecordGoneError:
        return letter  # then its head is all there is to see
