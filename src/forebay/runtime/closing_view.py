"""A view with EMIT ON WINDOW CLOSE that a shared read serves: each window is given out once, when it closes.

It closes by the watermark that its batch was planned with, or, where keys have watermarks of their own, by the mark of its key
when the batch began. Both are the same when a batch is repeated. So a window is given out a batch after the one that moved
the watermark past it; a watermark that moves alone makes a batch.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from forebay.runtime.grouping_view import GroupingView
from forebay.runtime.read_answer import BatchAnswer
from forebay.runtime.shared_view import END
from forebay.source.key_marks import KEY
from forebay.source.outlets import PART_ROWS
from forebay.source.serving import ServedView
from forebay.source.watermarks import Decision, Marks
from forebay.views.groups.closing import ClosingTable
from forebay.views.groups.given_out import Closing, times_of
from forebay.views.groups.of_program import closing_table

TIDY_EVERY = 16  # batches


class ClosingView(GroupingView):
    """Its table is one that is only ever added to."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        key = self._event_time.key if self._event_time else None
        self.groups: ClosingTable = closing_table(self.paths, self._grouping, self.table, key, PART_ROWS)
        self._watermark_ms: float = -math.inf  # what its last batch was planned with
        self._settled = False  # its last batch read nothing: nothing more closes by what was read before
        self._batches = 0

    def served(self) -> ServedView:
        late = replace(self._late, once=True, closed_us=self.groups.closed_us)
        return replace(super().served(), late=late.to_json(), closes=True)

    def keep(self, answer: BatchAnswer, query_id: str, batch: int) -> int:
        late = answer.late.get(self.name, 0)
        self._keep_late(answer, query_id, batch)
        groups = [each for each in answer.groups.get(self.name, ()) if each.num_rows]
        metadata = {END: json.dumps(answer.header.end)}
        late += self.groups.apply(groups, query_id, batch, metadata, self._closing(answer))
        self._watermark_ms = _or_never(Marks.at(answer.header.end).watermark_ms)
        self._settled = not answer.read().records
        self._batches += 1
        if self._batches % TIDY_EVERY == 0:
            self.groups.tidy()
        return late

    def _closing(self, answer: BatchAnswer) -> Closing:
        watermark_ms = Marks.at(answer.header.end).watermark_ms
        allowed_us = self._late.allowed_ms * 1000
        watermark_us = None if watermark_ms is None else watermark_ms * 1000 - allowed_us
        if answer.key_marks is None or self._event_time is None:
            return Closing(watermark_us)
        delay_us = self._event_time.delay_ms * 1000 + allowed_us
        return Closing(watermark_us, answer.key_marks, delay_us, times_of(answer.keys, KEY))

    # -- for those who wait until windows are closed ---------------------------------------------------

    def due(self) -> float | None:
        """The watermark that follows from what was read so far, in milliseconds; None where it is not decided yet."""
        decision = None if self.decision is None else Decision.read(self.decision)
        position = self.progress.positions.get(self.source)
        if decision is None or position is None:
            return None
        if not self.connectors[self.source].reached(decision.position, position):
            return None  # it was decided before this was read
        return _or_never(decision.watermark_ms)

    def has_closed(self, due_ms: float) -> bool:
        """Whether all windows are closed that end before this watermark."""
        return self._settled and self._watermark_ms >= due_ms


def _or_never(watermark_ms: int | None) -> float:
    return -math.inf if watermark_ms is None else watermark_ms
