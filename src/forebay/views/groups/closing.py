"""A view of groups with EMIT ON WINDOW CLOSE: a group is given out once, when its window closes, and is then forgotten.

The log is the truth, as of every view of groups: a batch is in the view when its commit is in the log, and the commit has the
groups that it closes, too. The public table takes them after that; if a process is killed in between, the next one does it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from forebay.object_path import TablePath
from forebay.source.parquet_file import ParquetFile
from forebay.views.groups.change import GroupChange
from forebay.views.groups.columns import Array
from forebay.views.groups.fold import folded, plan
from forebay.views.groups.given_out import Closing, GivenOut
from forebay.views.groups.layout import ID, SEQUENCE, GroupLayout, arrays, numbers
from forebay.views.groups.log import GroupLog, LogState
from forebay.views.groups.memory import GroupMemory, window_micros
from forebay.views.groups.publishing import Finish
from forebay.views.table import ViewTable

GIVEN_OUT = "forebay.groups.given_out"  # in the public table: the version of the log whose groups it has
_CLOSED = -1  # in the log, instead of the number of a batch: the group is given out
_EMITTED, _KEYS = (
    "emitted",
    "given_out",
)  # in the log's state: the last version that gave groups out, and a file
_VACUUM_S = 60.0
_KEEP_S = 3600.0


class ClosingTable:
    """One view's open groups. One process at a time uses it.

    `window` names the key that a window begins with, `size_us` is its length, `key` the one that has watermarks of its own.
    `rows_part` is the part that counts rows: what comes too late after all is counted by it.
    """

    def __init__(
        self,
        root: TablePath,
        layout: GroupLayout,
        finish: Finish,
        public: ViewTable,
        *,
        window: str,
        size_us: int,
        key: str | None,
        rows_part: str,
    ) -> None:
        self._root = root
        self._layout = layout
        self._finish = finish
        self._public = public
        self._window = layout.keys.get_field_index(window)
        self._size_us = size_us
        self._key = None if key is None else layout.keys.get_field_index(key)
        self._rows_part = rows_part
        self._log = GroupLog(root / "log", layout, _KEEP_S)
        self._memory: GroupMemory | None = None
        self._state = LogState()
        self._given_out = GivenOut()
        self._held: dict[str, int] = {}  # the newest batch of each query
        self._vacuumed = -math.inf
        self._lock = threading.RLock()

    def exists(self) -> bool:
        return self._log.exists()

    def create(self) -> None:
        self._log.create()

    @property
    def state(self) -> LogState:
        """How far the view has come, from the disk."""
        return self._log.state()

    def holds(self, query: str, batch: int) -> bool:
        """Whether this batch is in the view already."""
        return batch <= self._log.newest_batch(query)

    @property
    def closed_us(self) -> int | None:
        """Windows that ended by then are given out, of every key."""
        with self._lock:
            self._opened()
            return self._state.watermark

    def open(self) -> None:
        """Load the groups that are open, and give out what a process that was killed has not."""
        with self._lock:
            self._log.recover()
            self._held = {}
            self._state = self._log.state()
            known = dict(self._state.metadata)
            self._given_out = GivenOut.read(self._root / known[_KEYS]) if known.get(_KEYS) else GivenOut()
            self._publish(known.get(_EMITTED))
            memory = GroupMemory(self._layout)
            runs = self._log.runs()
            for run, flags in zip(runs, self._log.newest(runs), strict=True):
                for batch in self._log.batches(run, flags, self._layout.row_schema.names):
                    is_open = batch.filter(pa.array(numbers(batch.column(SEQUENCE)) != _CLOSED))
                    columns, places = is_open.columns[2:], len(self._layout.keys)
                    memory.append(numbers(is_open.column(ID)), columns[:places], columns[places:])
            self._memory = memory

    def _opened(self) -> GroupMemory:
        if self._memory is None:
            self.open()
        assert self._memory is not None
        return self._memory

    def apply(
        self,
        groups: Sequence[pa.RecordBatch],
        query: str,
        batch: int,
        metadata: Mapping[str, str],
        closing: Closing,
    ) -> int:
        """Merge a batch's partial groups, once, and give out what it closes; durable when this returns.

        Returns how many rows were of windows that are given out: they are in no group.
        """
        with self._lock:
            memory = self._opened()
            if query not in self._held:
                self._held[query] = self._log.newest_batch(query)
            if batch <= self._held[query]:
                return 0
            rows, late = self._without_given_out(memory, self._layout.canonical(groups), closing)
            change = GroupChange.of(memory, self._layout, rows, self._state.groups)
            self._memory = None  # until it is known that the batch is in the log, only the log knows
            change.into(memory)
            slots = self._closed(memory, closing)
            if not (len(change.ids) or len(slots)):
                self._memory = memory
                return late
            self._commit(memory, change, slots, query, batch, metadata, closing)
            memory.forget(slots)
            self._memory = memory.shrunk()
            return late

    def _without_given_out(
        self, memory: GroupMemory, rows: pa.Table, closing: Closing
    ) -> tuple[pa.Table, int]:
        if not rows.num_rows:
            return rows, 0
        keys = arrays(rows, self._layout.keys.names)
        ends = window_micros(keys[self._window]) + self._size_us
        gone = memory.is_forgotten(memory.find(keys, rows.num_rows))
        if self._key is not None:
            gone |= ends <= self._given_out.until(keys[self._key], closing)
        elif self._state.watermark is not None:
            gone |= ends <= self._state.watermark
        if not gone.any():
            return rows, 0
        lost = rows.filter(pa.array(gone)).column(self._rows_part)
        return rows.filter(pa.array(~gone)), int(np.asarray(lost).sum())

    def _closed(self, memory: GroupMemory, closing: Closing) -> Array:
        """The slots of groups that are over."""
        slots = memory.remembered()
        if not len(slots):
            return slots
        ends = window_micros(memory.key(self._window, slots)) + self._size_us
        keys = None if self._key is None else memory.key(self._key, slots)
        return slots[ends <= closing.until(keys, len(slots))]

    def _commit(
        self,
        memory: GroupMemory,
        change: GroupChange,
        slots: Array,
        query: str,
        batch: int,
        metadata: Mapping[str, str],
        closing: Closing,
    ) -> None:
        version = self._log.next_version
        known = dict(self._state.metadata) | dict(metadata)
        before = known.get(_KEYS)
        given_out = self._given_out
        if len(slots):
            known[_EMITTED] = str(version)
            if self._key is not None:
                ends = window_micros(memory.key(self._window, slots)) + self._size_us
                given_out = given_out.after(memory.key(self._key, slots), ends, closing)
                known[_KEYS] = f"given-out-{version}.arrow"
                given_out.write(self._root / known[_KEYS])
        watermark = self._state.watermark
        if self._key is None and closing.watermark_us is not None:
            watermark = closing.watermark_us if watermark is None else max(watermark, closing.watermark_us)
        state = LogState(
            self._state.sequence + 1,
            self._state.groups + int(change.fresh.sum()),
            watermark,
            query,
            batch,
            self._state.horizon,
            tuple(sorted(known.items())),
        )
        self._log.append(self._rows(memory, change, slots, state.sequence), state)
        self._state, self._given_out, self._held[query] = state, given_out, batch
        self._publish(known.get(_EMITTED) if len(slots) else None)
        if before is not None and before != known.get(_KEYS):
            (self._root / before).unlink(missing_ok=True)

    def _rows(self, memory: GroupMemory, change: GroupChange, slots: Array, sequence: int) -> pa.Table:
        """As the log has it: what has changed and is open, and what is closed."""
        closed_ids = memory.ids(slots)
        changed = change.table(self._layout, sequence)
        changed = changed.filter(pa.array(~np.isin(change.ids, closed_ids)))
        columns = memory.rows(slots).columns
        nulls = [pa.nulls(len(slots), part.type) for part in self._layout.parts]
        closed = [closed_ids, np.full(len(slots), _CLOSED), *columns, np.zeros(len(slots), np.bool_), *nulls]
        return pa.concat_tables([changed, pa.table(closed, schema=self._layout.log_schema)])

    def _publish(self, version: str | None) -> None:
        """The public table takes the groups that a version of the log gave out, once."""
        if version is None:
            return
        if self._public.holds(GIVEN_OUT, int(version)):
            self._public.persist()  # whoever wrote it may have been killed before that
            return
        rows = self._log.changes(int(version))
        rows = rows.filter(pa.array(numbers(rows.column(SEQUENCE)) == _CLOSED))
        names = [*self._layout.key_names, *self._layout.part_names]
        finished = self._finish(rows.select(names).rename_columns(self._layout.schema.names))
        file = ParquetFile(self._public.path, "part")
        for batch in finished.to_batches():
            file.add(batch)
        written = file.close()
        if written is not None:
            ends = {key: text for key, text in self._log.state().metadata if key not in (_EMITTED, _KEYS)}
            self._public.add([written], GIVEN_OUT, int(version), ends)

    def tidy(self) -> bool:
        """Fold runs into one where that is due; groups that are given out are left out of the oldest."""
        with self._lock:
            self._opened()
            runs = plan(self._log.current)
            if runs:
                whole = runs[0] == self._log.current[0]
                drop = _CLOSED if whole else None
                new = folded(self._log, runs, self._layout.row_schema, without=drop)
                self._log.replace(runs, new, self._state)
            if time.monotonic() - self._vacuumed >= _VACUUM_S:
                self._vacuumed = time.monotonic()
                horizon = self._log.vacuum(self._state.horizon)
                self._state = LogState(**{**vars(self._state), "horizon": horizon})
            return bool(runs)
