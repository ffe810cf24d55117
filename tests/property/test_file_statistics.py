"""What a table's log says of a file is true of its rows: readers skip files by it."""

from __future__ import annotations

import json
import math
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.source import parquet_file
from forebay.source.parquet_file import ParquetFile

INNER = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        ("a.b", pa.int64()),  # as a field of a struct is called in a footer
        ("a", INNER),
        ("pairs", pa.map_(pa.string(), pa.int64())),
        ("text", pa.string()),
        ("number", pa.float64()),
        ("small", pa.float32()),
        ("day", pa.date32()),
        ("last", pa.int8()),
    ]
)
BOUNDED = ("a.b", "text", "number", "small", "day", "last")
rows = st.fixed_dictionaries(
    {
        "a.b": st.none() | st.integers(-(2**63), 2**63 - 1),
        "a": st.none() | st.just({"x": 7, "y": ["z", None]}),
        "pairs": st.none() | st.just([("k", 1), ("l", 2)]),
        "text": st.none() | st.text(max_size=3) | st.sampled_from(["é" * 100, "x" * 5_000]),
        "number": st.none() | st.floats(),
        "small": st.none() | st.floats(width=32),
        "day": st.none() | st.dates(),
        "last": st.none() | st.integers(-128, 127),
    }
)


def stated(batches: list[list[dict[str, Any]]]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = ParquetFile(Path(folder), "part")
        for batch in batches:
            file.add(pa.RecordBatch.from_pylist(batch, SCHEMA))
        written = file.close()
        assert written is not None
        found: dict[str, Any] = json.loads(written.stats)
        return found


def plain(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value


@given(st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=3), st.booleans())
def test_bounds_and_counts_are_those_of_the_rows(batches: list[list[dict[str, Any]]], many: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if many:
            patch.setattr(parquet_file, "ROWS", 1)  # a row group for each batch
        found = stated(batches)
    everything = [row for batch in batches for row in batch]
    assert found["numRecords"] == len(everything)
    assert {*found["nullCount"]} == {*BOUNDED}
    for column in BOUNDED:
        values = [row[column] for row in everything if row[column] is not None]
        assert found["nullCount"][column] == len(everything) - len(values)
        unbounded = any(
            (isinstance(v, float) and not math.isfinite(v)) or (isinstance(v, str) and len(v) > 4096)
            for v in values
        )
        if values and not unbounded:
            by_bytes = (lambda v: v.encode()) if column == "text" else None
            assert found["minValues"][column] == plain(min(values, key=by_bytes))
            assert found["maxValues"][column] == plain(max(values, key=by_bytes))
        elif not values or any(isinstance(v, float) and math.isnan(v) for v in values):
            assert column not in found["minValues"] | found["maxValues"]
        for bounds in (found["minValues"], found["maxValues"]):
            assert not isinstance(bounds.get(column), float) or math.isfinite(bounds[column]), (
                "JSON has no infinity"
            )
