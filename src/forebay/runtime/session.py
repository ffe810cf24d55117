"""The session: the one object that a program or the command line talks to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from forebay import sql as language
from forebay.answers.question import NeedsSpark
from forebay.catalog import Catalog, QueryState
from forebay.catalog.audit import AuditLog
from forebay.connectors.contract import HealthStatus, Offsets, SourceCheckpoint, SourceConnector
from forebay.connectors.registry import ConnectorRegistry, default_registry
from forebay.deadletter.letters import DeadLetters
from forebay.deadletter.outcomes import Outcomes
from forebay.deadletter.report import REPORT
from forebay.errors import ForebayError, SessionClosedError, UnsupportedSqlError
from forebay.runtime.answering import Answers, explained, explained_by_spark
from forebay.runtime.audited import noted
from forebay.runtime.catalog_tables import CatalogTables
from forebay.runtime.catching_up import wait_caught_up
from forebay.runtime.describe import Describer
from forebay.runtime.group_commits import GroupCommitter
from forebay.runtime.health import HealthWatch
from forebay.runtime.health_tables import HealthTables
from forebay.runtime.letter_owners import owner_of, owners_in
from forebay.runtime.letter_statements import letter_statement
from forebay.runtime.placing import placed
from forebay.runtime.recovery import create_or_adopt, recover
from forebay.runtime.results import Result
from forebay.runtime.session_health import SessionHealth
from forebay.runtime.session_settings import changes_answers, from_outside
from forebay.runtime.shared_reads import REPORT_S
from forebay.runtime.snapshots import Snapshots
from forebay.runtime.source_flow import SourceFlow, pause, resume
from forebay.runtime.source_metrics import SourceMetrics
from forebay.runtime.source_statements import SourceStatements
from forebay.runtime.sources import Sources
from forebay.runtime.spark_failures import ours
from forebay.runtime.spark_start import SparkStart
from forebay.runtime.status import Listing, QueryStatus, SourceLag, SourceStatus
from forebay.runtime.view_places import IN_HOME, Places
from forebay.runtime.view_positions import earlier
from forebay.runtime.views import Views
from forebay.telemetry import otlp
from forebay.views.changes import Subscription

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from forebay.runtime.metrics import SessionCollector
    from forebay.runtime.progress import ProgressFollower

COMMIT_ON_CLOSE_S = 10.0
WATCH_S = 0.1  # how soon the failure of any of several queries is noticed


def connect(
    home: str | Path = ".forebay",
    master: str = "local[*]",
    spark_conf: Mapping[str, str] | None = None,
    *,
    storage: str | None = None,
    checkpoints: str | None = None,
    adopt: bool = False,
    archive: str | Path | None = None,
    registry: ConnectorRegistry | None = None,
) -> Session:
    """Open a session on a home directory: what was created there before is there again.

        with forebay.connect(home=".forebay") as db:
            db.execute("CREATE SOURCE clicks (url STRING) FROM KAFKA (brokers = 'localhost:9092', topic = 'clicks')")
            db.execute("CREATE MATERIALIZED VIEW hits AS SELECT url, count(*) AS n FROM clicks GROUP BY url")
            db.wait(until_caught_up=True, timeout=60)
            db.sql("SELECT * FROM hits").show()

    home: the directory that keeps definitions, checkpoints and tables; made if it is not there
    master: where Spark runs: `local[*]` is this machine with all its cores, `spark://…` and `yarn` are clusters
    spark_conf: settings of Spark, `{"spark.driver.memory": "4g"}`; they cannot change a Spark that runs already
    storage: where tables of new views are, `s3://bucket/prefix`, if not in the home; credentials are in the environment
    checkpoints: where those of new reads are, `hdfs://host:port/folder`, if not in the home
    adopt: a new view goes on with the table that is at its place already: for a home that is lost
    archive: for a cluster: what `forebay pack` has made, for workers that have no Forebay
    registry: the connectors that sources may name; those that are installed unless given

    It does not block: Spark starts when it is first needed, and brokers are asked when a statement needs them. Close the
    session, or use it in a `with` block: closing finishes the batches in flight and commits their offsets.
    """
    found, places = registry or default_registry(), Places.of(storage, checkpoints)
    return Session(Path(home), master, dict(spark_conf or {}), found, places, archive, adopt=adopt)


class Session:
    """Statements in, tables out; the queries of its views run until it is closed. `forebay.connect()` makes one.

    Every method raises a `SessionClosedError` once the session is closed, but `close()`.
    """

    def __init__(
        self, home: Path, master: str, spark_conf: dict[str, str], registry: ConnectorRegistry,
        places: Places = IN_HOME, archive: str | Path | None = None, *, adopt: bool = False,
    ) -> None:  # fmt: skip
        self.home = home.expanduser().resolve()
        self._spark_conf = spark_conf
        self._spark: SparkSession | None = None
        self._spark_start = SparkStart(master, spark_conf, self.home / "warehouse", archive)
        self._follower: ProgressFollower | None = None
        self._push: otlp.MetricsPush | None = None
        self._lock = threading.RLock()
        self._closed = False
        self._catalog = Catalog(self.home / "catalog.db")
        self._outcomes = Outcomes(self.home / "catalog.db")
        self._audit = AuditLog(self.home)
        self._sources = Sources(self.home, self._catalog, registry)
        about = (self.home, self._catalog, self._sources, lambda: self.spark, self._lock, places)
        self._views = Views(*about, adopting=adopt)
        self._health = SessionHealth(self._catalog, self._sources, self._views)
        health = self._health
        tables = HealthTables(
            self.home, self._catalog, self._sources, health.of_brokers, health.own, health.watermark
        )
        self._tables = CatalogTables(self.home, self._catalog, self._sources, lambda: self._outcomes, tables)
        self._answers = Answers(self.home, self._catalog, self._tables, self._setting)
        self._snapshots = Snapshots(
            self.home, self._catalog, self._sources, lambda: self.spark, self._tables.frame
        )
        self._source_statements = SourceStatements(
            self._catalog, self._sources, self._views, self._lock, self._forget_group
        )
        self._describer = Describer(self._catalog, self._sources, self._views, self._health)
        self._committer = GroupCommitter(self._health.on_commit)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._closed:
            return f"<forebay.Session {self.home}, closed>"
        kept = ", ".join(f"{len(self._catalog.all(kind))} {kind}s" for kind in ("source", "view"))
        spark = "started" if self.spark_started else "not started"
        return f"<forebay.Session {self.home}: {kept}, {len(self._views.running)} running, Spark {spark}>"

    @property
    def closed(self) -> bool:
        """Whether `close()` was called."""
        return self._closed

    @property
    def spark(self) -> SparkSession:
        """The SparkSession, started on first use; `readStream.format("forebay")` works on it.

        Where this process has a Spark already, it is a session of its own beside the user's: nothing is set on that one.
        """
        with self._lock:
            self._check_open()
            if self._spark is None:
                with ours():
                    self._spark = self._start_spark()
            return self._spark

    def _start_spark(self) -> SparkSession:
        from forebay.runtime import spark as sparks
        from forebay.runtime.progress import ProgressFollower

        spark = self._spark_start.take()
        self._views.state_server = sparks.serve_state(spark)
        self._follower = ProgressFollower(spark, self._views.runs, self._catalog, self._on_checkpoint)
        self._health.watch_stalls()
        self._push = otlp.push(self.collector)
        return spark

    @property
    def spark_started(self) -> bool:
        """Whether Spark has been started yet, which takes some seconds."""
        return self._spark is not None

    # -- statements ----------------------------------------------------------------------------------

    def execute(self, script: str) -> list[Result]:
        """Run statements separated by semicolons; the first that fails ends it and leaves nothing of itself.

        Blocks until all are done. A view is created when its query runs, not when it has caught up: `wait()` is for that.
        A `StatementError` shows what is wrong and where in the script; an `UnreachableError` or another
        `ConnectorError` says what of a source cannot be read.
        """
        return list(self.each(script))

    def each(self, script: str, *, skip: int = 0) -> Iterator[Result]:
        """`execute()`, with each result as soon as it is there: one that fails takes away none of those before it.

        A statement runs when its result is asked for. The first `skip` statements are left out: somebody else has run
        them. Raises what `execute()` raises.
        """
        self._check_open()
        for statement in language.parse(script)[skip:]:
            yield self._run(statement)

    def sql(self, text: str) -> Result:
        """Run one statement: `.show()`, `.arrow()`, `.pl()`, `.df()` or `.fetchall()` its result.

        A SELECT is checked here and runs when its rows are first asked for. Raises what `execute()` raises.
        """
        self._check_open()
        return self._run(language.parse_one(text))

    def _run(self, statement: language.Statement) -> Result:
        with noted(self._audit, statement) as note, placed(statement), ours():
            result = self._dispatch(statement)
            note.message = result.done
            return result

    def _dispatch(self, statement: language.Statement) -> Result:
        match statement:
            case language.CreateSource():
                return self._source_statements.create_source(statement)
            case language.SetSource():
                return self._source_statements.set_options(statement)
            case language.AlterSource():
                with self._lock:
                    return Result(done=self._sources.alter(statement))
            case language.CreateView():
                self._check_functions(statement.query)
                with self._lock:
                    done, notes = create_or_adopt(self._views, self._catalog, statement)
                return Result(done=done, notes=notes)
            case language.Drop():
                return self._source_statements.drop(statement)
            case language.Show():
                return self._describer.show(statement.kind)
            case language.ShowCreate():
                return self._describer.show_create(statement.kind, statement.name)
            case language.Describe():
                return self._describer.describe(statement.kind, statement.name, statement.extended)
            case language.StartView():
                with self._lock:
                    return Result(done=self._views.start(statement.name))
            case language.StopView():
                with self._lock:
                    return Result(done=self._views.stop(statement.name))
            case language.DetachView():
                with self._lock:
                    done = self._views.detach(statement.name)
                    self._commit_without(statement.name)
                return Result(done=done)
            case language.PauseSource():
                return Result(done=pause(self.home, self._catalog, statement.name))
            case language.ResumeSource():
                return Result(done=resume(self.home, self._catalog, statement.name))
            case language.Select():
                return self._select(statement)
            case language.Explain():
                return self._explain(statement)
            case language.Subscribe():
                return self._subscribe_once(statement.view)
            case (
                language.ReplayDeadLetters()
                | language.DiscardDeadLetters()
                | language.ReopenDeadLetters()
                | language.RecoverDeadLetters()
            ):
                return letter_statement(statement, self.dead_letters(statement.source))
        raise UnsupportedSqlError(f"{type(statement).__name__} is not in this version")

    def _explain(self, statement: language.Explain) -> Result:
        inner = statement.statement
        if isinstance(inner, language.Select):
            return self._explain_select(inner)
        if isinstance(inner, language.CreateView):
            with self._lock:
                plan_of = self._views.plan(inner)
                shared = self._views.is_shared(inner)
            served = "one read for all views of the source" if shared else "a streaming query of its own"
            rows = [
                ("reads", ", ".join(plan_of.tables)),
                ("emit", plan_of.emit),
                ("window", plan_of.window or ""),
                ("keys", ", ".join(plan_of.merge_keys)),
                ("served by", served),
                ("the source adds up", str(plan_of.partial or "")),
                ("spark sql", plan_of.spark_sql),
            ]
            return Result.of(("step", "what"), rows)
        rows = [("connector", inner.connector), ("definition", self._sources.masked(inner))]
        return Result.of(("step", "what"), rows)

    def _select(self, statement: language.Select) -> Result:
        """Without Spark where its answer would be the same. Spark's own errors are raised here and now."""
        try:
            found = self._answers.to(statement.query)
        except NeedsSpark:
            self._check_functions(statement.query)
            checked = [self._snapshots.select(statement)]
            return Result(frame=lambda: checked.pop() if checked else self._later(statement))

        def rows(limit: int | None) -> pa.Table | None:
            with ours():
                try:
                    return found.rows(limit)
                except (
                    NeedsSpark,
                    FileNotFoundError,
                ):  # its files were merged while nobody asked for the rows
                    return None

        return Result(frame=lambda: self._later(statement), answer=rows)

    def _later(self, statement: language.Select) -> DataFrame:
        """When somebody asks for the rows: the statement has run by then."""
        with placed(statement), ours():
            return self._snapshots.select(statement)

    def _explain_select(self, statement: language.Select) -> Result:
        try:
            found = self._answers.to(statement.query)
            found.rows()  # some values leave it to Spark after all
        except NeedsSpark as reason:
            with placed(statement):  # and not where the EXPLAIN stands
                frame = self._snapshots.select(statement)
            plan = frame._jdf.queryExecution().toString()
            return explained_by_spark(str(reason), plan)
        return explained(found)

    def _check_functions(self, query: Any) -> None:
        """Raise on a misspelled function before a Spark is started for it. One that runs may know more functions."""
        from forebay.runtime import spark as sparks

        if self.spark_started or sparks.is_running() or self._spark_conf:
            return
        error = language.misspelled_function(query)
        if error is not None:
            raise error

    def _setting(self) -> str | None:
        """A setting under which Spark's answers may be others than those that are given without it."""
        with self._lock:
            if self._spark is not None:
                return changes_answers(self._spark.conf.getAll)
        from forebay.runtime import spark as sparks

        return from_outside() or changes_answers({**sparks.settings(), **self._spark_conf})

    def _subscribe_once(self, view: str) -> Result:
        """SUBSCRIBE as a statement: all changes so far. The command line and `subscribe()` follow on."""
        import pyarrow as pa

        batches = list(self.subscribe(view, timeout=0))
        return Result(pa.Table.from_batches(batches)) if batches else Result.of((), [])

    # -- watching ------------------------------------------------------------------------------------

    def start_all(self) -> list[str]:
        """Start every view of this home that is not running and was not stopped by STOP VIEW; returns what happened.

        Blocks until their queries run. A view that cannot be started raises why, and those after it are not started.
        """
        self._check_open()
        with self._lock, ours():
            if self._spark is None and self._views.resting():
                self._spark_start.begin()
            try:
                return self._views.start_all()
            finally:
                if self._spark_start.begun:  # no view has come so far
                    assert self.spark

    def recover(self, view: str, *, rebuild: bool = False) -> list[str]:
        """Start a view whose checkpoint is lost, where its table says that it stands: nothing is lost, and nothing twice.

        Returns what happened, and what is gone. A view for which Spark kept something (windows, joins) has lost that: a
        `CheckpointError` says so, and `rebuild` makes its table anew of what the topics still hold. Blocks until the view runs.
        """
        self._check_open()
        with self._lock, ours():
            return recover(self._views, self._catalog, view, rebuild=rebuild)

    def subscribe(self, view: str, *, after: int | None = None, timeout: float | None = None) -> Subscription:
        """Follow a view's changes as Arrow batches; see `Subscription` for how to resume.

        Returns at once; iterating blocks until the next change, or until nothing has come for `timeout` seconds. It
        raises the error of the view's query where that fails here. `UnknownObjectError` if there is no such view.
        """
        self._check_open()

        def check() -> None:
            self._check_open()
            query = self._views.running.get(view)
            if query is not None:
                query.raise_if_failed()

        return Subscription(self._views.changes(view), after=after, timeout=timeout, check=check)

    def source(self, name: str) -> SourceConnector:
        """A source's connector: its options, its columns and what decodes its records. Nothing is connected by this."""
        self._check_open()
        return self._sources.peek(name)

    def sources(self) -> list[SourceStatus]:
        """What sources there are, and how they fare, from the catalog: no broker is asked. Notebooks show a table."""
        self._check_open()
        return Listing(SourceStatus, self._describer.sources())

    def queries(self) -> list[QueryStatus]:
        """The views' queries with state and counts, also of those that another process runs; of this session's own with
        lag and rate. No broker is asked. Notebooks show a table."""
        self._check_open()
        return Listing(QueryStatus, self._describer.queries())

    def lag(self) -> list[SourceLag]:
        """How far each source's group is behind, partition by partition, as the brokers see it now.

        Blocks until they answer; an `UnreachableError` where they do not.
        """
        self._check_open()
        return Listing(SourceLag, self._describer.lag())

    def dead_letters(
        self, source: str, *, topic: str | None = None, options: Mapping[str, str] | None = None
    ) -> DeadLetters:
        """Somebody's letters: iterate, select with `.where(…)`, `.replay()`, `.discard()`, `.export()`, …

        `topic` names another dead-letter topic than the one that the source writes to now; and that of somebody who is
        no source of this home, a pool by its name, whose brokers `options` has: `{"bootstrap.servers": "…"}`.
        No letter is read before they are iterated over, but the brokers of a `topic` are asked whether it is there:
        `UnknownTopicError`, `UnreachableError`. `UnknownObjectError` if there is no such source, and no `topic`;
        `UnsupportedSqlError` if the source writes no letters.
        """
        self._check_open()
        owner = owner_of(source, self._sources, self._catalog, topic, options)
        return DeadLetters(owner, self._outcomes, self.home)

    def dead_letters_in(self, topic: str, *, options: Mapping[str, str] | None = None) -> list[DeadLetters]:
        """The letters of everybody who has some in a topic, by who wrote them.

        Blocks while the topic is read from end to end. `UnknownTopicError` if it is not there, `UnreachableError` where no
        broker answers.
        """
        self._check_open()
        owners = owners_in(topic, self._sources, self._catalog, options)
        return [DeadLetters(owner, self._outcomes, self.home) for owner in owners]

    def wait(self, *, until_caught_up: bool = True, timeout: float | None = None) -> None:
        """Until all that the topics hold now is in the views, and the groups know of it.

        With `until_caught_up=False`: until a query fails or the time is over. A failed query's error is raised here,
        a `QueryFailedError` or what it failed with; a `WaitTimeoutError` where the views have not caught up in time, a
        `SourcePausedError` where a source is paused before they have. Brokers that are away are waited for, until the
        timeout, which names them then.
        """
        self._check_open()
        deadline = None if timeout is None else time.monotonic() + timeout
        if until_caught_up:
            wait_caught_up(self.home, self._views.running, deadline, timeout)
            self._committer.flush(COMMIT_ON_CLOSE_S)
            return
        while any(query.state is not QueryState.STOPPED for query in list(self._views.running.values())):
            self.check()
            if deadline is not None and time.monotonic() >= deadline:
                return
            time.sleep(WATCH_S)

    def check(self) -> None:
        """Raise the error of a query that failed, if one did. Does not block."""
        for query in list(self._views.running.values()):
            query.raise_if_failed()

    def collector(self) -> SessionCollector:
        """For a Prometheus registry: sources, their groups' lag, views. `docs/metrics.md` has the names.

        From now on the brokers are asked for the lag now and then, so that a scrape does not wait for them.
        """
        from forebay.runtime.metrics import SessionCollector
        from forebay.runtime.source_watermarks import slowest

        return SessionCollector(
            self._catalog,
            self._outcomes,
            self._sources.connected,
            self._views.running,
            self.watch_health(),
            self.commit_errors,
            lambda source: SourceFlow.of(self.home, source),
            lambda source: slowest(self._describer.watermarks(source).values()),
        )

    def health(self) -> dict[str, HealthStatus]:
        """By source: whether its brokers answer and its views get on, how far its group is behind, and what to do.

        Blocks until the brokers answer, or do not: then `healthy` is False and `message` says why; nothing is raised.
        """
        self._check_open()
        return {name: self._health.check(name) for name in self._sources.names()}

    def metrics(self) -> list[SourceMetrics]:
        """What each source has done so far: records, bytes, errors, batches and how long they take, commits, lag.

        No broker is asked: the lag is known from `watch_health()` or `collector()` on. Notebooks show a table.
        """
        self._check_open()
        return Listing(SourceMetrics, self._health.metrics())

    def watch_health(self) -> HealthWatch:
        """From now on the brokers are asked every second how they are, and `queries()` says so when one is away."""
        with self._lock:
            self._check_open()
            return self._health.watch()

    def commit_errors(self) -> dict[str, ForebayError]:
        """Sources whose group offsets cannot be committed at the moment, and why."""
        return self._health.commit_errors()

    # -- the group's offsets -------------------------------------------------------------------------

    def _on_checkpoint(self, source: str, batch: int, offsets: Offsets) -> None:
        """A checkpoint of a view over this source exists: commit what all views over it have done.

        What they have done by now: the news may be old, and must not lead the group back.
        """
        connector = self._sources.connector(source)
        if connector.share is None:
            offsets = reduce(earlier, self._positions(source) or [offsets])
        else:
            # What this home has taken is its own, and a view that is behind follows: others must not read it again.
            offsets = self._views.position_of_read(source) or {}
        if offsets:
            self._committer.submit(source, connector, SourceCheckpoint(offsets, batch))

    def _forget_group(self, source: str) -> None:
        self._committer.forget(source)
        self._health.forget(source)

    def _commit_without(self, view: str) -> None:
        """The groups of a view's sources need not wait for it any more."""
        known = self._catalog.get(view)
        for source in known.detail.get("sources", ()) if known else ():
            positions = self._positions(source)
            if positions:
                self._on_checkpoint(source, 0, positions[0])

    def _positions(self, source: str) -> list[Offsets]:
        """How far each view over a source has got: those that run here, and those that do not."""
        positions = [self._views.position(view, source) for view in self._views.awaited(self._over(source))]
        return [position for position in positions if position is not None]

    def _over(self, source: str) -> set[str]:
        """The views over a source, one that is being created among them."""
        starting = [name for name, query in list(self._views.running.items()) if source in query.connectors]
        return {*starting, *self._views.over(source)}

    # -- ending --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Finish the batches in flight, commit their offsets, stop; a Spark that the session started ends. Safe to call twice.

        Blocks until the batches are done. Offsets that cannot be committed within some seconds are not an error: the
        next session goes on from the checkpoint, and commits them.
        """
        with self._lock:
            if self._closed:
                return
            running = dict(self._views.running)
            self._views.stop_all()
            for query in running.values():
                query.await_report(REPORT_S)
                for source, offsets in query.progress.positions.items():
                    self._on_checkpoint(source, query.progress.batch, offsets)
            self._committer.close(COMMIT_ON_CLOSE_S)
            self._sources.leave_groups()  # before Spark ends, which takes a while: others wait for the partitions
            if self._spark is not None:
                if self._follower is not None:
                    self._follower.close()
                for query in running.values():
                    query.recount(self._catalog)
                REPORT.flush()
                if self._push is not None:
                    self._push.close()
                if self._spark_start.owned:
                    self._spark.stop()
            if self._views.state_server is not None:
                self._views.state_server.close()
            for part in (
                self._health, self._sources, self._tables, self._outcomes, self._audit, self._catalog,
            ):  # fmt: skip
                part.close()
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosedError("this session is closed")
