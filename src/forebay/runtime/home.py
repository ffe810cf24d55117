"""A home as those see it who only look: its sources, views, lag and letters, without Spark.

Statements are answered as far as that goes. What asks for none imports no SQL parser either.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from forebay.backoff import with_backoff
from forebay.catalog import Catalog
from forebay.errors import ForebayError
from forebay.patience import PATIENCE_S
from forebay.runtime.definitions import changes_of_view, describe_view, kind_of, show_create
from forebay.runtime.known import KnownSources
from forebay.runtime.placing import placed
from forebay.runtime.results import Result
from forebay.runtime.source_flow import SourceFlow
from forebay.runtime.status import (
    QueryStatus,
    SourceLag,
    SourceStatus,
    query_status,
    shown,
    source_statuses,
    views_over,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from forebay.answers.answer import Answer
    from forebay.connectors.contract import HealthStatus, PartitionLag, SourceConnector
    from forebay.deadletter.desk import LetterDesk
    from forebay.deadletter.letters import DeadLetters
    from forebay.deadletter.outcomes import Outcomes
    from forebay.source.watermarks import Decision
    from forebay.sql import Select, Statement
    from forebay.views.changes import Subscription

PATIENCE_MS = int(PATIENCE_S * 1000)


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
        return shown(kind, self._catalog, self.sources, self.queries, self.lag)

    def sources(self) -> list[SourceStatus]:
        return source_statuses(self.path, self._catalog, self._sources)

    def queries(self) -> list[QueryStatus]:
        return [query_status(self.path, self._catalog, view.name) for view in self._catalog.all("view")]

    def lag(self) -> list[SourceLag]:
        """How far each source's group is behind; a broker that is away is given up after five seconds."""
        return [row for name in self._sources.names() for row in self._lag(name)]

    def _health(self, source: str) -> HealthStatus:
        """What its brokers say within five seconds."""
        from forebay.connectors.contract import HealthStatus

        try:
            found = self._partition_lag(source)[0]
        except ForebayError as error:
            return HealthStatus(False, error.message)
        return HealthStatus(True, f"lag: {sum(each.lag for each in found)}", partitions=tuple(found))

    def _watermark(self, source: str) -> Decision | None:
        # What knows where it is kept imports Spark: for whoever asks for these tables alone.
        from forebay.runtime.source_watermarks import decisions, slowest

        return slowest(decisions(self.path, source, views_over(self._catalog, source)).values())

    def _lag(self, source: str) -> list[SourceLag]:
        (found, group), flow = self._partition_lag(source), str(SourceFlow.of(self.path, source))
        return [SourceLag.of(source, group, row, flow) for row in found]

    def _partition_lag(self, source: str) -> tuple[list[PartitionLag], str | None]:
        if self._sources.facts(source).connector != "kafka":
            connector = self._sources.connector(source)
            try:
                found, group = connector.lag(), connector.group
            finally:
                connector.close()
        else:
            from forebay.kafka.admin import Cluster
            from forebay.kafka.lag import OldestUnread, lag_of

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
                found = OldestUnread(options).aged(found)
                group = options["group.id"]
            finally:
                cluster.close()
        return found, group

    def source(self, name: str) -> SourceConnector:
        """A source's connector, not connected: its options, its columns and what decodes its records."""
        return self._sources.peek(name)

    def subscribe(self, view: str, *, after: int | None = None, timeout: float | None = None) -> Subscription:
        """As `Session.subscribe`, of a view that another process runs, or none."""
        from forebay.views.changes import Subscription

        return Subscription(changes_of_view(self.path, self._catalog, view), after=after, timeout=timeout)

    # -- statements ----------------------------------------------------------------------------------

    def run(self, statement: Statement) -> Result | None:
        """What a statement answers that only looks; None where it takes a session to run it."""
        with placed(statement):
            return self._run(statement)

    def _run(self, statement: Statement) -> Result | None:
        from forebay import sql

        match statement:
            case sql.Show():
                return self.show(statement.kind)
            case sql.ShowCreate():
                return show_create(self._catalog, statement.kind, statement.name)
            case sql.Describe():
                if (statement.kind or kind_of(self._catalog, statement.name)) != "view":
                    return None
                status = (
                    query_status(self.path, self._catalog, statement.name) if statement.extended else None
                )
                return describe_view(self.path, self._catalog, statement.name, status)
            case sql.Select():
                answered = self._answer(statement)
                return None if answered is None else Result(answered[1])
            case sql.Explain(statement=sql.Select() as select):
                from forebay.runtime.answering import explained

                answered = self._answer(select)
                return None if answered is None else explained(answered[0])
        return None

    def _answer(self, statement: Select) -> tuple[Answer, pa.Table] | None:
        from forebay.answers.question import NeedsSpark
        from forebay.runtime.answering import Answers
        from forebay.runtime.catalog_tables import CatalogTables
        from forebay.runtime.health_tables import HealthTables
        from forebay.runtime.session_settings import from_outside

        health = HealthTables(
            self.path, self._catalog, self._sources, self._health, lambda name: {}, self._watermark
        )
        tables = CatalogTables(self.path, self._catalog, self._sources, self._outcomes, health)
        try:
            found = Answers(self.path, self._catalog, tables, from_outside).to(statement.query)
            return found, found.rows()
        except NeedsSpark:
            return None

    # -- dead letters --------------------------------------------------------------------------------

    def dead_letters(
        self, source: str, *, topic: str | None = None, options: Mapping[str, str] | None = None
    ) -> DeadLetters:
        """As `Session.dead_letters`."""
        from forebay.deadletter.letters import DeadLetters
        from forebay.runtime.letter_owners import owner_of

        owner = owner_of(source, self._sources, self._catalog, topic, options)
        return DeadLetters(owner, self._outcomes(), self.path)

    def dead_letters_in(self, topic: str, *, options: Mapping[str, str] | None = None) -> list[DeadLetters]:
        """As `Session.dead_letters_in`."""
        from forebay.deadletter.letters import DeadLetters
        from forebay.runtime.letter_owners import owners_in

        owners = owners_in(topic, self._sources, self._catalog, options)
        return [DeadLetters(owner, self._outcomes(), self.path) for owner in owners]

    def letter_desk(self) -> LetterDesk:
        """Groups of letters, repairs, replays in the background. Whoever asks for it closes it, before the home."""
        from forebay.deadletter.desk import LetterDesk

        return LetterDesk(self, self._outcomes(), self._sources.names)

    def _outcomes(self) -> Outcomes:
        from forebay.deadletter.outcomes import Outcomes

        if self._letters is None:
            self._letters = Outcomes(self.path / "catalog.db")
        return self._letters
