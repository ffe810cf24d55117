"""A view that groups, served by a shared read: tasks send groups, and they are merged here.

Its public table follows at most `freshness_s` behind. A small table follows at once: publishing may take a tenth of the time.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forebay import column_types as types
from forebay import threads
from forebay.backoff import Backoff
from forebay.catalog import QueryState
from forebay.program import Grouping, GroupPart, Program, output_schema
from forebay.runtime.read_answer import BatchAnswer
from forebay.runtime.shared_view import END, SharedView
from forebay.source.stream import EventTime
from forebay.views.groups.of_program import group_table

log = logging.getLogger("forebay.groups")

NEWEST = "forebay.newest"  # in the log's commits: the newest event time that was seen
_ROWS = "_part_rows"
LOOK_S = 0.1
SHARE = 10  # publishing takes at most one part of so many of the time, unless freshness asks for more


def counted(program: Program) -> Program:
    """With a count of rows where there is a window: rows that come too late are counted."""
    if not isinstance(program, Grouping) or program.window is None:
        return program
    return replace(program, parts=(*program.parts, GroupPart(_ROWS, "count_all", None, types.BIGINT)))


class Publishing:
    """A thread of a session: the tables of its views that group follow their groups."""

    def __init__(self, views: Callable[[], Iterable[object]]) -> None:
        self._views = views
        self._closed = threading.Event()
        self._thread = threads.keep_running("forebay-publish", self._run, self._closed)

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            for view in self._views():
                if isinstance(view, GroupView) and view.state is not QueryState.FAILED:
                    view.look_after()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()


class GroupView(SharedView):
    """`keys` are those of its columns that tell its rows apart, `event_time` that of the source."""

    def __init__(
        self,
        *args: Any,
        keys: tuple[str, ...],
        event_time: EventTime | None,
        freshness_s: float,
    ) -> None:
        super().__init__(*args)
        assert isinstance(self._program, Grouping)
        self._grouping = self._program
        self._event_time = event_time
        self._freshness_s = freshness_s
        self.groups = group_table(self.paths, self._grouping, keys, self.table)
        self._newest: int | None = None
        self._next_publish = 0.0
        self._backoff = Backoff()
        self._changed = True  # a process that was killed may have left something to publish
        self._to_fold = False

    def prepare(self, *, is_new: bool) -> None:
        self._check_there(is_new=is_new, exists=self.table.exists() and self.groups.exists())
        if not self.table.exists():
            self.table.create(output_schema(self._program))
        if not self.groups.exists():
            self.groups.create()
        self.groups.open()
        self._newest = json.loads(dict(self.groups.state.metadata).get(NEWEST, "null"))

    def replan(self) -> None:
        """Nothing: what its groups are made of is settled."""

    def last_batch(self, query_id: str) -> int | None:
        state = self.groups.state
        return state.batch if state.query == query_id else None

    def keep(self, answer: BatchAnswer, query_id: str, batch: int) -> int:
        if self.groups.holds(query_id, batch):
            return 0
        groups = [each for each in answer.groups.get(self.name, ()) if each.num_rows]
        closed = self._closed_us()
        newest = answer.newest_us()
        late = self._late(groups, closed)
        self._newest = max((at for at in (self._newest, newest) if at is not None), default=None)
        if groups:
            metadata = {END: json.dumps(answer.header.end), NEWEST: json.dumps(self._newest)}
            self.groups.apply(groups, query_id, batch, metadata, closed)
            self._changed = self._to_fold = True
        return late

    def _closed_us(self) -> int | None:
        """Windows that began no later than this are closed."""
        window, event_time = self._grouping.window, self._event_time
        if window is None or event_time is None or self._newest is None:
            return None
        if window.time.operator != "column" or window.time.value != event_time.column:
            return None
        return self._newest - event_time.delay_ms * 1000 - window.size_us

    def _late(self, groups: list[pa.RecordBatch], closed: int | None) -> int:
        """Rows of windows that are closed."""
        window = self._grouping.window
        if window is None or closed is None:
            return 0
        total = 0
        for batch in groups:
            begun = batch.column(window.key).cast(pa.int64())
            late = batch.column(_ROWS).filter(pc.less_equal(begun, closed))
            total += pc.sum(late).as_py() or 0
        return total

    # -- for its readers -----------------------------------------------------------------------------

    def look_after(self) -> None:
        """Now and then: publish what is due, fold what is due. What fails is tried again: the groups are safe in their log."""
        if time.monotonic() < max(self._next_publish, self._backoff.until):
            return
        try:
            self._publish_and_fold()
        except Exception as error:
            wait_s = self._backoff.failed()
            log.warning(
                "the table of view '%s' does not follow its groups; trying again in %.1f s: %r",
                self.name, wait_s, error,
            )  # fmt: skip
        else:
            self._backoff.over()

    def _publish_and_fold(self) -> None:
        if self._changed:
            began, self._changed = time.monotonic(), False
            try:
                self.groups.publish()
            except BaseException:
                self._changed = True
                raise
            took = time.monotonic() - began
            self._next_publish = time.monotonic() + min(SHARE * took, self._freshness_s)
        if self._to_fold:
            self._to_fold = False
            self.groups.tidy()

    def close(self) -> None:
        """Whoever reads the table from outside finds all of it, unless it cannot be written: then the next start does that."""
        try:
            if self.groups.exists():
                self.groups.publish()
        except Exception as error:
            log.warning("the table of view '%s' is behind its groups: %r", self.name, error)
