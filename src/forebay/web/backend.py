"""All that the dashboard and the HTTP API do, behind one class. Pages call it in a thread: every method may block.

With a `Session` in the process, statements that need Spark run there. Without one a home is looked at that another process
may have open: then PAUSE and RESUME work by their files, and what needs a session says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay import actors
from forebay.catalog import QueryState
from forebay.connectors.contract import HealthStatus
from forebay.errors import NeedsSessionError, SessionClosedError
from forebay.web import overview as graph
from forebay.web import source_pages, view_pages
from forebay.web.ground import Ground
from forebay.web.history import History
from forebay.web.lag_watch import LagWatch
from forebay.web.letter_watch import LetterWatch
from forebay.web.masks import Masks, masked_table
from forebay.web.model import (
    AuditRow,
    BoardPage,
    Browse,
    Changes,
    Completion,
    EventRow,
    Execution,
    HistoryPoint,
    Overview,
    PoolRow,
    Produced,
    ShownTable,
    SourcePage,
    SourceRow,
    TopicRow,
    ViewPage,
    ViewRow,
)
from forebay.web.sampler import Sampler
from forebay.web.shown import inert
from forebay.web.snapshot import HomeSnapshots
from forebay.web.statements import Statements
from forebay.web.topic_pages import Topics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from forebay.pool.pool import Pool
    from forebay.runtime.session import Session
    from forebay.web.board_pages import Board
    from forebay.web.letter_desk import GuardedDesk

log = logging.getLogger("forebay.web")

MOST_EVENTS = 5_000


class Backend:
    """Thread-safe. Every method that is given a name that is not there raises `UnknownObjectError`; what a broker refuses is
    a `ConnectorError`. A method that changes something takes the `actor` who does it, writes it into the audit log, and
    raises `ReadOnlyError` where the dashboard was started with `--read-only`.
    """

    def __init__(
        self,
        home: Path,
        session: Session | None = None,
        *,
        read_only: bool = False,
        hide_payloads: bool = False,
        pool: Pool | None = None,
        board: Mapping[str, Any] | None = None,
        brokers: Mapping[str, str] | None = None,
    ) -> None:
        """`board` are keywords of a `KafkaBlackboardStore`, `brokers` options of a Kafka source: where to look besides."""
        self.home = home.expanduser().resolve()
        self.session = session
        self.read_only = read_only
        self.hide_payloads = hide_payloads
        self.closing = threading.Event()  # streams end when it is set
        self._pool = pool
        self._ground = Ground.of(self.home, session, read_only=read_only, hide_payloads=hide_payloads)
        watch = session.watch_health() if session is not None else None
        self._lag = LagWatch(self._ground, lambda: _known(watch))
        self._snapshots = HomeSnapshots(self._ground, self._lag)
        self._history = History(self.home)
        self._sampler = Sampler(self._snapshots, self._history)
        self._statements = Statements(self._ground)
        self._topics = Topics(self._ground, brokers)
        self._masks = Masks(self._ground)
        self._lock = threading.Lock()
        self._desk: GuardedDesk | None = None
        self._letters: LetterWatch | None = None
        self._board_given = board
        self._board: Board | None = None
        self._registry: CollectorRegistry | None = None

    def close(self) -> None:
        """End the threads, and close what was opened. The session is not closed: it is not ours."""
        self.closing.set()
        self._sampler.close()
        self._lag.close()
        if self._letters is not None:
            self._letters.close()
        with self._lock:
            for each in (self._desk, self._board):
                if each is not None:
                    each.close()
            self._desk = self._board = None
        self._history.close()
        self._ground.close()

    @property
    def ground(self) -> Ground:
        """What the parts share."""
        return self._ground

    @property
    def desk(self) -> GuardedDesk:
        """The letters of this home, of its watched topics, and of the blackboard's agents."""
        with self._lock:
            if self._desk is None:
                from forebay.deadletter.desk import LetterDesk
                from forebay.deadletter.outcomes import Outcomes
                from forebay.web.letter_desk import GuardedDesk

                outcomes = Outcomes(self.home / "catalog.db")
                home = self._ground.letter_home()
                desk = self._desk = GuardedDesk(
                    self._ground, LetterDesk(home, outcomes, self._ground.sources.names, self._committed)
                )
                if self._pool is not None or self._board_given is not None:
                    self._letters = LetterWatch(self._letter_topics, partial(_look_at, desk))
            return self._desk

    def _letter_topics(self) -> Iterator[tuple[str, dict[str, str]]]:
        if self._pool is not None and (topic := self._pool.options["dead.letter.topic"]):
            given = self._pool.options.given
            kept = {
                key: text
                for key, text in given.items()
                if key == "bootstrap.servers" or key.startswith("kafka.")
            }
            yield topic, kept
        if (board := self._opened_board()) is not None:
            for topic in board.letter_topics():
                yield topic, dict(board.reached)

    def _committed(self, source: str) -> Mapping[tuple[str, int], int]:
        """Where a source's group stands, as far as the brokers have said."""
        health = self._lag.last().get(source)
        partitions = health.partitions if health is not None else ()
        return {
            (each.topic, each.partition): each.committed for each in partitions if each.committed is not None
        }

    # -- looking -------------------------------------------------------------------------------------------

    def overview(self) -> Overview:
        """The pipeline's graph with rates, lags, states and the bottleneck, and what is wrong. No broker is asked here: a
        thread asks them, and what it does not know yet is None."""
        more = [] if self._letters is None else self._letters.problems()
        return graph.overview(self._ground, self._snapshots.now(), view_pages.readers(self._ground), more)

    def sources(self) -> Sequence[SourceRow]:
        """All sources, from the catalog and the last word of the brokers."""
        return source_pages.rows(self._snapshots.now())

    def source(self, name: str) -> SourcePage:
        """All that is known of a source. No broker is asked."""
        return source_pages.page(self._ground, self._snapshots.now(), name)

    def history(self, source: str, seconds: int = 3600) -> Sequence[HistoryPoint]:
        """A source's samples, the oldest first, at most 400 points; also of a dashboard that ran before this one."""
        source_pages.found(self._snapshots.now(), source)
        return self._history.points(source, int((time.time() - seconds) * 1000))

    def views(self) -> Sequence[ViewRow]:
        """All views, from the catalog."""
        return view_pages.rows(self._snapshots.now())

    def view(self, name: str) -> ViewPage:
        """All that is known of a view, its table's size among it. No row is read."""
        return view_pages.page(self._ground, self._snapshots.now(), name)

    def newest(self, view: str, limit: int = 50) -> ShownTable:
        """The rows that were written last, the newest first, as far as the table's files tell."""
        found = view_pages.newest(self._ground, self._snapshots.now(), view, limit)
        return masked_table(found, self._masks.of_view(view))

    def tail(self, view: str, after: int | None = None, timeout: float | None = None) -> Iterator[Changes]:
        """Changes of a view as they come, from now on or after a version; ends when nothing came for `timeout` seconds.

        Columns are the view's, then `_change_type` and `_commit_version`. Iterating blocks until the next change.
        """
        mask = self._masks.of_view(view)
        for each in view_pages.tail(self._ground, view, after, timeout):
            yield replace(each, table=masked_table(each.table, mask))

    def following(self, view: str) -> AbstractContextManager[None]:
        """For who looks at a view again and again, and is a reader of it in between, too."""
        return view_pages.following(self._ground, view)

    def events(self, limit: int = 200, name: str | None = None) -> Sequence[EventRow]:
        """What happened to sources and views, the newest first."""
        names = None if name is None else {name}
        return source_pages.events(self._ground, max(1, min(limit, MOST_EVENTS)), names)

    def audit(self, limit: int = 200) -> Sequence[AuditRow]:
        """Who changed what, the newest first."""
        return [
            AuditRow(
                each.id,
                each.at_ms,
                inert(each.actor),
                each.action,
                inert(each.target),
                inert(each.detail),
                each.outcome,
                inert(each.message),
            )
            for each in self._ground.audit.entries(max(1, min(limit, MOST_EVENTS)))
        ]

    def version(self, view: str) -> int:
        """The newest version of a view, which `tail(after=…)` goes on from."""
        return view_pages.version(self._ground, view)

    def not_ready(self) -> list[str]:
        """Why this home is not well; nothing where it is."""
        if self.session is not None and self.session.closed:
            return ["the session is closed"]
        views = self._snapshots.now().views.values()
        return [
            f"view {each.definition.name} is {each.state}"
            for each in views
            if each.state is QueryState.FAILED
        ]

    def metrics(self) -> bytes:
        """For Prometheus. NeedsSessionError where this process runs neither views nor a pool."""
        from prometheus_client import CollectorRegistry, generate_latest

        with self._lock:
            if self._registry is None:
                if self.session is None and self._pool is None:
                    raise NeedsSessionError(
                        "metrics are those of a session or a pool, and this process has neither"
                    )
                self._registry = CollectorRegistry()
                for each in (self.session, self._pool):
                    if each is not None:
                        self._registry.register(each.collector())
            registry = self._registry
        return generate_latest(registry)

    # -- statements ----------------------------------------------------------------------------------------

    def execute(self, sql: str, actor: str, limit: int = 1000) -> Execution:
        """Run a script of statements. Never raises for what is wrong with a statement: `Execution.error` has it."""
        found = self._statements.execute(sql, actor, limit)
        self._snapshots.now(fresh=True)
        return found

    def complete(self, text: str, cursor: int) -> Sequence[Completion]:
        """What may be typed at the cursor, a place in `text`."""
        return self._statements.complete(text, cursor)

    # -- topics --------------------------------------------------------------------------------------------

    def topics(self) -> Sequence[TopicRow]:
        """Topics of the brokers that the sources name, and of `--brokers`. Asks them: blocks up to some seconds."""
        return self._topics.all()

    def readers_of(self, topic: str) -> Sequence[str]:
        """The sources that read a topic, by its name, in a list of names, or by a pattern."""
        return self._topics.readers(topic)

    def browse(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        timestamp_ms: int | None = None,
        limit: int = 50,
        source: str | None = None,
    ) -> Browse:
        """Records of a topic: from an offset or a time on, or the newest. With a `source`, as its decoder reads them."""
        return self._topics.browse(topic, partition, offset, timestamp_ms, limit, source)

    def produce(
        self,
        topic: str,
        key: str | None,
        value: str | None,
        headers: Mapping[str, str],
        actor: str,
        partition: int | None = None,
    ) -> Produced:
        """Write a record. Blocks until the brokers have it."""
        self._ground.check_writable(actor, "produce", topic)
        with self._ground.audit.noted(actor, "produce", topic) as note:
            made = self._topics.produce(topic, key, value, headers, partition)
            note.detail = f"partition {made.partition}, offset {made.offset}"
            return made

    # -- changing ------------------------------------------------------------------------------------------

    def pause(self, source: str, actor: str) -> str:
        """PAUSE SOURCE; returns what happened, in words."""
        from forebay.runtime.source_flow import pause

        return self._changed(actor, "pause", source, lambda: pause(self.home, self._ground.catalog, source))

    def resume(self, source: str, actor: str) -> str:
        """RESUME SOURCE; returns what happened, in words."""
        from forebay.runtime.source_flow import resume

        return self._changed(actor, "resume", source, lambda: resume(self.home, self._ground.catalog, source))

    def set_on_error(self, source: str, policy: str, actor: str) -> str:
        """ALTER SOURCE … ON ERROR. `policy` is a strategy, or a strategy and what follows it in the statement:
        `skip`, `fail`, `'dead_letter' WITH (dead_letter_topic = 't-dlq')`. From the next micro-batch on."""
        source_pages.found(self._snapshots.now(), source)
        word, _, rest = policy.strip().partition(" ")
        clause = f"{word if word.startswith(chr(39)) else repr(word)} {rest}".strip()
        self._ground.check_writable(actor, "alter source", source)
        with actors.acting_as(actor):
            done = self._statements.alter(source, clause)
        self._snapshots.now(fresh=True)
        return done

    def _changed(self, actor: str, action: str, target: str, change: Any) -> str:
        self._ground.check_writable(actor, action, target)
        with self._ground.audit.noted(actor, action, target) as note:
            note.message = change()
        self._snapshots.now(fresh=True)
        return note.message

    # -- pools and agents ----------------------------------------------------------------------------------

    def pools(self) -> Sequence[PoolRow]:
        """The pool of this process, if it runs one."""
        if self._pool is None:
            return []
        from forebay.web.pool_pages import pool_row

        return [pool_row(self._pool, hide_payloads=self.hide_payloads)]

    def board(
        self,
        type: str | None = None,
        correlation: str | None = None,
        artifact: str | None = None,
        limit: int = 100,
    ) -> BoardPage | None:
        """The blackboard that the dashboard was given; None if there is none. Of a correlation with its timeline, of an
        artifact all versions and its own."""
        board = self._opened_board()
        return None if board is None else board.page(type, correlation, artifact, limit)

    def _opened_board(self) -> Board | None:
        if self._board_given is None:
            return None
        with self._lock:
            if self._board is None:
                from forebay.web.board_pages import Board

                self._board = Board(self._board_given, hide_payloads=self.hide_payloads)
            return self._board


def _look_at(desk: GuardedDesk, topic: str, options: Mapping[str, str]) -> None:
    more = {key: text for key, text in options.items() if key != "bootstrap.servers"}
    desk.look_at(topic, options.get("bootstrap.servers"), **more)


def _known(watch: Any) -> Mapping[str, HealthStatus]:
    if watch is None:
        return {}
    try:
        found: Mapping[str, HealthStatus] = watch.last()
    except SessionClosedError:
        return {}
    return found
