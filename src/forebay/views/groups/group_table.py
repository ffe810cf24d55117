"""A view of groups: batches of partial groups go in, and rows, changes and a Delta table for everybody come out.

The log is the truth: a batch is in the view when its commit is in the log. What is in memory, and the public table, can
be made from it at any time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from forebay.object_path import TablePath
from forebay.views.changes import CHANGE_TYPE
from forebay.views.groups.change import GroupChange
from forebay.views.groups.columns import Array
from forebay.views.groups.fold import folded, plan
from forebay.views.groups.layout import FRESH, ID, SEQUENCE, GroupLayout, arrays, numbers
from forebay.views.groups.log import GroupLog, LogState, Run
from forebay.views.groups.memory import GroupMemory, window_micros
from forebay.views.groups.publishing import Finish, Publisher, Shown
from forebay.views.table import ViewTable

_VACUUM_S = 60.0  # to look through the files takes longer than a batch
KEEP_S = 3600.0  # for so long a subscriber can be behind, and a SELECT in another process may take


@dataclass(frozen=True)
class AppliedBatch:
    """What became of a batch's groups."""

    changed: int = 0
    version: int | None = None  # of the log; None if the batch was there already, or had nothing to say


class GroupTable:
    """One view's groups.

    One process at a time writes: `open`, `apply`, `publish` and `tidy`, from any of its threads. What only reads the disk
    (`rows`, `changes`, `version`, `state`, `holds`, `staleness_s`) may be called in any process, and needs no `open`.

    `finish` makes the view's columns of keys and parts, row by row. `keys` are those of the view's columns that tell
    its rows apart. What was replaced is kept for `keep_s`, changes for `retention_s` if that is longer, as far as they are few
    enough. `shown`, where there is a HAVING, says which groups are rows of the view.
    """

    def __init__(
        self,
        root: TablePath,
        layout: GroupLayout,
        finish: Finish,
        public: ViewTable,
        keys: tuple[str, ...],
        *,
        keep_s: float = KEEP_S,
        retention_s: float = 0.0,
        shown: Shown | None = None,
    ) -> None:
        self._layout = layout
        self._finish = finish
        self._shown = shown
        self._log = GroupLog(root / "log", layout, keep_s, retention_s)
        self._publisher = Publisher(public, keys, finish, root / "published", keep_s, shown)
        self._memory: GroupMemory | None = None
        self._state = LogState()
        self._held: dict[str, int] = {}  # the newest batch of each query
        self._behind_since_ms: int | None = None  # of what is being published, or is not published
        self._changed_meanwhile_ms: int | None = None  # the first change while it is published
        self._horizon = -1
        self._vacuumed = -math.inf
        self._keep_s = keep_s
        self._lock = threading.RLock()  # memory, state, and who commits to the log
        self._tidying = threading.Lock()
        self._publishing = threading.Lock()

    @property
    def place(self) -> TablePath:
        """Where its log is."""
        return self._log.path

    def exists(self) -> bool:
        return self._log.exists()

    def create(self) -> None:
        """Make an empty log. The public table is made by who knows the view's columns."""
        self._log.create()

    def open(self) -> None:
        """Load the groups that can still change, and clear up after a process that was killed.

        Takes some seconds for ten million groups.
        """
        with self._lock:
            self._log.recover()
            self._state = self._log.state()
            self._horizon = self._state.horizon
            self._held = {}
            published = self._publisher.sequence()
            self._behind_since_ms = self._state.behind_since_ms if published < self._state.sequence else None
            self._memory = self._loaded(self._state, published)

    def _loaded(self, state: LogState, published: int) -> GroupMemory:
        memory = GroupMemory(self._layout)
        runs = self._log.runs()
        keep = self._log.newest(runs)
        if self._layout.window_place is None:
            memory.reserve(state.groups)
        for run, flags in zip(runs, keep, strict=True):
            for batch in self._log.batches(run, flags, self._layout.row_schema.names):
                self._load(memory, batch, state.watermark, published)
        if state.watermark is not None:
            memory.close(state.watermark)
        return memory

    def _load(
        self, memory: GroupMemory, batch: pa.RecordBatch, watermark: int | None, published: int
    ) -> None:
        fresh = numbers(batch.column(SEQUENCE)) > published
        wanted = fresh | ~self._late(batch.columns[2 : 2 + len(self._layout.keys)], watermark, batch.num_rows)
        if not wanted.all():
            batch, fresh = batch.filter(pa.array(wanted)), fresh[wanted]
        first = len(memory)
        columns = batch.columns[2:]
        places = len(self._layout.keys)
        memory.append(numbers(batch.column(ID)), columns[:places], columns[places:])
        memory.mark_unpublished(np.flatnonzero(fresh) + first)

    def _late(self, keys: Sequence[pa.Array], watermark: int | None, rows: int) -> Array:
        place = self._layout.window_place
        if place is None or watermark is None:
            return np.zeros(rows, np.bool_)
        known = np.asarray(keys[place].is_valid())
        return known & (window_micros(keys[place]) <= watermark)

    @property
    def state(self) -> LogState:
        """How far the view has come, from the disk: in any process."""
        return self._log.state()

    @property
    def open_groups(self) -> int:
        """Groups in memory."""
        return len(self._opened())

    def _opened(self) -> GroupMemory:
        with self._lock:
            if self._memory is None:
                self.open()
            assert self._memory is not None
            return self._memory

    def holds(self, query: str, batch: int) -> bool:
        """Whether this batch is in the view already."""
        return batch <= self._log.newest_batch(query)

    def apply(
        self,
        groups: Sequence[pa.RecordBatch],
        query: str,
        batch: int,
        metadata: Mapping[str, str] | None = None,
        watermark_us: int | None = None,
    ) -> AppliedBatch:
        """Merge a batch's partial groups, once; durable when this returns. SumOverflowError before anything is written.

        Groups of windows up to `watermark_us` leave the memory, unless the batch has rows of them: who has judged that these
        are not late may be right, since a partition may come back. They are loaded again then.
        """
        with self._lock:
            memory = self._opened()
            if query not in self._held:
                self._held[query] = self._log.newest_batch(query)
            if batch <= self._held[query]:
                return AppliedBatch()
            rows = self._layout.canonical(groups)
            watermark = self._watermark(rows, watermark_us)
            known = self._state.watermark
            if known is not None and watermark is not None and watermark < known:
                self._memory = None
                memory = self._loaded(replace(self._state, watermark=watermark), self._publisher.sequence())
            change = GroupChange.of(memory, self._layout, rows, self._state.groups)
            if not (len(change.ids) or metadata):
                return AppliedBatch()
            self._note_change(any_=bool(len(change.ids)))
            state = LogState(
                self._state.sequence + bool(len(change.ids)),
                self._state.groups + int(change.fresh.sum()),
                watermark,
                query,
                batch,
                self._horizon,
                tuple(sorted((metadata or {}).items())),
                self._behind_since_ms,
            )
            self._memory = None  # until it is known that the batch is in the log, only the log knows
            version = self._log.append(change.table(self._layout, state.sequence), state)
            memory.mark_unpublished(change.into(memory))
            if watermark is not None:
                memory.close(watermark)
            self._memory, self._state, self._held[query] = memory.shrunk(), state, batch
            return AppliedBatch(len(change.ids), version)

    def _note_change(self, *, any_: bool) -> None:
        if any_:
            now_ms = int(time.time() * 1000)
            self._behind_since_ms = self._behind_since_ms or now_ms
            self._changed_meanwhile_ms = self._changed_meanwhile_ms or now_ms

    def _watermark(self, rows: pa.Table, watermark_us: int | None) -> int | None:
        """What may leave the memory after these rows: never a window that they are of."""
        known = [each for each in (self._state.watermark, watermark_us) if each is not None]
        place = self._layout.window_place
        if not known or place is None or not rows.num_rows:
            return max(known, default=None)
        [windows] = arrays(rows, [self._layout.keys.names[place]])
        begun = window_micros(windows.drop_null())
        return min(max(known), int(begun.min()) - 1) if len(begun) else max(known)

    def publish(self) -> bool:
        """Bring the public table up to date; False if nothing is new."""
        with self._publishing:
            with self._lock:
                memory, state = self._opened(), self._state
                slots = memory.unpublished()
                if not len(slots):
                    return False
                rows, ids, runs = memory.rows(slots), memory.ids(slots), self._log.current
                memory.mark_unpublished(slots, False)
                self._changed_meanwhile_ms = None
            try:
                self._publisher.publish(rows, ids, state, lambda: self._whole(runs))
            except BaseException:
                with self._lock:
                    self._memory = None  # what is not published is found again when it is loaded
                raise
            with self._lock:
                self._behind_since_ms = self._changed_meanwhile_ms
            return True

    def _whole(self, runs: Sequence[Run]) -> Iterator[tuple[pa.Table, Array]]:
        """Rows and numbers of all groups, a piece at a time."""
        names = [ID, *self._layout.key_names, *self._layout.part_names]
        for run, flags in zip(runs, self._log.newest(runs), strict=True):
            for batch in self._log.batches(run, flags, names):
                rows = pa.Table.from_batches([batch]).drop_columns([ID])
                yield rows.rename_columns(self._layout.schema.names), numbers(batch.column(ID))

    def staleness_s(self) -> float:
        """How old the public table may be, by what is on the disk: 0 if it has all."""
        return self._publisher.staleness_s(self.state)

    @property
    def published_at(self) -> float:
        """When the public table was last brought up to date, in seconds of the epoch."""
        return self._publisher.published_at()

    def version(self) -> int:
        """The newest version of the log, in any process."""
        return self._log.version()

    def rows(self) -> pa.Table:
        """The view as it is now, from the disk: in any process."""
        runs = self._log.runs()
        names = [*self._layout.key_names, *self._layout.part_names]
        keep = self._log.newest(runs)
        found = [self._log.read(run, flags, names) for run, flags in zip(runs, keep, strict=True)]
        schema = pa.schema([self._layout.log_schema.field(name) for name in names])
        whole = pa.concat_tables(found) if found else schema.empty_table()
        named = whole.rename_columns(self._layout.schema.names)
        return self._finish(named if self._shown is None else named.filter(pa.array(self._shown(named))))

    def changes(self, version: int) -> pa.Table:
        """What a version of the log changed: the view's columns and `_change_type`. In any process.

        Empty for a version that only folded. ChangesGoneError if it is not kept any more.
        """
        rows = self._log.changes(version)
        before, after = self._named(rows, self._layout.old_names), self._named(rows, self._layout.part_names)
        there = ~np.asarray(rows.column(FRESH))
        is_shown = np.ones(rows.num_rows, np.bool_)
        if self._shown is not None:
            there, is_shown = there & self._shown(before), self._shown(after)
        kind = pa.field(CHANGE_TYPE, pa.string())
        gone = pa.array(np.where(is_shown[there], "update_preimage", "delete"), pa.string())
        come = pa.array(np.where(there[is_shown], "update_postimage", "insert"), pa.string())
        return pa.concat_tables([
            self._finish(before.filter(pa.array(there))).append_column(kind, gone),
            self._finish(after.filter(pa.array(is_shown))).append_column(kind, come),
        ])  # fmt: skip

    def _named(self, rows: pa.Table, parts: list[str]) -> pa.Table:
        return rows.select([*self._layout.key_names, *parts]).rename_columns(self._layout.schema.names)

    def tidy(self) -> bool:
        """Fold runs into one where that is due, and remove files that nobody needs; whether runs were folded.

        Batches can be applied meanwhile.
        """
        with self._tidying:
            with self._lock:
                self._opened()
                runs = plan(self._log.current)
            if runs:
                new = folded(self._log, runs, self._layout.row_schema)
                with self._lock:
                    self._opened()
                    self._log.replace(runs, new, self._state)
            vacuum = time.monotonic() - self._vacuumed >= min(_VACUUM_S, self._keep_s / 2)
            if vacuum:
                self._horizon = self._log.vacuum(self._state.horizon)
                self._vacuumed = time.monotonic()
        with self._publishing:
            return self._publisher.tidy(vacuum=vacuum) or bool(runs)
