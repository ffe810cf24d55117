"""Adding up: rows of one group become one, by what each part says."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Context, localcontext
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.errors import SumOverflowError
from forebay.views.groups.columns import Array
from forebay.views.groups.layout import Merge, PartColumn

_SAFE = 2.0**62  # amounts below this, by their size, cannot leave a BIGINT however they are added up


def numbered(keys: Sequence[pa.Array], rows: int) -> tuple[Array, Array]:
    """The number of each row's group, and the first row of each group."""
    codes = np.zeros(rows, np.int64)
    for values in keys:
        coded = values.dictionary_encode(null_encoding="encode")
        codes = codes * max(1, len(coded.dictionary)) + np.asarray(coded.indices)
        codes = np.unique(codes, return_inverse=True)[1]
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    return numbers, first


def merged(part: PartColumn, values: pa.Array, groups: Array, count: int) -> pa.Array:
    """One value a group. NULL adds nothing; a group without a value has NULL."""
    known = np.asarray(values.is_valid())
    values, groups = values.drop_null(), groups[known]
    order = np.argsort(groups, kind="stable")
    groups = groups[order]
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    present = groups[starts]
    found = _reduced(part, values.take(pa.array(order)), starts)
    places = np.full(count, len(found))
    places[present] = np.arange(len(present))
    return found.take(pa.array(places, mask=places == len(found)))


def _reduced(part: PartColumn, values: pa.Array, starts: Array) -> pa.Array:
    if not len(values):
        return pa.array([], part.type)
    if pa.types.is_floating(part.type):
        with np.errstate(all="ignore"):  # infinities and NaN are values
            return pa.array(_FLOATS[part.merge].reduceat(np.asarray(values), starts), part.type)
    if _plain(part.type):
        width = part.type.bit_width
        bits = np.asarray(
            values.view(pa.int64() if width == 64 else pa.int32()) if width in (32, 64) else values
        )
        if part.merge != "sum":
            least = (np.minimum if part.merge == "min" else np.maximum).reduceat(bits, starts)
            return pa.array(least).view(part.type) if width in (32, 64) else pa.array(least, part.type)
        bits = bits.astype(np.int64)
        if np.add.reduceat(np.abs(bits.astype(np.float64)), starts).max() < _SAFE:
            return _within(part, pa.array(np.add.reduceat(bits, starts)))
    return _one_by_one(part, values.to_pylist(), starts)


# NaN is greater than every number: fmin passes it over, maximum keeps it.
_FLOATS: dict[Merge, Any] = {"sum": np.add, "min": np.fmin, "max": np.maximum}


def _plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind))


def _one_by_one(part: PartColumn, values: list[Any], starts: Array) -> pa.Array:
    by: dict[Merge, Callable[[Any, Any], Any]] = {"sum": operator.add, "min": min, "max": max}
    ends = [*starts[1:].tolist(), len(values)]
    spans = zip(starts.tolist(), ends, strict=True)
    with localcontext(
        Context(prec=100)
    ):  # a DECIMAL has up to 38 digits, which the usual context would round
        found = [reduce(by[part.merge], values[start:end]) for start, end in spans]
    return _within(part, found)


def _within(part: PartColumn, found: pa.Array | list[Any]) -> pa.Array:
    try:
        return pc.cast(found, part.type) if isinstance(found, pa.Array) else pa.array(found, part.type)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise SumOverflowError(
            f"overflow: the sum '{part.name}' of a group is beyond {part.type}: nothing of this batch was written"
        ) from error
