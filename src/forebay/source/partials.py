"""Adds up rows in the task that read them, as `sql/partial_plan.py` planned it; Spark adds up the sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.partial import Part, Partial

ROWS, BYTES = 65_536, 16 * 1024 * 1024
SAFE_SUM = 2**62  # as far as a sum of BIGINT may get here: it would wrap where Spark raises an error
WORTH = 0.5  # more groups than this share of the rows: adding up costs more than it saves
TRIES = 2  # batches in vain, one after another, before a task gives up on it
_PANE, _ALL = "_forebay_pane_", "_forebay_all"


class Adder:
    """For one task. Its batches have the columns of `target`: keys, times, parts."""

    def __init__(self, partial: Partial, target: pa.Schema) -> None:
        self._partial = partial
        self._target = target
        self._in_vain = 0
        columns = [
            *partial.keys,
            *(name for name, _ in partial.panes),
            *(part.column for part in partial.parts),
        ]
        self._columns = list(dict.fromkeys(name for name in columns if name))

    def all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sums of so many rows at a time that starting to add up costs nothing beside adding."""
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            held.append(batch.select(self._columns) if self._columns else batch)
            rows, size = rows + batch.num_rows, size + held[-1].nbytes
            if rows >= ROWS or size >= BYTES:
                yield self.add(pa.concat_batches(held))
                held, rows, size = [], 0, 0
        if held:
            yield self.add(pa.concat_batches(held))

    def add(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._in_vain >= TRIES or not all(_is_exact(rows, part) for part in self._partial.parts):
            return self._batch({part.name: _each(rows, part) for part in self._partial.parts}, rows)
        groups = self._groups(rows)
        self._in_vain = self._in_vain + 1 if groups.num_rows > WORTH * rows.num_rows else 0
        return self._batch({}, groups)

    def _batch(self, parts: dict[str, pa.Array], others: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            parts[field.name] if field.name in parts else others.column(field.name) for field in self._target
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def _groups(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """One row a group: its keys, the newest of its times, its sums."""
        partial = self._partial
        names = list(partial.keys)
        columns: dict[str, Any] = {name: rows.column(name) for name in names}
        asked: list[tuple[Any, str]] = []
        for name, width in partial.panes:
            columns[name] = rows.column(name)
            asked.append((name, "max"))
            if width:
                columns[_PANE + name] = _panes(rows.column(name), width)
        for part in partial.parts:
            if part.function != "count_all":
                columns[part.name] = _argument(rows, part)
            asked.append(([] if part.function == "count_all" else part.name, part.function))
        by = [*names, *(name for name in columns if name.startswith(_PANE))]
        if not by:  # Arrow groups by something, or not at all
            by, columns[_ALL] = [_ALL], pa.nulls(rows.num_rows, pa.bool_())
        found = pa.table(columns).group_by(by, use_threads=False).aggregate(asked).combine_chunks()
        named = {name: name for name in names} | {f"{name}_max": name for name, _ in partial.panes}
        for part in partial.parts:
            answer = part.function if part.function == "count_all" else f"{part.name}_{part.function}"
            named[answer] = part.name
        kept = found.select(list(named)).rename_columns(list(named.values()))
        return kept.to_batches()[0] if kept.num_rows else pa.RecordBatch.from_pylist([], schema=kept.schema)


def _argument(rows: pa.RecordBatch, part: Part) -> pa.Array:
    """What is added up: of the type that Spark adds up in."""
    column = rows.column(part.column)
    if part.function == "sum":
        return column.cast(pa.float64() if part.type == "double" else pa.int64())
    return column


def _each(rows: pa.RecordBatch, part: Part) -> pa.Array:
    """A part of every row by itself."""
    if part.function == "count_all":
        return pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    if part.function == "count":
        return rows.column(part.column).is_valid().cast(pa.int64())
    return _argument(rows, part)


def _is_exact(rows: pa.RecordBatch, part: Part) -> bool:
    """Whether Arrow's answer is Spark's: its integers wrap silently, and its NaN is not the largest number."""
    if part.function == "sum" and part.type == "bigint" and rows.column(part.column).type == pa.int64():
        ends = pc.min_max(rows.column(part.column))
        low, high = ends["min"].as_py() or 0, ends["max"].as_py() or 0
        return bool(max(-low, high) * rows.num_rows < SAFE_SUM)
    if part.function in ("min", "max") and pa.types.is_floating(rows.column(part.column).type):
        return not pc.any(pc.is_nan(rows.column(part.column))).as_py()
    return True


def _panes(times: pa.Array, width_us: int) -> pa.Array:
    """The number of the pane that each time is in; none where there is no time."""
    ticks = times.view(pa.int64())
    numbers = np.floor_divide(pc.fill_null(ticks, 0).to_numpy(), width_us)
    return pa.array(
        numbers, mask=times.is_null().to_numpy(zero_copy_only=False) if times.null_count else None
    )
