"""What a batch does to the groups that it has rows of, worked out before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.views.groups.columns import Array
from forebay.views.groups.layout import GroupLayout, arrays
from forebay.views.groups.memory import GroupMemory
from forebay.views.groups.merging import merged, numbered


@dataclass(frozen=True)
class GroupChange:
    """What a batch makes of the groups it has rows of: one row a group that changes, those that are there first."""

    ids: Array
    slots: Array  # of those that are there
    fresh: Array
    keys: list[pa.Array]
    new: list[pa.Array]
    old: list[pa.Array]

    @staticmethod
    def of(memory: GroupMemory, layout: GroupLayout, rows: pa.Table, next_id: int) -> GroupChange:
        """Nothing is changed yet."""
        keys, parts = arrays(rows, layout.keys.names), arrays(rows, [part.name for part in layout.parts])
        group, first = numbered(keys, rows.num_rows)
        keys = [values.take(pa.array(first)) for values in keys]
        slots = memory.find(keys, len(first))
        # Groups that are there in the order of their slots, then the new ones: so numbers go up, and pack well.
        order = np.lexsort((slots, slots < 0))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        group, slots, keys = place[group], slots[order], [values.take(pa.array(order)) for values in keys]
        there = int((slots >= 0).sum())
        slots, count = slots[:there], len(slots)
        old = memory.parts(slots)
        everything = np.concatenate([np.arange(there), group])
        new = [
            merged(part, pa.concat_arrays([before, more]), everything, count)
            for part, before, more in zip(layout.parts, old, parts, strict=True)
        ]
        ids = np.concatenate([memory.ids(slots), next_id + np.arange(count - there)])
        fresh = np.arange(count) >= there
        old = [pa.concat_arrays([before, pa.nulls(count - there, before.type)]) for before in old]
        change = GroupChange(ids, slots, fresh, keys, new, old)
        return change._without(_unchanged(new, old, count) & ~fresh)

    def _without(self, rows: Array) -> GroupChange:
        if not rows.any():
            return self
        keep = pa.array(~rows)
        chosen = [[values.filter(keep) for values in group] for group in (self.keys, self.new, self.old)]
        slots = self.slots[~rows[: len(self.slots)]]
        return GroupChange(self.ids[~rows], slots, self.fresh[~rows], *chosen)

    def table(self, layout: GroupLayout, sequence: int) -> pa.Table:
        """As the log has it."""
        numbered_by = np.full(len(self.ids), sequence, np.int64)
        columns = [self.ids, numbered_by, *self.keys, *self.new, self.fresh, *self.old]
        return pa.table(columns, schema=layout.log_schema)

    def into(self, memory: GroupMemory) -> Array:
        """Do it; returns the slots that have changed."""
        there, first = len(self.slots), len(memory)
        memory.put(self.slots, [values[:there] for values in self.new])
        memory.append(
            self.ids[there:],
            [values[there:] for values in self.keys],
            [values[there:] for values in self.new],
        )
        return np.concatenate([self.slots, np.arange(first, len(memory))])


def _unchanged(new: Sequence[pa.Array], old: Sequence[pa.Array], count: int) -> Array:
    found = np.ones(count, np.bool_)
    for after, before in zip(new, old, strict=True):
        same = pc.or_kleene(pc.and_(after.is_null(), before.is_null()), pc.equal(after, before))
        if pa.types.is_floating(after.type):
            same = pc.or_kleene(same, pc.and_(pc.is_nan(after), pc.is_nan(before)))
        found &= np.asarray(pc.fill_null(same, False))
    return found
