"""From keys to slots: a hash table in NumPy, asked and filled for a whole batch at a time.

A look takes the same time with ten million groups as with ten thousand. A hash is only a hint: keys are compared.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from forebay.views.groups.columns import Array, Growing, is_fixed, lanes

NONE = -1
_LEAST = 1 << 12
_FULL = 0.6  # beyond that runs of taken places get long
_SEED = secrets.randbits(63)  # hashes are never kept, and nobody outside can make keys that collide


def hashes(keys: Sequence[pa.Array], rows: int) -> Array:
    """One hash a row over all keys."""
    found = np.full(rows, _SEED, np.uint64)
    for values in keys:
        for lane in _lanes(values):
            found = _mixed(found ^ lane)
    return found


def _lanes(values: pa.Array) -> list[Array]:
    if not is_fixed(values.type):
        return [pl.Series(values).hash(_SEED).to_numpy()]
    bits, valid = lanes(values)
    columns = [bits] if bits.ndim == 1 else [bits[:, 0], bits[:, 1]]
    return [*(lane.astype(np.uint64) for lane in columns), valid.astype(np.uint64)]


def _mixed(value: Array) -> Array:
    """The finaliser of SplitMix64: neighbours come to places far apart."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)))


class SlotIndex:
    """Slots by hash, with linear probing. Slots are given out in order, from 0."""

    def __init__(self) -> None:
        self._hashes = Growing(np.uint64)
        self._places: Array = np.full(_LEAST, NONE, np.int32)

    def __len__(self) -> int:
        return self._hashes.size

    def find(self, wanted: Array, same: Callable[[Array, Array], Array]) -> Array:
        """The slot of each hash, NONE where there is none. `same` compares keys of rows wanted with those of slots."""
        found = np.full(len(wanted), NONE, np.int64)
        rows = np.arange(len(wanted))
        places = self._first(wanted)
        while len(rows):
            slots = self._places[places]
            taken = slots != NONE
            rows, places, slots = rows[taken], places[taken], slots[taken]
            hit = self._hashes.all[slots] == wanted[rows]
            hit[hit] = same(rows[hit], slots[hit])
            found[rows[hit]] = slots[hit]
            rows, places = rows[~hit], self._next(places[~hit])
        return found

    def append(self, new: Array) -> None:
        """Give the next slots to these hashes, whose keys are not there yet."""
        first = len(self)
        self._hashes.append(new)
        if len(self) > _FULL * len(self._places):
            self.reserve(2 * len(self))
        else:
            self._settle(self._hashes.all[first:], first)

    def reserve(self, count: int) -> None:
        """Make room for so many, so that the table is not built anew on the way there."""
        self._hashes.reserve(count)
        size = len(self._places)
        while count > _FULL * size:
            size *= 2
        if size > len(self._places):
            self._places = np.full(size, NONE, np.int32)
            self._settle(self._hashes.all, 0)

    def _settle(self, new: Array, first: int) -> None:
        slots = np.arange(first, first + len(new), dtype=np.int32)
        places = self._first(new)
        while len(slots):
            free = self._places[places] == NONE
            self._places[places[free]] = slots[free]
            lost = self._places[places] != slots  # of several that saw one place free, one has it now
            slots, places = slots[lost], self._next(places[lost])

    def _first(self, of: Array) -> Array:
        found: Any = (of & np.uint64(len(self._places) - 1)).astype(np.int64)
        return np.asarray(found)

    def _next(self, places: Array) -> Array:
        return (places + 1) & (len(self._places) - 1)
