"""What a group is made of, and the columns that its log has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Merge = Literal["sum", "min", "max"]

ID = "id"  # a group's number, for ever: it says without its keys that two rows are of one group
SEQUENCE = "sequence"  # of the batch that the row is of
FRESH = "fresh"  # the group was not there before


@dataclass(frozen=True)
class PartColumn:
    """A value that can be merged. A count merges as a sum; NULL is what adds nothing."""

    name: str
    merge: Merge
    type: pa.DataType


@dataclass(frozen=True)
class GroupLayout:
    """Keys and parts of a view's groups.

    `window_end` names the key after which a group is closed: once the watermark has come to it, it leaves the memory.
    """

    keys: pa.Schema
    parts: tuple[PartColumn, ...]
    window_end: str | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of partial groups, and of what is handed to `finish`."""
        parts = [pa.field(part.name, part.type) for part in self.parts]
        return pa.schema([*(field.with_nullable(True) for field in self.keys), *parts])

    # In the log columns go by their place: a name of the user's may be one that Delta refuses, or one of ours.
    @cached_property
    def key_names(self) -> list[str]:
        return [f"k{place}" for place in range(len(self.keys))]

    @cached_property
    def part_names(self) -> list[str]:
        return [f"p{place}" for place in range(len(self.parts))]

    @cached_property
    def old_names(self) -> list[str]:
        return [f"o{place}" for place in range(len(self.parts))]

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The columns of a folded run: what a group is now."""
        names = [*self.key_names, *self.part_names]
        fields = [pa.field(name, field.type) for name, field in zip(names, self.schema, strict=True)]
        return pa.schema([pa.field(ID, pa.int64()), pa.field(SEQUENCE, pa.int64()), *fields])

    @cached_property
    def log_schema(self) -> pa.Schema:
        """The columns of a batch's run: also what its groups were before."""
        old = [pa.field(name, part.type) for name, part in zip(self.old_names, self.parts, strict=True)]
        return pa.schema([*self.row_schema, pa.field(FRESH, pa.bool_()), *old])

    @cached_property
    def window_place(self) -> int | None:
        return None if self.window_end is None else self.keys.get_field_index(self.window_end)

    def canonical(self, groups: Sequence[pa.RecordBatch]) -> pa.Table:
        """The groups as one table of these columns, with keys that are equal as values equal bit for bit."""
        columns = self.schema.names
        given = pa.Table.from_batches(groups).select(columns) if groups else self.schema.empty_table()
        table = given.cast(self.schema).combine_chunks()
        for place, field in enumerate(self.keys):
            if pa.types.is_floating(field.type):
                table = table.set_column(
                    place, table.schema.field(place), _one_zero_one_nan(table.column(place))
                )
        return table


def _one_zero_one_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    zero, nan = pa.scalar(0.0, column.type), pa.scalar(float("nan"), column.type)
    column = pc.if_else(pc.equal(column, zero), zero, column)
    return pc.if_else(pc.is_nan(column), nan, column)


def arrays(table: pa.Table, names: Sequence[str]) -> list[pa.Array]:
    """Columns of a table, each in one piece."""
    return [one_piece(table.column(name)) for name in names]


def one_piece(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def numbers(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """A column without NULLs as NumPy has it."""
    return np.asarray(column)
