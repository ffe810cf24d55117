"""Views: their queries are planned, started, looked after and dropped here."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from forebay import sql
from forebay.answers.spark_returns import schema_as_spark_returns
from forebay.catalog import Catalog, Definition, QueryState
from forebay.connectors.contract import Offsets
from forebay.errors import (
    CheckpointError,
    ObjectExistsError,
    UnsupportedSqlError,
    WaitTimeoutError,
)
from forebay.files import make_folder, write_whole
from forebay.program import Program, Selecting, output_schema
from forebay.runtime import changelog, checkpoints
from forebay.runtime.definitions import changes_of_view, groups_of_view, table_of_view, view_statement
from forebay.runtime.group_view import GroupView, Publishing, counted
from forebay.runtime.known import unknown
from forebay.runtime.lock import ViewLock
from forebay.runtime.query import RunningQuery
from forebay.runtime.shared_reads import REPORT_S, SharedReads
from forebay.runtime.shared_view import RowView, SharedView
from forebay.runtime.sources import Sources, check_name
from forebay.runtime.spark_refusals import refused, registered, temporary_names
from forebay.runtime.status import views_over
from forebay.runtime.stream_run import StreamRun
from forebay.runtime.view_positions import earlier
from forebay.source.needed import adds_up_alike, needed_columns, returns
from forebay.source.stream import batch_frame, streaming_frame
from forebay.views.changes import ChangeFeed
from forebay.views.options import BEGINNING, VIEW
from forebay.views.paths import ViewPaths, paths_of
from forebay.views.table import ViewTable

# What Parquet knows of the values in a file leaves out NaN and tells -0.0 from 0.0: by it Spark would skip rows that
# its own WHERE asks for.
EVERY_ROW = {
    f"parquet.filter.{way}.enabled": "false" for way in ("stats", "dictionary", "columnindex", "bloom")
}
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
        catalog_table: Callable[[str, Any, SparkSession], DataFrame | None] = lambda *_: None,
    ) -> None:
        self.home = home
        self._catalog = catalog
        self._sources = sources
        self._spark = spark
        self._lock = lock  # the session's: held by whoever creates, drops or starts a view
        self._selects = itertools.count()
        self._catalog_table = catalog_table
        self.running: dict[str, RunningQuery | SharedView] = {}
        self._reads = SharedReads(home, catalog, sources, spark, lock)
        self._publishing: Publishing | None = None

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
        text = sql.to_sql(sql.CreateView(statement.name, statement.query, statement.emit, statement.options))
        VIEW.bind({key: value.text for key, value in statement.options.items()})
        known = self._catalog.get(statement.name)
        if known is not None and known.kind != "view":
            raise ObjectExistsError(f"'{statement.name}' is a {known.kind}", remedy="choose another name")
        if known is not None and statement.or_replace and known.sql != text:
            self._check(statement)
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

    def _check(self, statement: sql.CreateView) -> None:
        """Whether Spark takes the query, before what it is to replace is dropped."""
        plan = self.plan(statement)
        self._check_tables(plan.tables)
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
        if program is not None:
            return self._start_shared(statement, program, is_new=is_new, text=text)
        options = VIEW.bind({key: value.text for key, value in statement.options.items()})
        plan = self.plan(statement)
        self._check_tables(plan.tables)
        connectors = {name: self._sources.connector(name) for name in plan.tables}
        columns = {name: changelog.row_schema(connector).names for name, connector in connectors.items()}
        if not is_new and (known := self._catalog.get(statement.name)) is not None:
            columns = dict(known.detail.get("columns", columns))
        query = RunningQuery(
            statement.name,
            self.paths(statement.name),
            connectors,
            lambda: self._frame(statement, plan, query.starts, query.accounts, columns),
            output_mode=OUTPUT_MODES[plan.emit],
            merge_keys=plan.merge_keys if plan.emit == "changes" else None,
            kept=plan.kept,
            folders={name: self._sources.folder(name) for name in plan.tables},
            retention_s=options["retention"],
            on_state=self._on_state,
            evolve=self._sources.evolve,
            session_lock=self._lock,
        )
        query.lock.acquire()
        for name in plan.tables:
            self._sources.settle(name)
        try:
            if is_new and checkpoints.exists(query.paths.checkpoint):
                raise CheckpointError(
                    f"there is a checkpoint of a view '{statement.name}' that the catalog does not know",
                    remedy=f"if it is not wanted any more, remove {query.paths.root}",
                )
            query.starts, notes = self._starts(statement, plan.tables)
            query.progress.positions = dict(query.starts)
            frame = self._frame(statement, plan, query.starts, query.accounts, columns)
            query.prepare(frame)
            query.recount(self._catalog)
            self.running[statement.name] = query
            query.start(frame)
        except BaseException as error:
            self.running.pop(statement.name, None)
            query.lock.release()
            if is_new:
                shutil.rmtree(query.paths.root, ignore_errors=True)
            if isinstance(error, PySparkException):
                raise refused(error, temporary_names(statement), statement.query) from None
            raise
        if is_new:
            detail = {"columns": columns, **_detail(plan)}
            self._catalog.put(Definition(statement.name, "view", text, int(time.time() * 1000), detail))
        return notes

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
            ours = known is None or known.detail.get("shared") or isinstance(program, Selecting)
            return program if ours else None
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
        if statement.emit == "window_close":
            return None
        columns = self._sources.peek(names[0]).full_schema()
        self._plan(statement, columns)  # what makes no sense is refused there
        program = sql.program_for(statement.query, columns)
        return None if program is None else counted(program)

    def _start_shared(
        self, statement: sql.CreateView, program: Program, *, is_new: bool, text: str
    ) -> list[str]:
        [source] = sql.tables(statement.query)

        def replan() -> Program:
            found = self._program(statement)
            assert found is not None
            return found

        connector = self._sources.connector(source)
        paths = self.paths(statement.name)
        plan = self._plan(statement, connector.full_schema())
        options = VIEW.bind({key: value.text for key, value in statement.options.items()})
        what = (
            statement.name, paths, source, connector, program, replan, self._on_state, options["retention"],
        )  # fmt: skip
        view: SharedView
        if isinstance(program, Selecting):
            view = RowView(*what)
        else:
            view = GroupView(
                *what,
                keys=plan.merge_keys,
                event_time=self._sources.event_time(self._sources.statement(source), connector),
                freshness_s=options["view.freshness"],
            )
            self._publishing = self._publishing or Publishing(lambda: list(self.running.values()))
        view.lock.acquire()
        self._sources.settle(source)
        try:
            if is_new and paths.table.exists():
                raise CheckpointError(
                    f"there is a table of a view '{statement.name}' that the catalog does not know",
                    remedy=f"if it is not wanted any more, remove {paths.root}",
                )
            starts, notes = self._starts(statement, [source])
            view.prepare(is_new=is_new)
            self.running[statement.name] = view
            self._reads.join(view, starts[source])
        except BaseException as error:
            self.running.pop(statement.name, None)
            view.leave(view)
            view.lock.release()
            if is_new:
                self._reads.forget(statement.name, source)
                shutil.rmtree(paths.root, ignore_errors=True)
            if isinstance(error, PySparkException):
                raise refused(error, temporary_names(statement), statement.query) from None
            raise
        known = self._catalog.get(statement.name)
        detail = {**_detail(plan), "shared": True, "program": program.to_json()}
        if known is None:
            known = Definition(statement.name, "view", text, int(time.time() * 1000))
        if not known.detail.get("shared"):
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
    ) -> DataFrame:
        """The view's query over its streaming sources.

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
                accounts=accounts(name, spark.sparkContext),
                errors=self._sources.folder(name).root,
                health=paths.health_of(name),
                # A row that is taken back late must be taken back all the same.
                event_time=None if plan.kept else self._sources.event_time(source, connector),
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

    def _starts(
        self, statement: sql.CreateView, sources: Iterable[str]
    ) -> tuple[dict[str, Offsets], list[str]]:
        """Where each source of the view starts: worked out once, then kept beside the checkpoint; and notes for people."""
        path, notes = self.paths(statement.name).start, list[str]()
        if not path.exists():
            options = VIEW.bind({key: value.text for key, value in statement.options.items()})
            starts = {}
            for name in sources:
                starts[name], gone = self._start_in(name, options["start"])
                notes += [
                    f"note: {each} of source '{name}' is gone; the view begins after it" for each in gone
                ]
            make_folder(path.parent, 0o700)
            write_whole(path, json.dumps(starts).encode())
        found: dict[str, Offsets] = json.loads(path.read_text())
        return found, notes

    def _start_in(self, source: str, start: str | int) -> tuple[Offsets, tuple[str, ...]]:
        if start == BEGINNING:
            return self._sources.beginning(source, lambda: self._earliest_start(source))
        when = None if isinstance(start, str) else start
        return self._sources.connector(source).offsets_at(when), ()

    def _earliest_start(self, source: str) -> Offsets | None:
        """Where the first view over a source began."""
        starts = [
            start for view in self.over(source) if (start := self._kept_start(view, source)) is not None
        ]
        return reduce(earlier, starts) if starts else None

    def _kept_start(self, view: str, source: str) -> Offsets | None:
        path = self.paths(view).start
        found: dict[str, Offsets] = json.loads(path.read_text()) if path.exists() else {}
        return found.get(source)

    def _on_state(self, name: str, state: QueryState, message: str) -> None:
        self._catalog.set_state(name, state, message, os.getpid())

    def start(self, name: str) -> str:
        """START VIEW: run a view of this home; returns what happened."""
        known = self._catalog.get(name)
        if known is None or known.kind != "view":
            raise unknown("view", name, self.names())
        self._catalog.put(replace(known, detail={**known.detail, "stopped": False, "detached": False}))
        done, _ = self.create(view_statement(known.sql))
        return done

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
        lock = ViewLock(name, self.paths(name).lock)
        lock.acquire()
        lock.release()

    # -- reading -------------------------------------------------------------------------------------

    def table(self, name: str) -> ViewTable:
        return table_of_view(self.home, self._catalog, name)

    def changes(self, name: str) -> ChangeFeed:
        """For subscribers."""
        return changes_of_view(self.home, self._catalog, name)

    def select(self, statement: sql.Select) -> DataFrame:
        """A query over views and sources as they are now."""
        spark = self._spark()
        temporary: dict[str, str] = {}
        try:
            for name in sql.tables(statement.query):
                # Of this SELECT alone: another may read the same view at the same time.
                temporary[name] = f"forebay_read_{next(self._selects)}_{name.replace('.', '_')}"
                table = self._catalog_table(name, statement.query, spark)
                frame = table if table is not None else self._snapshot(name)
                frame.createOrReplaceTempView(temporary[name])
            return spark.sql(sql.plan_select(statement.query, temporary))
        except AnalysisException as error:
            raise refused(error, temporary, statement.query, lambda: registered(spark)) from None
        finally:
            for view in temporary.values():
                spark.catalog.dropTempView(view)

    def _snapshot(self, name: str) -> DataFrame:
        spark = self._spark()
        known = self._catalog.get(name)
        if known is None:
            raise unknown("view or source", name, [*self.names(), *self._sources.names()])
        if known.kind == "source":
            source = self._sources.statement(name)
            return batch_frame(spark, self._sources.config(source), self._sources.connector(name))
        groups = groups_of_view(self.home, self._catalog, name)
        if groups is not None:  # of which its table may be behind
            rows = groups.rows()
            return spark.createDataFrame(rows.cast(schema_as_spark_returns(rows.schema)))
        table = self.table(name)
        schema = schema_as_spark_returns(pa.schema(table.open().schema().to_arrow()))
        empty = spark.createDataFrame(schema.empty_table())
        files = table.files()
        kinds = empty.schema.simpleString()
        options = EVERY_ROW if "float" in kinds or "double" in kinds else {}
        frame = spark.read.options(**options).schema(empty.schema).parquet(*files) if files else empty
        return changelog.repeated(frame) if known.detail.get("kept") == "rows" else frame

    # -- ending --------------------------------------------------------------------------------------

    def over(self, source: str) -> list[str]:
        """The views that read from a source."""
        return views_over(self._catalog, source)

    def position(self, view: str, source: str) -> Offsets | None:
        """How far a view has got in a source, whether it runs here or not."""
        running = self.running.get(view)
        return self.left_at(view, source) if running is None else running.progress.positions.get(source)

    def left_at(self, view: str, source: str) -> Offsets | None:
        """Where a view that does not run here stands in a source, as far as the catalog knows."""
        for totals in self._catalog.totals(view=view, source=source):
            return dict(totals.offsets)
        return self._kept_start(view, source)

    def drop(self, name: str) -> None:
        query = self.running.pop(name, None)
        if query is not None:
            query.stop()
        else:
            self._not_run_elsewhere(name)
        known = self._catalog.get(name)
        for source in known.detail.get("sources", ()) if known and known.detail.get("shared") else ():
            self._reads.forget(name, source)
        self._catalog.drop(name)
        shutil.rmtree(self.paths(name).root, ignore_errors=True)

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

    def wait_caught_up(self, deadline: float | None, timeout: float | None) -> None:
        """Until all that the sources hold now is in the views."""
        targets = {
            (view, name): connector.end_offsets()
            for view, query in list(self.running.items())
            for name, connector in query.connectors.items()
        }
        for (view, name), target in targets.items():
            query = self.running[view]
            connector = query.connectors[name]

            def reached() -> bool:
                position = query.progress.positions.get(name)  # noqa: B023
                return position is not None and connector.reached(position, target)  # noqa: B023

            if not query.wait_for(reached, deadline):
                query.raise_if_failed()
                raise WaitTimeoutError(
                    f"view '{view}' had not caught up with '{name}' after {timeout:.0f} s (lag {'unknown' if query.progress.lag is None else query.progress.lag})"
                    if timeout is not None
                    else f"view '{view}' was stopped before it had caught up",
                    remedy="give it more time with --timeout, or see SHOW QUERIES for what holds it up",
                )


def _detail(plan: sql.ViewPlan) -> dict[str, Any]:
    """What the catalog keeps of a view's plan."""
    detail: dict[str, Any] = {
        "sources": list(plan.tables),
        "emit": plan.emit,
        "keys": list(plan.merge_keys),
    }
    if plan.kept:
        detail["kept"] = plan.kept
    if plan.partial:
        detail["partial"] = True
    return detail
