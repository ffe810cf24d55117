"""A view whose table all members of a shared group append to."""

from __future__ import annotations

import json
from typing import Any

from forebay.connectors.contract import GroupShare, PartitionOffsets
from forebay.program import output_schema
from forebay.runtime.read_answer import BatchAnswer
from forebay.runtime.shared_view import END, RowView
from forebay.views.common_table import CommonTable


class CommonRowView(RowView):
    """Its rows are of all members; its position, and the batches that it counts, are of this home alone."""

    def __init__(self, *what: Any, query: str) -> None:
        super().__init__(*what)
        self._query = query
        self.common = self._opened()
        self.table = self.common

    def _opened(self) -> CommonTable:
        assert self.paths.member is not None
        return CommonTable(self.paths.table, self.paths.member, self.paths.root, self.retention_s)

    @property
    def _share(self) -> GroupShare:
        share = self.connectors[self.source].share
        assert share is not None
        return share

    def prepare(self, *, is_new: bool) -> None:
        self._check_there(is_new=is_new, exists=self.common.exists())
        schema = output_schema(self._program)
        if is_new:
            self.common.create_or_join(schema, self.connectors[self.source].group or "", self._query)
        else:
            self.common.widen(schema)

    def has_batches(self) -> bool:
        return self.common.has_commits()

    def added(self, at: PartitionOffsets) -> PartitionOffsets:
        taken = self._opened().taken()  # whoever keeps a batch at this time has an object of its own
        ids = self._share.topic_ids(self.position)
        return {
            (topic, number): taken.reached(topic, number, offset, ids)
            for (topic, number), offset in at.items()
        }

    def keep(self, answer: BatchAnswer, query_id: str, batch: int) -> int:
        """OffsetsTakenError if others have added a part of it."""
        files, spans = answer.files.get(self.name, ()), answer.spans_of(self.name)
        if self.common.holds(query_id, batch):
            self.common.persist()
        elif files:
            end = answer.header.end
            self.common.add_once(
                files, query_id, batch, {END: json.dumps(end)}, spans, self._share.topic_ids(end)
            )
        else:
            self.common.pass_over(spans)
        return 0


def row_view(*what: Any, query: str) -> RowView:
    """A view that selects, over the table that its paths say."""
    view = RowView(*what)
    return view if view.paths.member is None else CommonRowView(*what, query=query)
