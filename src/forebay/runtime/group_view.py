"""A view that groups, served by a shared read: tasks send groups, and they are merged here.

Its public table follows at most `freshness_s` behind. A small table follows at once: publishing may take a tenth of the time.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from typing import Any

from forebay import column_types as types
from forebay.backoff import Backoff
from forebay.catalog import QueryState
from forebay.program import Grouping, GroupPart, Program
from forebay.runtime.following_tables import LOOK_S
from forebay.runtime.grouping_view import GroupingView
from forebay.runtime.read_answer import BatchAnswer
from forebay.runtime.shared_view import END
from forebay.source.outlets import PART_ROWS, closes_by
from forebay.source.watermarks import Marks
from forebay.views.groups.group_table import GroupTable
from forebay.views.groups.of_program import group_table

log = logging.getLogger("forebay.groups")

SHARE = 10  # publishing takes at most one part of so many of the time, unless freshness asks for more
SLOWER = 1.5  # so much longer than the last one a publish may take, and the table is not older than it may be


def counted(program: Program) -> Program:
    """With a count of rows where there is a window: rows that come too late are counted."""
    if not isinstance(program, Grouping) or program.window is None:
        return program
    return replace(program, parts=(*program.parts, GroupPart(PART_ROWS, "count_all", None, types.BIGINT)))


class GroupView(GroupingView):
    """`keys` are those of its columns that tell its rows apart."""

    def __init__(self, *args: Any, keys: tuple[str, ...], freshness_s: float, **more: Any) -> None:
        super().__init__(*args, **more)
        self._freshness_s = freshness_s
        self.groups: GroupTable = group_table(self.paths, self._grouping, keys, self.table, self.retention_s)
        self._next_publish = 0.0
        self._backoff = Backoff()
        self._changed = True  # a process that was killed may have left something to publish
        self._to_fold = False

    def keep(self, answer: BatchAnswer, query_id: str, batch: int) -> int:
        late = answer.late.get(self.name, 0)
        self._keep_late(answer, query_id, batch)
        if self.groups.holds(query_id, batch):
            return late
        groups = [each for each in answer.groups.get(self.name, ()) if each.num_rows]
        if groups:
            metadata = {END: json.dumps(answer.header.end)}
            self.groups.apply(groups, query_id, batch, metadata, self._closed_us(answer))
            self._changed = self._to_fold = True
        return late

    def _closed_us(self, answer: BatchAnswer) -> int | None:
        """Windows that began no later than this are closed."""
        window, event_time = self._grouping.window, self._event_time
        watermark_ms = Marks.at(answer.header.end).watermark_ms
        if window is None or event_time is None or watermark_ms is None:
            return None
        if not closes_by(self._grouping, event_time.column):
            return None
        marks = answer.key_marks
        if marks is not None and (least_us := marks.least_us(event_time.delay_ms)) is not None:
            watermark_ms = min(watermark_ms, least_us // 1000)  # rows of a slow key are still to come
        return (watermark_ms - self._late.allowed_ms) * 1000 - window.size_us

    # -- for its readers -----------------------------------------------------------------------------

    def publish_at(self) -> float | None:
        """When its table is to be brought up to date, by the monotonic clock; None if there is nothing to publish."""
        if not self._changed or self.state is QueryState.FAILED:
            return None
        return max(self._next_publish, self._backoff.until)

    def publish(self) -> None:
        """What fails is tried again: the groups are safe in their log."""
        began, self._changed = time.monotonic(), False
        try:
            self.groups.publish()
        except Exception as error:
            self._changed = True
            self._failed(error)
        else:
            took = time.monotonic() - began
            self._next_publish = next_publish(began, took, self._freshness_s)
            self._backoff.over()

    def has_to_fold(self) -> bool:
        return (
            self._to_fold and self.state is not QueryState.FAILED and time.monotonic() >= self._backoff.until
        )

    def fold(self) -> None:
        """Files that can be merged become fewer. Batches and publishing go on meanwhile."""
        self._to_fold = False
        try:
            self.groups.tidy()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        wait_s = self._backoff.failed()
        log.warning(
            "the table of view '%s' does not follow its groups; trying again in %.1f s: %r",
            self.name, wait_s, error,
        )  # fmt: skip

    def close(self) -> None:
        """Whoever reads the table from outside finds all of it, unless it cannot be written: then the next start does that."""
        try:
            if self.groups.exists():
                self.groups.publish()
        except Exception as error:
            log.warning("the table of view '%s' is behind its groups: %r", self.name, error)


def next_publish(began: float, took: float, freshness_s: float) -> float:
    """The table is as of `began`. What changed since is in it within `freshness_s`, though the next one takes longer."""
    latest = began + freshness_s - SLOWER * took - LOOK_S
    return min(began + (1 + SHARE) * took, latest)
