"""A home as those see it who only look: its sources, views, lag and letters, without Spark and without a SQL parser."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from forebay.backoff import with_backoff
from forebay.catalog import Catalog
from forebay.runtime.known import KnownSources
from forebay.runtime.results import Result
from forebay.runtime.status import (
    QueryStatus,
    SourceLag,
    SourceStatus,
    query_status,
    shown,
    source_statuses,
)

if TYPE_CHECKING:
    from forebay.connectors.contract import SourceConnector
    from forebay.deadletter.outcomes import Outcomes
    from forebay.runtime.dead_letters import DeadLetters

PATIENCE_MS = 5_000  # a person waits for the answer


class Home:
    """What is kept in a home directory. To run statements and views, use `Session`."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self._catalog = Catalog(self.path / "catalog.db")
        self._letters: Outcomes | None = None
        self._sources = KnownSources(self.path, self._catalog)

    def __enter__(self) -> Home:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._letters is not None:
            self._letters.close()
        self._catalog.close()

    def show(self, kind: str) -> Result:
        """SHOW SOURCES, VIEWS, QUERIES or SINKS."""
        return shown(kind, self._catalog, self.sources, self.queries)

    def sources(self) -> list[SourceStatus]:
        return source_statuses(self._catalog, self._sources)

    def queries(self) -> list[QueryStatus]:
        return [query_status(self._catalog, view.name) for view in self._catalog.all("view")]

    def lag(self) -> list[SourceLag]:
        """How far each source's group is behind; a broker that is away is given up after five seconds."""
        return [row for name in self._sources.names() for row in self._lag(name)]

    def _lag(self, source: str) -> list[SourceLag]:
        if self._sources.facts(source).connector != "kafka":
            connector = self._sources.connector(source)
            try:
                found, group = connector.lag(), connector.options.get("group.id")
            finally:
                connector.close()
        else:
            from forebay.kafka.admin import Cluster
            from forebay.kafka.lag import lag_of

            known = self._sources.options(source)
            patience_ms = min(PATIENCE_MS, known["connect.timeout.ms"])
            options = known.table.bind({**known.given, "connect.timeout.ms": str(patience_ms)})
            cluster = Cluster(options)
            try:
                # A broker that has just started answers some requests before it answers all.
                found = with_backoff(
                    lambda: lag_of(cluster, cluster.describe(cluster.matching())),
                    timeout_s=patience_ms / 1000,
                )
                group = options["group.id"]
            finally:
                cluster.close()
        return [
            SourceLag(source, group, row.topic, row.partition, row.committed, row.end, row.lag)
            for row in found
        ]

    def source(self, name: str) -> SourceConnector:
        """A source's connector, not connected: its options, its columns and what decodes its records."""
        return self._sources.peek(name)

    def dead_letters(
        self, source: str, *, topic: str | None = None, options: Mapping[str, str] | None = None
    ) -> DeadLetters:
        """As `Session.dead_letters`."""
        from forebay.runtime.dead_letters import DeadLetters
        from forebay.runtime.letter_owners import owner_of

        owner = owner_of(source, self._sources, self._catalog, topic, options)
        return DeadLetters(owner, self._outcomes(), self.path)

    def dead_letters_in(self, topic: str, *, options: Mapping[str, str] | None = None) -> list[DeadLetters]:
        """As `Session.dead_letters_in`."""
        from forebay.runtime.dead_letters import DeadLetters
        from forebay.runtime.letter_owners import owners_in

        owners = owners_in(topic, self._sources, self._catalog, options)
        return [DeadLetters(owner, self._outcomes(), self.path) for owner in owners]

    def _outcomes(self) -> Outcomes:
        from forebay.deadletter.outcomes import Outcomes

        if self._letters is None:
            self._letters = Outcomes(self.path / "catalog.db")
        return self._letters
