"""What views that group have in common: late rows that go to a table of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from typing import Any

from forebay.connectors.contract import Offsets
from forebay.program import Grouping, output_schema
from forebay.runtime.read_answer import BatchAnswer
from forebay.runtime.shared_view import END, SharedView, end_in
from forebay.source.late_rows import LateTarget
from forebay.source.serving import ServedView
from forebay.source.stream import EventTime
from forebay.views.groups.closing import ClosingTable
from forebay.views.groups.group_table import GroupTable
from forebay.views.table import ViewTable


class GroupingView(SharedView):
    """`event_time` is that of the source, `late` where rows go that come too late. What is kept of groups is in `groups`."""

    groups: GroupTable | ClosingTable

    def __init__(self, *args: Any, event_time: EventTime | None, late: LateTarget) -> None:
        super().__init__(*args)
        assert isinstance(self._program, Grouping)
        self._grouping = self._program
        self._event_time = event_time
        self._late = late
        self.late_table = None if late.table is None else ViewTable(self.paths.late, self.retention_s)

    def prepare(self, *, is_new: bool) -> None:
        self._check_there(is_new=is_new, exists=self.table.exists() and self.groups.exists())
        if not self.table.exists():
            self.table.create(output_schema(self._program))
        if self.late_table is not None and not self.late_table.exists():
            self.late_table.create(self.connectors[self.source].full_schema())
        if not self.groups.exists():
            self.groups.create()
        self.groups.open()

    def replan(self) -> None:
        """What its groups are made of is settled. Late rows have all columns of the source."""
        if self.late_table is not None:
            self.late_table.widen(self.connectors[self.source].full_schema())

    def served(self) -> ServedView:
        return replace(super().served(), late=self._late.to_json())

    def tables(self) -> list[ViewTable]:
        return [self.table] if self.late_table is None else [self.table, self.late_table]

    def last_batch(self, query_id: str) -> int | None:
        state = self.groups.state
        return state.batch if state.query == query_id else None

    def recorded_end(self) -> Offsets | None:
        """A batch of late rows alone is in their table, and changed no group."""
        found = [end_in(dict(self.groups.state.metadata))]
        if self.late_table is not None:
            found.append(end_in(self.late_table.newest_metadata()))
        ends = [each for each in found if each is not None]
        reached = self.connectors[self.source].reached
        return reduce(lambda one, other: one if reached(one, other) else other, ends) if ends else None

    def _keep_late(self, answer: BatchAnswer, query_id: str, batch: int) -> None:
        """Before the groups: a batch that these have is one that the late rows have, too."""
        if self.late_table is None:
            return
        if self.late_table.holds(query_id, batch):
            self.late_table.persist()  # whoever wrote it may have been killed before that
        else:
            files = answer.late_files.get(self.name, ())
            self.late_table.add(files, query_id, batch, {END: json.dumps(answer.header.end)})
