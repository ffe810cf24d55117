"""What a task finds late, against a plain model: each row is in its groups or among the late ones, never in both."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay import column_types as types
from forebay.runtime.group_view import counted
from forebay.source.late_rows import LateTarget
from forebay.source.outlets import GROUPS, LATE, LATE_FILE, GroupOutlet, outlet_of
from forebay.source.serving import ServedView
from forebay.source.shared_folder import LOG
from forebay.sql import CreateView, parse_one, program_for

SCHEMA = pa.schema([("id", types.BIGINT), ("ts", types.TIMESTAMP)])
SECOND_US = 1_000_000
WINDOWS = {
    "TUMBLE(ts, INTERVAL '10' SECOND)": (10, 10),
    "HOP(ts, INTERVAL '4' SECOND, INTERVAL '10' SECOND)": (10, 4),
}

seconds = st.integers(0, 60)
looks = st.lists(
    st.tuples(st.lists(st.one_of(st.none(), seconds), max_size=8), st.one_of(st.none(), seconds)), max_size=4
)


@pytest.mark.parametrize("window", WINDOWS)
@given(looks=looks, allowed=st.integers(0, 10), kept=st.booleans())
def test_a_row_is_in_the_open_ones_of_its_windows_or_late(
    window: str, looks: list[tuple[list[int | None], int | None]], allowed: int, kept: bool
) -> None:
    """`looks`: the seconds of some rows, and the watermark in seconds that they are judged by."""
    size, slide = WINDOWS[window]
    query = f"CREATE MATERIALIZED VIEW v AS SELECT window_start AS w, count(*) AS n FROM t GROUP BY {window}"
    view = parse_one(query)
    assert isinstance(view, CreateView)
    program = program_for(view.query, SCHEMA)
    assert program is not None
    groups, late_ids, expected_late, partly = Counter[int](), [], [], 0
    expected: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / LOG).mkdir()
        target = LateTarget(allowed * 1000, folder if kept else None)
        served = ServedView("v", counted(program).to_json(), folder, target.to_json())
        outlet = outlet_of(served, "ts", SCHEMA.names)
        assert isinstance(outlet, GroupOutlet)
        number = 0
        for times, watermark in looks:
            ids = list(range(number, number + len(times)))
            number += len(times)
            stamps = pa.array([None if at is None else at * SECOND_US for at in times], pa.int64()).cast(
                SCHEMA.field("ts").type
            )
            outlet.see(
                pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), stamps], schema=SCHEMA),
                watermark and watermark * 1000,
            )
            for id, at in zip(ids, times, strict=True):
                if at is None:
                    continue
                starts = list(range(at - at % slide, at - size, -slide))
                open_ones = [s for s in starts if not watermark or s + size + allowed > watermark]
                expected.update(open_ones)
                partly += len(starts) - len(open_ones)
                expected_late += [] if open_ones else [id]
        counted_late = 0
        for kind, body in outlet.answers():
            if kind == GROUPS:
                for row in pa.ipc.open_stream(body).read_all().to_pylist():
                    at = next(value for value in row.values() if hasattr(value, "timestamp"))
                    groups[int(at.timestamp())] += row["_part_rows"]
            elif kind == LATE_FILE:
                late_ids += pq.read_table(Path(folder) / json.loads(body)[0]).column("id").to_pylist()
            elif kind == LATE:
                counted_late += int(body)
    assert +groups == +expected
    if kept:
        assert sorted(late_ids) == expected_late
        assert counted_late == len(expected_late)
    else:
        assert counted_late == partly  # of HOP, a row is counted in each window that it is too late for
