"""The groups that can still change, in the driver's memory: what is known of them, by slot."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.views.groups.columns import Array, Growing, column_of, is_fixed, lanes
from forebay.views.groups.index import SlotIndex, hashes
from forebay.views.groups.layout import GroupLayout

_SHRINK_FROM = 10_000  # closed groups: below, making all anew costs more than they do


class GroupMemory:
    """Keys, parts and numbers of groups. Nothing here knows of the disk."""

    def __init__(self, layout: GroupLayout) -> None:
        self._layout = layout
        self._index = SlotIndex()
        self._keys = [column_of(field.type, changes=False) for field in layout.keys]
        self._parts = [column_of(part.type, changes=True) for part in layout.parts]
        self._ids = Growing(np.int64)
        self._unpublished = Growing(np.bool_)
        self._closed = Growing(np.bool_)
        self._closed_count = 0  # since all was made anew
        self._by_end: dict[int, list[Array]] = {}
        self._ends: list[int] = []  # a heap of the ends that have groups

    def __len__(self) -> int:
        return len(self._index)

    def reserve(self, count: int) -> None:
        self._index.reserve(count)
        for column in (*self._keys, *self._parts):
            column.reserve(count)
        for values in (self._ids, self._unpublished, self._closed):
            values.reserve(count)

    def find(self, keys: Sequence[pa.Array], rows: int) -> Array:
        """The slot of each row, -1 for a group that is not there."""

        def same(some: Array, slots: Array) -> Array:
            found = np.ones(len(some), np.bool_)
            for values, column in zip(keys, self._keys, strict=True):
                found &= _equal(values.take(pa.array(some)), column.take(slots))
            return found

        return self._index.find(hashes(keys, rows), same)

    def append(self, ids: Array, keys: Sequence[pa.Array], parts: Sequence[pa.Array]) -> None:
        """Groups that are not there yet get the next slots."""
        first = len(self)
        self._index.append(hashes(keys, len(ids)))
        for values, column in zip((*keys, *parts), (*self._keys, *self._parts), strict=True):
            column.append(values)
        self._ids.append(ids)
        for flags in (self._unpublished, self._closed):
            flags.append(np.zeros(len(ids), np.bool_))
        if (place := self._layout.window_place) is not None:
            self._remember_ends(keys[place], first)

    def _remember_ends(self, values: pa.Array, first: int) -> None:
        known = np.flatnonzero(np.asarray(values.is_valid()))
        micros = window_micros(values)[known]
        for end in np.unique(micros).tolist():
            if end not in self._by_end:
                self._by_end[end] = []
                heapq.heappush(self._ends, end)
            self._by_end[end].append(known[micros == end] + first)

    def put(self, slots: Array, parts: Sequence[pa.Array]) -> None:
        for values, column in zip(parts, self._parts, strict=True):
            column.put(slots, values)

    def ids(self, slots: Array) -> Array:
        return self._ids.all[slots]

    def parts(self, slots: Array) -> list[pa.Array]:
        return [column.take(slots) for column in self._parts]

    def rows(self, slots: Array) -> pa.Table:
        """Keys and parts, as `finish` takes them."""
        columns = [column.take(slots) for column in (*self._keys, *self._parts)]
        return pa.table(columns, schema=self._layout.schema) if columns else pa.table({"": slots}).select([])

    def mark_unpublished(self, slots: Array, value: bool = True) -> None:
        self._unpublished.all[slots] = value

    def unpublished(self) -> Array:
        """Of all slots, those whose rows outsiders do not have."""
        return np.flatnonzero(self._unpublished.all)

    def close(self, watermark: int) -> None:
        """Groups whose window has ended take no rows any more."""
        while self._ends and self._ends[0] <= watermark:
            for slots in self._by_end.pop(heapq.heappop(self._ends)):
                self._closed.all[slots] = True
                self._closed_count += len(slots)

    def key(self, place: int, slots: Array) -> pa.Array:
        """One of the keys of these groups."""
        return self._keys[place].take(slots)

    def forget(self, slots: Array) -> None:
        """Groups that are over, whatever their window. Until the memory is shrunk, it is known that they were there."""
        self._closed.all[slots] = True
        self._closed_count += len(slots)

    def is_forgotten(self, slots: Array) -> Array:
        """Which of these are such groups; -1 is none."""
        return (
            np.where(slots < 0, False, self._closed.all[slots]) if len(self) else np.zeros(len(slots), bool)
        )

    def remembered(self) -> Array:
        """The slots of all others."""
        return np.flatnonzero(~self._closed.all)

    def shrunk(self) -> GroupMemory:
        """This memory, or one without the groups that are closed and published, once so many have closed that it pays."""
        if self._closed_count < _SHRINK_FROM or 2 * self._closed_count < len(self):
            return self
        keep = np.flatnonzero(~self._closed.all | self._unpublished.all)
        found = GroupMemory(self._layout)
        found.reserve(len(keep))
        found.append(self.ids(keep), [c.take(keep) for c in self._keys], self.parts(keep))
        found.mark_unpublished(np.flatnonzero(self._unpublished.all[keep]))
        if self._layout.window_place is not None:
            found._close_slots(np.flatnonzero(self._closed.all[keep]))
        return found

    def _close_slots(self, slots: Array) -> None:
        self._closed.all[slots] = True
        for end in [end for end, found in self._by_end.items() if self._closed.all[found[0]].all()]:
            del self._by_end[end]
        self._ends = sorted(self._by_end)


def window_micros(values: pa.Array) -> Array:
    """Ends of windows in microseconds; 0 where it is NULL."""
    kind = pa.timestamp("us", getattr(values.type, "tz", None))
    return lanes(values.cast(kind))[0].view(np.int64)


def _equal(left: pa.Array, right: pa.Array) -> Array:
    if is_fixed(left.type):
        (bits, valid), (other_bits, other_valid) = lanes(left), lanes(right)
        same = bits == other_bits
        return np.asarray((same.all(axis=1) if same.ndim == 2 else same) & (valid == other_valid))
    both = pc.and_(left.is_null(), right.is_null())
    return np.asarray(pc.fill_null(pc.or_kleene(both, pc.equal(left, right)), False))
