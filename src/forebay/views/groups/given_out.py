"""What a view with EMIT ON WINDOW CLOSE has given out, where keys have watermarks of their own: no window twice.

A task leaves out rows of closed windows by the marks of the batch. A view that was away gets what it has missed without
these, and a key that was idle is forgotten by them. What was given out is kept here for as long as nobody else knows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.files import write_whole
from forebay.object_path import TablePath
from forebay.source.key_marks import KeyMarks
from forebay.views.groups.columns import Array
from forebay.views.groups.layout import one_piece

NEVER = np.iinfo(np.int64).min
_KEY, _UNTIL, _FLOOR = "key", "until_us", b"forebay.floor"


@dataclass(frozen=True)
class Closing:
    """By what windows are closed in a batch: those that ended by `watermark_us`, or by the mark of their key.

    Of keys, `marks` are those of where the batch begins, less `delay_us`, and `alive` are the keys that have rows in it. A
    key that has neither is idle: the watermark speaks for it.
    """

    watermark_us: int | None
    marks: KeyMarks | None = None
    delay_us: int = 0
    alive: pa.Array | None = None

    def until(self, keys: pa.Array | None, rows: int) -> Array:
        """For groups of these keys: which windows are closed."""
        watermark = NEVER if self.watermark_us is None else self.watermark_us
        if self.marks is None or keys is None:
            return np.full(rows, watermark, np.int64)
        found = np.full(rows, watermark, np.int64)
        if self.alive is not None and len(self.alive):
            found[np.asarray(pc.is_in(keys, value_set=self.alive))] = NEVER
        if self.marks.keys is not None:
            places = pc.index_in(keys, value_set=self.marks.keys)
            known = np.asarray(places.is_valid())
            marks = np.asarray(self.marks.newest_us.take(places.drop_null())) - self.delay_us
            found[known] = marks
        return found

    def knows(self, keys: pa.Array) -> Array:
        """Which of these keys have marks of their own."""
        if self.marks is None or self.marks.keys is None:
            return np.zeros(len(keys), np.bool_)
        return np.asarray(pc.is_in(keys, value_set=self.marks.keys))


@dataclass(frozen=True)
class GivenOut:
    """By key, the end of the latest window that was given out; `floor_us` speaks for keys that are not known any more."""

    keys: pa.Array | None = None
    until_us: pa.Array = field(default_factory=lambda: pa.array([], pa.int64()))
    floor_us: int | None = None

    def until(self, keys: pa.Array, closing: Closing) -> Array:
        """For rows of these keys: windows that ended by then are not given out again."""
        floor = NEVER if self.floor_us is None else self.floor_us
        found = np.where(closing.knows(keys), NEVER, floor).astype(np.int64)
        if self.keys is not None:
            places = pc.index_in(keys, value_set=self.keys)
            known = np.asarray(places.is_valid())
            found[known] = np.asarray(self.until_us.take(places.drop_null()))
        return found

    def after(self, keys: pa.Array, ends_us: Array, closing: Closing) -> GivenOut:
        """What follows when groups of these keys and ends are given out. Keys that tasks judge alike are forgotten."""
        marks = closing.marks
        floor = self.floor_us
        if marks is not None and marks.floor_us is not None:
            least = marks.floor_us - closing.delay_us
            floor = least if floor is None else max(floor, least)
        tables = [] if self.keys is None else [pa.table({_KEY: self.keys, _UNTIL: self.until_us})]
        if len(keys):
            tables.append(pa.table({_KEY: keys, _UNTIL: pa.array(ends_us, pa.int64())}))
        if not tables:
            return GivenOut(floor_us=floor)
        merged = pa.concat_tables(tables).group_by(_KEY, use_threads=False).aggregate([(_UNTIL, "max")])
        until = one_piece(merged.column(f"{_UNTIL}_max"))
        known = one_piece(merged.column(_KEY))
        if floor is not None:
            keep = closing.knows(known) | (np.asarray(until) > floor)
            until, known = until.filter(pa.array(keep)), known.filter(pa.array(keep))
        return GivenOut(known if len(known) else None, until, floor)

    def write(self, path: TablePath) -> None:
        """Durable when this returns."""
        keys = pa.nulls(0) if self.keys is None else self.keys
        floor = b"" if self.floor_us is None else str(self.floor_us).encode()
        table = pa.table({_KEY: keys, _UNTIL: self.until_us}).replace_schema_metadata({_FLOOR: floor})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        write_whole(path, sink.getvalue().to_pybytes())

    @staticmethod
    def read(path: TablePath) -> GivenOut:
        table = pa.ipc.open_stream(path.read_bytes()).read_all()
        floor = table.schema.metadata[_FLOOR]
        keys = one_piece(table.column(_KEY))
        return GivenOut(
            keys if len(keys) else None, one_piece(table.column(_UNTIL)), int(floor) if floor else None
        )


def times_of(found: Sequence[pa.Table], name: str) -> pa.Array | None:
    """The keys of several tables, as one array."""
    columns = [chunk for table in found for chunk in table.column(name).chunks]
    return pa.concat_arrays(columns) if columns else None
