"""Spark's order of values: NaN is equal to NaN and above all numbers, -0.0 is 0.0, NULLs are where the query puts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from forebay.answers.question import SortKey

_ALL_BUT_SIGN = 0x7FFF_FFFF_FFFF_FFFF


def places(rows: pa.Table, order: Sequence[SortKey], first: int | None) -> pa.Array:
    """The places of the rows in this order, of all or of the first so many."""
    columns: list[Any] = []
    keys: list[tuple[str, str]] = []
    for key in order:
        values = rank(same(rows.column(key.column)))
        # Where NULLs go is a key of its own: not every Arrow has a place for the NULLs of each key.
        keys.append((str(len(columns)), "descending" if key.nulls_first else "ascending"))
        columns.append(pc.is_null(values))
        keys.append((str(len(columns)), "descending" if key.descending else "ascending"))
        columns.append(values)
    keyed = pa.Table.from_arrays(columns, names=[str(place) for place in range(len(columns))])
    if first is None or first >= rows.num_rows:
        return pc.sort_indices(keyed, sort_keys=keys)
    return pc.select_k_unstable(keyed, first, sort_keys=keys)


def same(column: Any) -> Any:
    """The column with one NaN and one zero, so that values that are equal to Spark are equal to Arrow."""
    if not types.is_floating(column.type):
        return column
    zero = pa.scalar(0.0, column.type)
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), pc.add(column, zero))


def rank(column: Any) -> Any:
    """The column itself, or numbers that are in the order that Spark has of a FLOAT or DOUBLE; -0.0 just below 0.0."""
    if not types.is_floating(column.type):
        return column
    column = column.cast(pa.float64())
    column = pc.if_else(pc.is_nan(column), float("nan"), column)  # NaNs may differ in their bits
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    bits = pa.chunked_array([chunk.view(pa.int64()) for chunk in chunks], pa.int64())
    return _turned(bits)


def unrank(ranks: Any, kind: pa.DataType) -> Any:
    """The values that `rank` made these numbers of."""
    if not types.is_floating(kind):
        return ranks
    bits = _turned(ranks)
    chunks = bits.chunks if isinstance(bits, pa.ChunkedArray) else [bits]
    return pa.chunked_array([chunk.view(pa.float64()) for chunk in chunks], pa.float64()).cast(kind)


def _turned(bits: Any) -> Any:
    """Of negative numbers the larger bits are the smaller number. Done twice, it is undone."""
    return pc.if_else(pc.less(bits, 0), pc.bit_wise_xor(bits, pa.scalar(_ALL_BUT_SIGN, pa.int64())), bits)
