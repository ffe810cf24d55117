"""The changes of a view that groups, for subscribers: a batch a version."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from forebay.errors import ChangesGoneError
from forebay.views.changes import CHANGE_TYPE, poll_s
from forebay.views.groups.group_table import GroupTable


class GroupChanges:
    """What each batch made of the groups. A new subscriber gets them all if they are kept, else the view as it is now."""

    def __init__(self, name: str, groups: GroupTable, view: str) -> None:
        self.name = name
        self.view = view
        self._groups = groups

    @property
    def poll_s(self) -> float:
        return poll_s(self._groups.place)

    def newest(self) -> int:
        return self._groups.version()

    def before_all(self) -> int:
        return -1

    def after(self, position: int) -> tuple[int, Iterator[pa.RecordBatch]]:
        try:
            return position + 1, self._batches(self._groups.changes(position + 1))
        except ChangesGoneError:
            if position >= 0:
                raise
        return self._whole()

    def _whole(self) -> tuple[int, Iterator[pa.RecordBatch]]:
        while True:
            version = self._groups.version()
            rows = self._groups.rows()
            if self._groups.version() == version:
                kinds = pa.array(["insert"] * rows.num_rows, pa.string())
                return version, self._batches(rows.append_column(pa.field(CHANGE_TYPE, pa.string()), kinds))

    def _batches(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        return (batch for batch in rows.to_batches() if batch.num_rows)
