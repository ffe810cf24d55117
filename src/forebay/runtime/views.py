"""Views: their queries are planned, started, looked after and dropped here."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from forebay import sql
from forebay.catalog import Catalog, Definition, QueryState
from forebay.connectors.contract import Offsets
from forebay.errors import (
    CheckpointError,
    ObjectExistsError,
    UnsupportedSqlError,
)
from forebay.program import Program, Selecting, output_schema
from forebay.runtime import changelog, checkpoints, late_tables, late_views
from forebay.runtime.checkpoint_places import checkpoint_of, leave_checkpoint, remove_checkpoint
from forebay.runtime.closing_view import ClosingView
from forebay.runtime.common_view import row_view
from forebay.runtime.definitions import changes_of_view, detail_of, table_of_view, view_statement
from forebay.runtime.following_tables import Publishing
from forebay.runtime.group_checks import GroupChecks
from forebay.runtime.group_view import GroupView, counted
from forebay.runtime.known import unknown
from forebay.runtime.lock import ViewLock
from forebay.runtime.query import RunningQuery
from forebay.runtime.recovery import take_word_of_table
from forebay.runtime.shared_reads import REPORT_S, SharedReads
from forebay.runtime.shared_view import SharedView
from forebay.runtime.sources import Sources, check_name
from forebay.runtime.spark_refusals import refused, registered, temporary_names
from forebay.runtime.state_server import StateServer
from forebay.runtime.status import views_over
from forebay.runtime.stream_run import StreamRun
from forebay.runtime.view_places import IN_HOME, Places, ViewPlaces
from forebay.runtime.view_starts import ViewStarts
from forebay.source.flow_folder import view_read
from forebay.source.needed import adds_up_alike, needed_columns, returns
from forebay.source.stream import EventTime, WatermarkFiles, streaming_frame
from forebay.views.changes import ChangeFeed
from forebay.views.options import VIEW
from forebay.views.paths import ViewPaths, paths_of
from forebay.views.table import ViewTable

log = logging.getLogger("forebay.views")

OUTPUT_MODES = {"append": "append", "window_close": "append", "changes": "update"}


class Views:
    """The views of a session: those in the catalog, and the queries that this process runs."""

    def __init__(
        self,
        home: Path,
        catalog: Catalog,
        sources: Sources,
        spark: Callable[[], SparkSession],
        lock: AbstractContextManager[Any],
        places: Places = IN_HOME,
        *,
        adopting: bool = False,
    ) -> None:
        self.home = home
        self.places = ViewPlaces(places, catalog, sources)
        self.adopting = adopting  # whether what is there already is a new view's own
        self._catalog = catalog
        self._sources = sources
        self._spark = spark
        self._lock = lock  # the session's: held by whoever creates, drops or starts a view
        self.running: dict[str, RunningQuery | SharedView] = {}
        self._reads = SharedReads(home, catalog, sources, spark, lock, places.checkpoints)
        self.recovering = self._reads.recovering
        self._publishing: Publishing | None = None
        self._starts = ViewStarts(home, catalog, sources)
        self._groups = GroupChecks(sources)
        self.state_server: StateServer | None = None  # where Spark runs on other machines

    def runs(self) -> list[StreamRun]:
        """The streaming queries that run now."""
        own = [query for query in list(self.running.values()) if isinstance(query, RunningQuery)]
        return [*own, *self._reads.runs()]

    def paths(self, name: str) -> ViewPaths:
        return paths_of(self.home, name)

    def names(self) -> list[str]:
        return [definition.name for definition in self._catalog.all("view")]

    # -- creating ------------------------------------------------------------------------------------

    def create(self, statement: sql.CreateView) -> tuple[str, list[str]]:
        """Start the view's query; returns what happened, and notes. Nothing is left behind when it fails."""
        check_name(statement.name)
        text = sql.to_sql(replace(statement, if_not_exists=False, or_replace=False))
        VIEW.bind({key: value.text for key, value in statement.options.items()})
        known = self._catalog.get(statement.name)
        if known is not None and known.kind != "view":
            raise ObjectExistsError(f"'{statement.name}' is a {known.kind}", remedy="choose another name")
        if known is not None and statement.or_replace and known.sql != text:
            self.places.check_replaced(self.paths(statement.name), statement)
            self.check(statement)
            self.drop(statement.name)
            known = None
        if known is not None and not statement.if_not_exists and known.sql != text:
            raise ObjectExistsError(
                f"a view '{statement.name}' exists already, and is defined differently",
                remedy=f"DROP MATERIALIZED VIEW {statement.name}, or CREATE OR REPLACE MATERIALIZED VIEW",
            )
        running = self.running.get(statement.name)
        if running is not None and running.state in (QueryState.FAILED, QueryState.STOPPED):
            self.running.pop(statement.name)
        elif known is not None and running is not None:
            return f"view {statement.name} is running already", []
        if known is not None:
            statement = view_statement(known.sql)
        notes = self._start(statement, is_new=known is None, text=text)
        return f"view {statement.name} {'goes on where it stood' if known else 'created'}", notes

    def check(self, statement: sql.CreateView) -> None:
        """Whether Spark takes the query, before what it is to replace is dropped."""
        plan = self.plan(statement)
        self._check_tables(plan.tables)
        self._check_late(statement, plan, self._program(statement))
        self._frame(statement, plan, {name: {} for name in plan.tables}, lambda *_: 0)

    def plan(self, statement: sql.CreateView) -> sql.ViewPlan:
        """How the view is computed, over temporary views of its own names.

        Sources that are change logs have their rows weighed. Where it can, the source adds up beforehand; a
        view that once began without that goes on so, since Spark's state of it is another.
        """
        names = sql.tables(statement.query)
        found = self._catalog.get(names[0]) if len(names) == 1 else None
        if found is None or found.kind != "source":
            return self._plan(statement)
        [source] = names
        columns = self._sources.peek(source).full_schema()
        plain = self._plan(statement, columns)
        known = self._catalog.get(statement.name)
        if known is not None and not known.detail.get("partial"):
            return plain
        added = self._plan(statement, columns, adding=True)
        if added.partial is None:
            return plain
        name = temporary_names(statement)[source]
        return added if adds_up_alike(self._spark(), name, columns, plain.spark_sql, added) else plain

    def _plan(
        self, statement: sql.CreateView, columns: pa.Schema | None = None, *, adding: bool = False
    ) -> sql.ViewPlan:
        logs = {}
        for name in sql.tables(statement.query):
            known = self._catalog.get(name)
            if known is not None and known.kind == "source":
                connector = self._sources.peek(name)
                if connector.change_log:
                    logs[name] = changelog.of(connector, self._spark)
        try:
            return sql.plan(
                statement.query, statement.emit, temporary_names(statement), logs, columns, adding=adding
            )
        except AnalysisException as error:
            raise refused(error, temporary_names(statement), statement.query) from None

    def _start(self, statement: sql.CreateView, *, is_new: bool, text: str) -> list[str]:
        program = self._shared_program(statement)
        if is_new:
            self.places.settle(self.paths(statement.name), statement, program)
        if program is not None:
            return self._start_shared(statement, program, is_new=is_new, text=text)
        options = VIEW.bind({key: value.text for key, value in statement.options.items()})
        plan = self.plan(statement).for_spark()
        self._check_tables(plan.tables)
        self._check_late(statement, plan)
        connectors = {name: self._sources.connector(name) for name in plan.tables}
        for name in plan.tables:
            self._groups.check(name, shared_read=False)
        columns = {name: changelog.row_schema(connector).names for name, connector in connectors.items()}
        marked = not plan.plain and not plan.kept
        if not is_new and (known := self._catalog.get(statement.name)) is not None:
            columns = dict(known.detail.get("columns", columns))
            # One that began without a control stream goes on without: its checkpoint has no place for another stream.
            marked = bool(known.detail.get("marked"))
        query = RunningQuery(
            statement.name,
            self.paths(statement.name),
            connectors,
            lambda: self._frame(statement, plan, query.starts, query.accounts, columns, marked),
            output_mode=OUTPUT_MODES[plan.emit],
            merge_keys=plan.merge_keys if plan.emit == "changes" else None,
            kept=plan.kept,
            folders={name: self._sources.folder(name) for name in plan.tables},
            retention_s=options["retention"],
            on_state=self._on_state,
            evolve=self._sources.evolve,
            session_lock=self._lock,
        )
        query.state_server = self.state_server
        if not isinstance(query.checkpoint, Path):
            self._spark()  # whose client reaches it
        query.closes_windows = marked and plan.emit == "window_close"
        query.lock.acquire()
        for name in plan.tables:
            self._sources.settle(name)
            query.paths.watermark_of(name).parent.mkdir(parents=True, exist_ok=True)
        try:
            if is_new and checkpoints.exists(query.checkpoint):
                raise CheckpointError(
                    f"there is a checkpoint of a view '{statement.name}' that the catalog does not know",
                    remedy=f"if it is not wanted any more, remove {query.paths.root}",
                )
            if statement.name in self.recovering and not checkpoints.exists(query.checkpoint):
                take_word_of_table(query, stateless=plan.plain)
            query.starts, notes = self._starts.of(statement, plan.tables)
            query.progress.positions = dict(query.starts)
            frame = self._frame(statement, plan, query.starts, query.accounts, columns, marked)
            query.prepare(frame)
            query.recount(self._catalog)
            self.running[statement.name] = query
            if is_new:
                query.set_state(QueryState.CREATED, "")
            query.start(frame)
        except BaseException as error:
            self.running.pop(statement.name, None)
            query.lock.release()
            if is_new:
                leave_checkpoint(query.paths.root)
                query.paths.remove()
                self._catalog.drop(statement.name)  # the states that it was in
            if isinstance(error, PySparkException):
                raise refused(error, temporary_names(statement), statement.query) from None
            raise
        known = self._catalog.get(statement.name)
        if known is None or known.detail.get("adopted"):
            detail = {"columns": columns, "marked": marked, **detail_of(plan)}
            self._catalog.put(Definition(statement.name, "view", text, int(time.time() * 1000), detail))
        return notes

    def _check_late(
        self, statement: sql.CreateView, plan: sql.ViewPlan, program: Program | None = None
    ) -> None:
        """Whether the view can have its ALLOW LATENESS and LATE DATA TO. `program` is what tasks do for it, if they do."""
        late_tables.check_name_is_free(self._catalog, statement)
        times = [self._event_time(name) for name in plan.tables]
        for name, event_time in zip(plan.tables, times, strict=True):
            if event_time is not None and event_time.key is not None:
                late_views.check_keyed(statement, plan, program, name, event_time.key)
        if program is None:
            late_views.check_spark_run(statement, plan, any(times))
            return
        [source] = plan.tables
        connector, policy = self._sources.peek(source), self._sources.policy(source)
        late_views.check_served(statement, program, times[0], connector, policy)

    def _event_time(self, source: str) -> EventTime | None:
        return self._sources.event_time(self._sources.statement(source), self._sources.peek(source))

    def _event_time_in_spark(self, source: str, late: sql.LateClause) -> EventTime | None:
        """With the lateness that the view allows. Spark knows no watermarks of keys: it leaves no row of such a source out."""
        found = self._event_time(source)
        if found is None or found.key is not None:
            return None
        return replace(found, delay_ms=found.delay_ms + late.allowed_ms)

    # -- served by a shared read ---------------------------------------------------------------------

    def is_shared(self, statement: sql.CreateView) -> bool:
        """Whether tasks can do for this view what it asks for."""
        return self._shared_program(statement) is not None

    def _shared_program(self, statement: sql.CreateView) -> Program | None:
        """What tasks do for this view; None where only Spark can, or where somebody has begun so."""
        program = self._program(statement)
        known = self._catalog.get(statement.name)
        if program is None or known is not None:
            # Groups that Spark keeps stay with Spark; rows are rows, whoever wrote those before.
            began_so = known is None or known.detail.get("shared") or known.detail.get("adopted")
            return program if began_so or isinstance(program, Selecting) else None
        [source] = sql.tables(statement.query)
        columns = self._sources.peek(source).full_schema()
        query = self._plan(statement, columns).spark_sql
        found = returns(self._spark(), temporary_names(statement)[source], columns, query)
        return program if found == output_schema(program) else None

    def _program(self, statement: sql.CreateView) -> Program | None:
        names = sql.tables(statement.query)
        found = self._catalog.get(names[0]) if len(names) == 1 else None
        if found is None or found.kind != "source" or self._sources.peek(names[0]).change_log:
            return None
        columns = self._sources.peek(names[0]).full_schema()
        self._plan(statement, columns)  # what makes no sense is refused there
        program = sql.program_for(statement.query, columns)
        if program is None or (statement.emit == "window_close" and not self._closes(statement, program)):
            return None
        return counted(program)

    def _closes(self, statement: sql.CreateView, program: Program) -> bool:
        """Whether tasks close the view's windows: where Spark's one watermark, or its silence about late rows, will not do."""
        event_time = self._event_time(sql.tables(statement.query)[0])
        if event_time is None or not late_views.closes_once(program, event_time):
            return False
        return statement.late.kept or event_time.key is not None

    def _start_shared(
        self, statement: sql.CreateView, program: Program, *, is_new: bool, text: str
    ) -> list[str]:
        [source] = sql.tables(statement.query)

        def replan() -> Program:
            found = self._program(statement)
            assert found is not None
            return found

        connector = self._sources.connector(source)
        self._groups.check(source)
        paths = self.paths(statement.name)
        plan = self._plan(statement, connector.full_schema())
        options = VIEW.bind({key: value.text for key, value in statement.options.items()})
        what = (
            statement.name, paths, source, connector, program, replan, self._on_state, options["retention"],
        )  # fmt: skip
        view: SharedView
        self._check_late(statement, plan, program)
        if isinstance(program, Selecting):
            view = row_view(*what, query=sql.query_text(statement.query))
        else:
            about = {
                "late": late_views.target_of(statement.late, paths),
                "event_time": self._sources.event_time(self._sources.statement(source), connector),
            }
            if plan.emit == "window_close":
                view = ClosingView(*what, **about)
            else:
                freshness_s = options["view.freshness"]
                view = GroupView(*what, **about, keys=plan.merge_keys, freshness_s=freshness_s)
            self._publishing = self._publishing or Publishing(
                lambda: [each for each in list(self.running.values()) if isinstance(each, GroupView)]
            )
        view.lock.acquire()
        self._sources.settle(source)
        try:
            if is_new and paths.member is None and (paths.table / "_delta_log").exists():
                raise CheckpointError(
                    f"there is a table of a view '{statement.name}' that the catalog does not know",
                    remedy=f"if it is not wanted any more, remove {paths.root}",
                )
            starts, notes = self._starts.of(statement, [source])
            view.prepare(is_new=is_new)
            self.running[statement.name] = view
            if is_new:
                view.set_state(QueryState.CREATED, "")
            self._reads.join(view, starts[source])
        except BaseException as error:
            self.running.pop(statement.name, None)
            view.leave(view)
            view.lock.release()
            if is_new:
                self._reads.forget(statement.name, source)
                paths.remove()
                self._catalog.drop(statement.name)  # the states that it was in
            if isinstance(error, PySparkException):
                raise refused(error, temporary_names(statement), statement.query) from None
            raise
        known = self._catalog.get(statement.name)
        detail = {**detail_of(plan), "shared": True, "program": program.to_json()}
        if statement.late.letters:
            detail["late_letters"] = True
        if known is None:
            known = Definition(statement.name, "view", text, int(time.time() * 1000))
        if not known.detail.get("shared"):
            late_tables.register(self._catalog, statement)
            self._catalog.put(replace(known, detail={**known.detail, **detail}))
        return notes

    def _check_tables(self, names: Iterable[str]) -> None:
        for name in names:
            known = self._catalog.get(name)
            if known is None:
                raise unknown("source", name, self._sources.names())
            if known.kind != "source":
                read = ", ".join(known.detail.get("sources", ())) or "its source"
                raise UnsupportedSqlError(
                    f"'{name}' is a view, and a view over a view is not supported yet",
                    remedy=f"write the SELECT alone, which can read any view; or let this view read {read}, as '{name}' does",
                )

    def _frame(
        self,
        statement: sql.CreateView,
        plan: sql.ViewPlan,
        starts: Mapping[str, Offsets],
        accounts: Callable[[str, SparkContext], int],
        created_with: Mapping[str, list[str]] | None = None,
        marked: bool = False,
    ) -> DataFrame:
        """The view's query over its streaming sources. `marked`: Spark's watermark follows theirs.

        Where it has more than rows to pass on (groups, joins, DISTINCT), its sources have the columns that the
        view was created with: a `*` that grew would not fit the state that Spark keeps for it.
        """
        spark = self._spark()
        paths = self.paths(statement.name)
        temporary = temporary_names(statement)
        schemas = {
            new: changelog.row_schema(self._sources.connector(name)) for name, new in temporary.items()
        }
        if created_with is not None and not plan.plain:
            schemas = {
                new: pa.schema([field for field in schemas[new] if field.name in created_with[name]])
                for name, new in temporary.items()
            }
        needed: dict[str, set[str]] = {}
        if plan.partial is None:
            needed = needed_columns(spark, schemas, plan.spark_sql)
        for name in temporary:
            connector = self._sources.connector(name)
            source = self._sources.statement(name)
            frame = streaming_frame(
                spark,
                self._sources.config(source),
                connector,
                start=starts[name],
                drain=paths.drain,
                read=view_read(statement.name, shared=False),
                accounts=accounts(name, spark.sparkContext),
                errors=self._sources.folder(name).root,
                health=paths.health_of(name),
                # A row that is taken back late must be taken back all the same.
                event_time=None if plan.kept else self._event_time_in_spark(name, statement.late),
                watermark=(
                    WatermarkFiles(paths.event_times_of(name), paths.watermark_of(name)) if marked else None
                ),
                needed=needed.get(temporary[name], set()),
                condition=plan.condition,
                partial=plan.partial,
            )
            if plan.partial is None:
                frame = changelog.only(frame, schemas[temporary[name]])
            frame.createOrReplaceTempView(temporary[name])
        try:
            frame = spark.sql(plan.spark_sql)
            return changelog.checked(frame, plan.kept) if plan.kept else frame
        except AnalysisException as error:
            raise refused(error, temporary, statement.query, lambda: registered(spark)) from None
        finally:
            for view in temporary.values():
                spark.catalog.dropTempView(view)

    def _on_state(self, name: str, state: QueryState, message: str) -> None:
        try:
            self._catalog.set_state(name, state, message, os.getpid())
        except sqlite3.OperationalError as error:
            # A full disk: who sets a state must go on all the same, to start the query again when there is room.
            log.error("view '%s' is %s, which the catalog could not keep: %s", name, state, error)

    def start(self, name: str) -> str:
        """START VIEW: run a view of this home; returns what happened."""
        known = self._catalog.get(name)
        if known is None or known.kind != "view":
            raise unknown("view", name, self.names())
        self._catalog.put(replace(known, detail={**known.detail, "stopped": False, "detached": False}))
        done, _ = self.create(view_statement(known.sql))
        return done

    def start_all(self) -> list[str]:
        """Run all views that rest; returns what happened. The brokers are asked once for each source, and each read begins
        with all its views.
        """
        names = self.resting()
        try:
            with self._groups.once(), self._reads.together():
                return [self.start(name) for name in names]
        except BaseException:
            for name in names:  # those of a read that could not be started rest again
                if name in self.running and self.running[name].state is QueryState.FAILED:
                    del self.running[name]
            raise

    def stop(self, name: str) -> str:
        """STOP VIEW: finish the batch in flight and run the view no more, also when all are started."""
        known = self._catalog.get(name)
        if known is None or known.kind != "view":
            raise unknown("view", name, self.names())
        query = self.running.get(name)
        if query is None:
            self._not_run_elsewhere(name)
        else:
            query.stop()
            query.await_report(REPORT_S)
            del self.running[name]
        self._catalog.put(replace(known, detail={**known.detail, "stopped": True}))
        return f"view {name} stopped; START VIEW {name} goes on with it"

    def detach(self, name: str) -> str:
        """ALTER VIEW … DETACH: stop the view, and let the groups of its sources go on without it."""
        self.stop(name)
        known = self._catalog.get(name)
        assert known is not None
        self._catalog.put(replace(known, detail={**known.detail, "detached": True}))
        return (
            f"view {name} detached: its sources' groups do not wait for it; START VIEW {name} takes it back"
        )

    def awaited(self, names: Iterable[str]) -> list[str]:
        """Of these views, those that the groups of their sources wait for."""
        known = {name: self._catalog.get(name) for name in names}
        return [name for name, view in known.items() if view is None or not view.detail.get("detached")]

    def resting(self) -> list[str]:
        """The views that are not running here and that nobody stopped by a statement."""
        return [
            view.name
            for view in self._catalog.all("view")
            if view.name not in self.running and not view.detail.get("stopped")
        ]

    def _not_run_elsewhere(self, name: str) -> None:
        lock = ViewLock(name, self.paths(name))
        lock.acquire()
        lock.release()

    # -- reading -------------------------------------------------------------------------------------

    def table(self, name: str) -> ViewTable:
        return table_of_view(self.home, self._catalog, name)

    def changes(self, name: str) -> ChangeFeed:
        """For subscribers."""
        return changes_of_view(self.home, self._catalog, name)

    # -- ending --------------------------------------------------------------------------------------

    def over(self, source: str) -> list[str]:
        """The views that read from a source."""
        return views_over(self._catalog, source)

    def position(self, view: str, source: str) -> Offsets | None:
        """How far a view has got in a source, whether it runs here or not."""
        running = self.running.get(view)
        return self.left_at(view, source) if running is None else running.progress.positions.get(source)

    def position_of_read(self, source: str) -> Offsets | None:
        """How far the read for all views of a source has got, if it runs here."""
        return self._reads.position(source)

    def left_at(self, view: str, source: str) -> Offsets | None:
        """Where a view that does not run here stands in a source, as far as the catalog knows."""
        for totals in self._catalog.totals(view=view, source=source):
            return dict(totals.offsets)
        return self._starts.kept(view, source)

    def drop(self, name: str) -> None:
        query = self.running.pop(name, None)
        if query is not None:
            query.stop()
        else:
            self._not_run_elsewhere(name)
        if not isinstance(checkpoint_of(self.paths(name).root), Path):
            self._spark()
        remove_checkpoint(self.paths(name).root)
        self.paths(name).remove_elsewhere()  # a store that is away refuses it: the view is still known then
        known = self._catalog.get(name)
        for source in known.detail.get("sources", ()) if known and known.detail.get("shared") else ():
            self._reads.forget(name, source)
        late_tables.forget(self._catalog, name)
        self._catalog.drop(name)
        self.paths(name).remove()

    def stop_all(self) -> None:
        """Stop every query between two batches. All hear of it first, so that they finish side by side."""
        own = [query for query in self.running.values() if isinstance(query, RunningQuery)]
        for query in own:
            query.begin_to_stop()
        self._reads.begin_to_stop()
        self._reads.stop_all()
        if self._publishing is not None:
            self._publishing.close()
        for each in self.running.values():
            each.stop()
