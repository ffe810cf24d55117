"""Columns of groups in memory: they grow at the end, and are read and changed by slot.

Reading or changing some slots costs what these slots do, however long the column is. An Arrow array cannot be changed,
so these are NumPy arrays that are lent to Arrow for reading.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class GroupColumn(Protocol):
    """One column, by slot."""

    def reserve(self, count: int) -> None: ...

    def append(self, values: pa.Array) -> None: ...

    def put(self, slots: Array, values: pa.Array) -> None: ...

    def take(self, slots: Array) -> pa.Array: ...


def column_of(kind: pa.DataType, *, changes: bool) -> GroupColumn:
    """The column for a type; one that `changes` takes other values in place."""
    if is_fixed(kind):
        return FixedColumn(kind)
    return ObjectColumn(kind) if changes else TextColumn(kind)


def is_fixed(kind: pa.DataType) -> bool:
    try:
        return pa.types.is_boolean(kind) or kind.bit_width in (*_UNSIGNED, 128)
    except ValueError:
        return False


def lanes(values: pa.Array) -> tuple[Array, Array]:
    """The bits of fixed-width values as unsigned integers (two of them for a decimal), 0 for NULL; and which are not NULL."""
    valid = np.asarray(values.is_valid())
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    width = values.type.bit_width
    unit, per_value = (np.uint64, 2) if width == 128 else (_UNSIGNED[width], 1)
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        bits: Array = np.zeros(len(values) * per_value, unit)
    else:
        bits = np.frombuffer(buffer, unit)[values.offset * per_value :][: len(values) * per_value]
    if width == 128:
        bits = bits.reshape(-1, 2)
    if not valid.all():
        bits = bits.copy()
        bits[~valid] = 0
    return bits, valid


class Growing:
    """A NumPy array with room at its end."""

    def __init__(self, dtype: Any, shape: tuple[int, ...] = ()) -> None:
        self._data: Array = np.empty((0, *shape), dtype)
        self.size = 0

    def append(self, values: Array) -> None:
        needed = self.size + len(values)
        if needed > len(self._data):
            self.reserve(max(1024, needed, len(self._data) * 3 // 2))
        self._data[self.size : needed] = values
        self.size = needed

    def reserve(self, count: int) -> None:
        """Make room for so many. What is not used of it takes no memory: the system gives it page by page."""
        if count > len(self._data):
            grown = np.empty((count, *self._data.shape[1:]), self._data.dtype)
            grown[: self.size] = self._data[: self.size]
            self._data = grown

    @property
    def all(self) -> Array:
        return self._data[: self.size]


class FixedColumn:
    """Values of a fixed width: numbers, times, booleans, decimals."""

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._boolean = pa.types.is_boolean(kind)
        width = 8 if self._boolean else kind.bit_width
        self._bits = Growing(np.uint64, (2,)) if width == 128 else Growing(_UNSIGNED[width])
        self._valid = Growing(np.bool_)

    def reserve(self, count: int) -> None:
        self._bits.reserve(count)
        self._valid.reserve(count)

    def append(self, values: pa.Array) -> None:
        bits, valid = lanes(values)
        self._bits.append(bits)
        self._valid.append(valid)

    def put(self, slots: Array, values: pa.Array) -> None:
        bits, valid = lanes(values)
        self._bits.all[slots] = bits
        self._valid.all[slots] = valid

    def take(self, slots: Array) -> pa.Array:
        return self._arrow(self._bits.all[slots], self._valid.all[slots])

    def _arrow(self, bits: Array, valid: Array) -> pa.Array:
        kind = pa.uint8() if self._boolean else self._type
        known = None if valid.all() else pa.array(valid).buffers()[1]
        found = pa.Array.from_buffers(kind, len(valid), [known, pa.py_buffer(np.ascontiguousarray(bits))])
        return found.cast(pa.bool_()) if self._boolean else found


class TextColumn:
    """Texts or bytes that never change."""

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._large = pa.large_string() if _is_text(kind) else pa.large_binary()
        self._data = Growing(np.uint8)
        self._ends = Growing(np.int64)
        self._ends.append(np.zeros(1, np.int64))
        self._valid = Growing(np.bool_)

    def reserve(self, count: int) -> None:
        self._ends.reserve(count + 1)
        self._valid.reserve(count)

    def append(self, values: pa.Array) -> None:
        large = values.cast(self._large)
        valid = np.asarray(large.is_valid())
        if not len(large):
            return
        if not valid.all():  # what stands behind a NULL is anything
            large = large.fill_null("" if _is_text(self._type) else b"")
        _, ends, data = large.buffers()
        marks = np.frombuffer(ends, np.int64)[large.offset : large.offset + len(large) + 1]
        base = self._data.size
        if data is not None:
            self._data.append(np.frombuffer(data, np.uint8)[marks[0] : marks[-1]])
        self._ends.append(marks[1:] - marks[0] + base)
        self._valid.append(valid)

    def put(self, slots: Array, values: pa.Array) -> None:
        raise NotImplementedError("a key does not change")

    def take(self, slots: Array) -> pa.Array:
        valid = self._valid.all[slots]
        buffers = [None, pa.py_buffer(self._ends.all), pa.py_buffer(self._data.all)]
        whole = pa.Array.from_buffers(self._large, self._valid.size, buffers)
        return whole.take(pa.array(slots, pa.int64(), mask=~valid)).cast(self._type)


class ObjectColumn:
    """Texts or bytes that change: the least or the greatest of a group."""

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._values = Growing(np.object_)

    def reserve(self, count: int) -> None:
        self._values.reserve(count)

    def append(self, values: pa.Array) -> None:
        self._values.append(_objects(values))

    def put(self, slots: Array, values: pa.Array) -> None:
        self._values.all[slots] = _objects(values)

    def take(self, slots: Array) -> pa.Array:
        return pa.array(self._values.all[slots].tolist(), self._type)


def _objects(values: pa.Array) -> Array:
    found = np.empty(len(values), np.object_)
    found[:] = values.to_pylist()
    return found


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
