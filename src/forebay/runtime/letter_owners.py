"""Whose letters they are, as a home knows it: one of its sources, or whoever wrote them to a topic."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.catalog import Catalog
from forebay.connectors.contract import SourceConfig, SourceConnector, Stretch
from forebay.deadletter.entry import Entry
from forebay.deadletter.letterbox import Letterbox, Place, Progress
from forebay.deadletter.outcomes import mark_of
from forebay.deadletter.owners import Owner, TopicOwner, cluster_of, complete, topic_options
from forebay.deadletter.seen import Seen
from forebay.errors import OptionConflictError, UnsupportedSqlError
from forebay.options import Options
from forebay.runtime.known import KnownSources, unknown

if TYPE_CHECKING:
    from forebay.deadletter.destinations import Destination
    from forebay.deadletter.explain import Explanation, Judge
    from forebay.deadletter.recovery import RecoveryReport

# What decodes a record is imported where it is used: listing letters decodes none.


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
        return self._connector().topics() or ()

    def explain(self, entry: Entry, flags: str | None = None) -> Explanation:
        from forebay.deadletter.explain import explain

        connector = self._connector()
        url = connector.options.get("schema.registry.url")
        shown = connector.options.table.shown("schema.registry.url", str(url)) if url else None
        record = complete(entry.letter, connector.options)
        return explain(entry, connector.config, connector.options, shown, record, flags)

    def judge(self, target: str) -> Judge | None:
        from forebay.deadletter.explain import Judge

        if target not in self.topics():
            return None
        connector = self._connector()
        return Judge(connector.config, connector.options)

    def kept_out(self) -> int:
        return sum(stretch.bad for stretch in self.ledger())

    def definition(self) -> str:
        return self._sources.definition(self.name)

    def ledger(self) -> Sequence[Stretch]:
        return self._catalog.ledger(self.name)

    def judges(self, topic: str) -> bool:
        return self._sources.policy(self.name).strategy == "dead_letter" and topic in self.topics()

    def source(self) -> tuple[SourceConfig, Options] | None:
        connector = self._connector()
        return connector.config, connector.options

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
        from forebay.deadletter.destinations import FileDestination, KafkaDestination

        if self.place.path is not None:
            return FileDestination(self.place.path, f"{self.name}-recovered-{uuid.uuid4().hex}")
        assert self.place.topic is not None
        return KafkaDestination(self.name, self.place.topic, self.options, self.place.brokers)

    def _connector(self) -> SourceConnector:
        connector = self._sources.peek(self.name)
        if connector.topics() is None:
            raise UnsupportedSqlError(
                f"source '{self.name}' is a {connector.config.connector} source: it has no topic to go back to"
            )
        return connector


def owner_of(
    name: str,
    sources: KnownSources,
    catalog: Catalog,
    topic: str | None = None,
    given: Mapping[str, str] | None = None,
) -> Owner:
    """A source of this home, whose letters are where it writes them or in another `topic`; or whoever wrote to that topic."""
    if sources.has(name):
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
