"""What Delta keeps of a data file: its row count and the bounds of its columns."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

_WITH_BOUNDS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_date)
_UNKNOWN = object()


class FileStatistics:
    """Row count and bounds of a file, as Delta keeps them: readers skip files by them."""

    def __init__(self) -> None:
        self._rows = 0
        self._low: dict[str, object] = {}
        self._high: dict[str, object] = {}
        self._nulls: dict[str, int] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        for field, column in zip(rows.schema, rows.columns, strict=True):
            if not any(test(field.type) for test in _WITH_BOUNDS):
                continue
            self._nulls[field.name] = self._nulls.get(field.name, 0) + column.null_count
            if pa.types.is_floating(field.type) and pc.any(pc.is_nan(column)).as_py():
                # NaN is greater than every number, but min_max leaves it out: no bounds, rather than wrong ones.
                self._low[field.name] = self._high[field.name] = _UNKNOWN
                continue
            bounds = pc.min_max(column)
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            if low is None:  # all NULL
                continue
            self._low[field.name] = _least(self._low.get(field.name), low, min)
            self._high[field.name] = _least(self._high.get(field.name), high, max)

    def to_json(self) -> str:
        return json.dumps(
            {
                "numRecords": self._rows,
                "minValues": {k: _plain(v) for k, v in self._low.items() if v is not _UNKNOWN},
                "maxValues": {k: _plain(v) for k, v in self._high.items() if v is not _UNKNOWN},
                "nullCount": self._nulls,
            }
        )


def _least(known: object, new: object, pick: Callable[..., object]) -> object:
    if known is _UNKNOWN:
        return known
    return new if known is None else pick(known, new)


def _plain(value: object) -> object:
    return value.isoformat() if hasattr(value, "isoformat") else value
