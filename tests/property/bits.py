"""What two decoders are compared by.

Arrow values bit by bit: `==` takes -0.0 for 0.0, and no NaN for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def rows_in_bits(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The rows, each float as the integer that has its bits."""
    return list(zip(*map(_bits, batch.columns), strict=True))


def kinds(refused: Iterable[Any]) -> list[tuple[int, str]]:
    """Which values are refused, and for what kind of reason."""
    return [(bad.index, str(bad.kind)) for bad in refused]


def agreed(native: Any, expected: Any, values: Sequence[bytes | None]) -> list[Any]:
    """What the native decoder refuses, once its rows and refusals are those that are expected."""
    for _ in range(2):  # a decoder holds nothing back from one call to the next
        found = native.decode(list(values))
        batch, bad = pa.record_batch(found.batch), found.bad
        batch.validate(full=True)
        assert kinds(bad) == kinds(expected.bad)
        assert batch.schema.equals(expected.batch.schema)
        assert rows_in_bits(batch) == rows_in_bits(expected.batch)
    return list(bad)


def _bits(array: pa.Array) -> list[Any]:
    kind = array.type
    if kind in _BITS:
        return list(array.view(_BITS[kind]).to_pylist())
    if pa.types.is_struct(kind):
        inner = list(zip(*(_bits(array.field(place)) for place in range(kind.num_fields)), strict=True))
    elif pa.types.is_map(kind):
        pairs = list(zip(_bits(array.keys), _bits(array.items), strict=True))
        inner = _cut(pairs, array.offsets)
    elif pa.types.is_list(kind):
        inner = _cut(_bits(array.values), array.offsets)
    else:
        return list(array.to_pylist())
    return [
        value if there else None for value, there in zip(inner, array.is_valid().to_pylist(), strict=True)
    ]


def _cut(values: list[Any], offsets: pa.Array) -> list[Any]:
    ends = offsets.to_pylist()
    return [values[start:end] for start, end in pairwise(ends)]
