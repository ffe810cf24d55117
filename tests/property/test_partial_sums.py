"""Sums made batch by batch and added up are the sums of all rows, or the rows are passed on one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from forebay import column_types as types
from forebay.partial import Part, Partial
from forebay.source.partials import Adder, _panes

SCHEMA = pa.schema(
    [pa.field("k", types.STRING), pa.field("n", types.BIGINT), pa.field("x", types.DOUBLE),
     pa.field("ts", types.TIMESTAMP)]
)  # fmt: skip
WIDTH = 60_000_000
PARTS = (
    Part("p0", "count_all", "", "bigint"),
    Part("p1", "count", "x", "bigint"),
    Part("p2", "sum", "n", "bigint"),
    Part("p3", "min", "x", "same"),
    Part("p4", "max", "x", "same"),
    Part("p5", "max", "n", "same"),
)
TIMES = st.integers(-(2**50), 2**50) | st.integers(-(10**8), 10**8)
ROWS = st.lists(
    st.tuples(
        st.none() | st.sampled_from(["a", "b", ""]),
        st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9),
        st.none() | st.sampled_from([0.0, -1.5, 2.5, math.nan, math.inf, -math.inf]),
        st.none() | TIMES,
    ),
    max_size=40,
)


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [
        pa.array([row[at] for row in rows], kind)
        for at, kind in enumerate([pa.string(), pa.int64(), pa.float64(), pa.timestamp("us", "UTC")])
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def largest(values: list[float]) -> float:
    """As Spark orders them: NaN above all."""
    return max(values, key=lambda value: (math.isnan(value), 0.0 if math.isnan(value) else value))


def smallest(values: list[float]) -> float:
    return min(values, key=lambda value: (math.isnan(value), 0.0 if math.isnan(value) else value))


def merged(rows: list[dict[str, Any]]) -> dict[Any, Any]:
    """What Spark makes of the parts."""
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["k"], None if row["ts"] is None else row["ts"] // WIDTH].append(row)

    def of(group: list[dict[str, Any]], part: str) -> list[Any]:
        return [row[part] for row in group if row[part] is not None]

    return {
        key: (
            sum(of(group, "p0")), sum(of(group, "p1")), sum(of(group, "p2")) if of(group, "p2") else None,
            repr(smallest(of(group, "p3"))) if of(group, "p3") else None,
            repr(largest(of(group, "p4"))) if of(group, "p4") else None,
            max(of(group, "p5"), default=None), max(of(group, "ts"), default=None),
        )
        for key, group in groups.items()
    }  # fmt: skip


@given(st.lists(ROWS, max_size=4))
def test_sums_of_batches_add_up_to_the_sums_of_all_rows(batches: list[list[tuple[Any, ...]]]) -> None:
    partial = Partial(("k",), (("ts", WIDTH),), PARTS)
    target = pa.schema([SCHEMA.field("k"), SCHEMA.field("ts"), *partial.fields(SCHEMA)])
    adder = Adder(partial, target)
    found: list[dict[str, Any]] = []
    for rows in batches:
        made = adder.add(batch(rows))
        assert made.schema == target
        assert made.num_rows <= len(rows)
        ticks = made.column("ts").view(pa.int64())
        columns = {**{column: made.column(column).to_pylist() for column in made.schema.names if column != "ts"},
                   "ts": ticks.to_pylist()}  # fmt: skip
        found += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    each = [
        {"k": k, "ts": ts, "p0": 1, "p1": int(x is not None), "p2": n, "p3": x, "p4": x, "p5": n}
        for rows in batches
        for k, n, x, ts in rows
    ]
    assert merged(found) == merged(each)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(1, 2**45))
def test_a_pane_is_rounded_down_also_before_1970(times: list[int | None], width: int) -> None:
    panes = _panes(pa.array(times, pa.int64()).view(pa.timestamp("us", "UTC")), width)
    assert panes.to_pylist() == [None if time is None else time // width for time in times]


def test_where_nearly_every_row_is_a_group_of_its_own_adding_up_is_given_up() -> None:
    partial = Partial(("k",), (), (Part("p0", "count_all", "", "bigint"),))
    adder = Adder(partial, pa.schema([SCHEMA.field("k"), *partial.fields(SCHEMA)]))
    for _ in range(2):
        adder.add(batch([(str(number), 1, 1.0, 0) for number in range(10)]))
    assert adder.add(batch([("same", 1, 1.0, 0)] * 10)).num_rows == 10


def test_a_plan_survives_its_json() -> None:
    partial = Partial(("k",), (("ts", WIDTH),), PARTS).with_time("other").with_time("ts")
    assert partial.panes == (("ts", WIDTH), ("other", 0))
    assert Partial.from_json(partial.to_json()) == partial
