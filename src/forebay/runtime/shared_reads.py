"""Which shared reads a session runs, and which view is served by which.

A source has one read for all its views. A view that is far from where that read stands has a read of its own until it
is near; then it joins, in one batch, without a gap and without a repeat, and the others notice nothing.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from forebay import locks, threads
from forebay.catalog import Catalog, QueryState
from forebay.connectors.contract import Offsets, SourceConnector
from forebay.errors import AlreadyRunningError, CheckpointError, ForebayError
from forebay.files import make_folder
from forebay.object_path import store_settings
from forebay.runtime import checkpoints
from forebay.runtime.checkpoint_places import (
    CheckpointPath,
    checkpoint_of,
    leave_checkpoint,
    settle_checkpoint,
)
from forebay.runtime.keyed_read import KeyedRead
from forebay.runtime.live_run import by_source
from forebay.runtime.read_paths import ReadPaths, of_source, of_view
from forebay.runtime.recovery import gone
from forebay.runtime.shared_read import SharedRead, later_of_table
from forebay.runtime.shared_view import SharedView
from forebay.runtime.sources import Sources
from forebay.runtime.spark import hand_over_stores
from forebay.source.stream import WatermarkFiles, shared_frame

if TYPE_CHECKING:
    from filelock import BaseFileLock

log = logging.getLogger("forebay.read")

REPORT_S = 5.0  # Spark's events come on a thread of their own, a little behind
NEAR = 200_000  # records: a view that is no further from the shared read than this joins it at once


class SharedReads:
    """Of a session. Every method but `runs` is called with the session's lock held."""

    def __init__(
        self,
        home: Path,
        catalog: Catalog,
        sources: Sources,
        spark: Callable[[], SparkSession],
        lock: AbstractContextManager[Any],
        checkpoints_below: str | None = None,
    ) -> None:
        self._below = checkpoints_below  # where those of new reads are, if not in the home
        self._home = home
        self._catalog = catalog
        self._sources = sources
        self._spark = spark
        self._lock = lock
        self._for_all: dict[str, SharedRead] = {}  # by source
        self._alone: dict[str, SharedRead] = {}  # by view
        self._locks: dict[str, BaseFileLock] = {}
        self._to_start: list[SharedRead] | None = None  # while views join together
        self.recovering: set[str] = set()  # views that may go on where their tables say that they stand

    def runs(self) -> list[SharedRead]:
        """All that run now."""
        return [*self._for_all.values(), *self._alone.values()]

    # -- joining -------------------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[None]:
        """Reads for all views are started when the block ends: who joins a read that runs makes a batch, which costs more
        than all the rest of a start. A read that cannot be started raises why, and its views have failed.
        """
        self._to_start = []
        try:
            yield
        finally:
            reads, self._to_start = self._to_start, None
            for read in reads:
                if read.views and read.state is QueryState.CREATED:
                    self._start(read)

    def _start(self, read: SharedRead) -> None:
        try:
            read.start(read.build())
        except Exception as error:
            read.fail(_as_ours(error))
            raise

    def join(self, view: SharedView, start: Offsets) -> None:
        """Serve a view from where it stands; from `start` if it never was served."""
        shared = self._read_for_all(view.source)
        try:
            self._join_or_serve_alone(shared, view, start)
        except BaseException:
            if shared is not None and not shared.views and self._for_all.get(view.source) is shared:
                self._close(view.source)  # it was opened for nothing
            raise

    def _join_or_serve_alone(self, shared: SharedRead | None, view: SharedView, start: Offsets) -> None:
        share = self._sources.connector(view.source).share
        if shared is None and share is not None:
            raise AlreadyRunningError(
                f"another process reads source '{view.source}' for this home",
                remedy="give each process that shares a group a home of its own: --home",
            )
        position = self._position(view, shared)
        if position is None and view.has_batches():
            position = self._recovered(view, start)
        position = position or start
        view.starts = {view.source: start}
        view.position = position
        view.progress.positions = {view.source: position}
        view.count_up_to_here(self._catalog)
        if shared is None:
            self._serve_alone(view)
            return
        if shared.position is None:
            shared.begin_at(position)
        here = shared.position
        assert here is not None
        connector = self._sources.connector(view.source)
        # Of a group that is shared, one read alone may take what is new.
        if share is None and _distance(connector, position, here) > NEAR:
            self._serve_alone(view)
            return
        self._join(shared, view, position)

    def _recovered(self, view: SharedView, start: Offsets) -> Offsets:
        """Where the table says that it stands. Nobody takes its word unasked: it may be an old copy."""
        position = view.recorded_end()
        if position is None and view.paths.member is not None:
            position = start  # the group says where to go on, and the table what it has
        if view.name not in self.recovering:
            raise gone(view.name, recoverable=position is not None)
        if position is None:
            raise CheckpointError(
                f"nothing in the table of view '{view.name}' says where it stands in its source",
                remedy=f"forebay recover {view.name} --rebuild reads the source again",
            )
        return position

    def _join(self, shared: SharedRead, view: SharedView, position: Offsets) -> None:
        shared.add(view, position)
        view.leave = self.leave
        for left in (of_view(view.paths).root, view.paths.root):
            leave_checkpoint(left)
        shutil.rmtree(of_view(view.paths).root, ignore_errors=True)
        if shared.run is None and shared.state is QueryState.CREATED:
            if self._to_start is None:
                shared.start(shared.build())
            elif shared not in self._to_start:
                self._to_start.append(shared)

    def _serve_alone(self, view: SharedView) -> None:
        read = self._read(view.source, of_view(view.paths))
        if read.position is None:
            read.begin_at(view.position)
        read.after_batch = self._maybe_join
        self._alone[view.name] = read
        read.add(view, view.position)
        view.leave = self.leave
        read.start(read.build())

    def _maybe_join(self, alone: SharedRead) -> None:
        """After a batch of a view that is served alone: join the others if they are near."""
        for view in list(alone.views.values()):
            shared = self._for_all.get(view.source)
            if shared is None or shared.position is None or shared.state is QueryState.RETRYING:
                continue
            connector = self._sources.connector(view.source)
            if _distance(connector, view.position, shared.position) <= NEAR:
                alone.after_batch = lambda read: None
                threads.start(
                    f"forebay-join-{view.name}",
                    lambda view=view: self._change_over(alone, view),  # type: ignore[misc]
                    lambda error, view=view: view.fail(_as_ours(error)),  # type: ignore[misc]
                )

    def _change_over(self, alone: SharedRead, view: SharedView) -> None:
        with self._lock:
            shared = self._read_for_all(view.source)
            if self._alone.get(view.name) is not alone or view.name not in alone.views or shared is None:
                return
            alone.stop()
            alone.await_report(REPORT_S)
            position = view.position
            alone.remove(view)
            del self._alone[view.name]
            self._join(shared, view, position)
            view.set_state(QueryState.RUNNING, "")

    def _position(self, view: SharedView, shared: SharedRead | None) -> Offsets | None:
        """Where a view stands that was served before, by whoever served it last."""
        known = shared.left_at(view) if shared is not None else None
        if known is not None:
            return known
        for root in (of_view(view.paths).root, view.paths.root):
            checkpoint = self._checkpoint(root)
            done = checkpoints.committed(checkpoint)
            if done is not None:
                position = by_source(done.offsets)[view.source]
                return later_of_table(self._sources.connector(view.source), checkpoint, view, position)
            start = root / "start.json"
            if checkpoints.exists(checkpoint) and start.exists():
                found = json.loads(start.read_text())
                position = found.get(view.source, found)
                return later_of_table(self._sources.connector(view.source), checkpoint, view, position)
        return None

    def _checkpoint(self, root: Path) -> CheckpointPath:
        """To look into, for which it may take a Spark that runs."""
        found = checkpoint_of(root)
        if not isinstance(found, Path):
            self._spark()
        return found

    def _read_for_all(self, source: str) -> SharedRead | None:
        """The source's read; None if another process has it."""
        known = self._for_all.get(source)
        if known is not None and known.state in (QueryState.FAILED, QueryState.STOPPED):
            self._close(source)
        if source not in self._for_all:
            paths = of_source(self._home, source)
            make_folder(paths.root, 0o700)
            held = locks.take(paths.root / "lock")
            if held is None:
                return None
            try:
                self._for_all[source] = self._read(source, paths)
            except BaseException:
                held.release()
                raise
            self._locks[source] = held
        return self._for_all[source]

    def _read(self, source: str, paths: ReadPaths) -> SharedRead:
        sources = self._sources
        connector = sources.connector(source)
        settle_checkpoint(paths.root, self._below)
        self._checkpoint(paths.root)

        def frame(paths: ReadPaths) -> Any:
            statement = sources.statement(source)
            if store_settings():
                hand_over_stores(self._spark())
            return shared_frame(
                self._spark(),
                sources.config(statement),
                connector,
                start=json.loads(paths.start.read_text()),
                drain=paths.drain,
                read=paths.read,
                errors=sources.folder(source).root,
                health=paths.health,
                state=paths.state,
                share=paths.share if connector.share is not None else None,
                event_time=sources.event_time(statement, connector),
                watermark=WatermarkFiles(paths.event_times, paths.watermark),
                keys=paths.keys,
            )

        read = SharedRead(
            source,
            paths,
            connector,
            sources.folder(source),
            self._catalog,
            frame,
            evolve=sources.evolve,
            session_lock=self._lock,
        )
        event_time = sources.event_time(sources.statement(source), connector)
        if event_time is not None and event_time.key is not None:
            read.keyed = KeyedRead(paths.keys, connector, event_time)
        return read

    # -- leaving -------------------------------------------------------------------------------------

    def leave(self, view: SharedView) -> None:
        """Serve a view no more. A read that serves nobody is stopped; where views stand is kept."""
        alone = self._alone.pop(view.name, None)
        if alone is not None:
            alone.stop()
            alone.remove(view)
            return
        shared = self._for_all.get(view.source)
        if shared is None:
            return
        shared.remove(view)
        if not shared.views:
            self._close(view.source)

    def forget(self, name: str, source: str) -> None:
        """A view that is dropped. When a read has no view left at all, it is forgotten, too."""
        shared = self._read_for_all(source)
        if shared is None:
            return
        shared.forget(name)
        if not shared.known:
            root = shared.paths.root
            self._close(source)
            leave_checkpoint(root)
            shutil.rmtree(root, ignore_errors=True)
        elif not shared.views:
            self._close(source)

    def position(self, source: str) -> Offsets | None:
        """Where the read for all views of a source stands; None if none runs here."""
        read = self._for_all.get(source)
        return None if read is None else read.position

    def _close(self, source: str) -> None:
        self._for_all.pop(source).stop()
        share = self._sources.connector(source).share
        if share is not None:
            share.leave()
        self._locks.pop(source).release()

    def begin_to_stop(self) -> None:
        """No read begins another batch."""
        for read in self.runs():
            read.begin_to_stop()

    def stop_all(self) -> None:
        """Each read finishes its batch; its views stand where it stands."""
        for read in self.runs():
            read.stop()
            read.await_report(REPORT_S)
            for view in list(read.views.values()):
                read.remove(view)
        for held in self._locks.values():
            held.release()
        self._for_all, self._alone, self._locks = {}, {}, {}


def _distance(connector: SourceConnector, one: Offsets, other: Offsets) -> int:
    """Records between two positions, whichever is ahead."""
    return connector.count(one, other) + connector.count(other, one)


def _as_ours(error: Exception) -> ForebayError:
    return error if isinstance(error, ForebayError) else ForebayError(str(error))
