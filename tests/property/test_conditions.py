"""A condition asked of Arrow rows has the answers that SQL has: true, false and unknown; NaN is above all."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from forebay.condition import Condition
from forebay.source.filters import matching

COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "n": (pa.int64(), st.integers(-3, 3)),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "ä"])),
    "x": (pa.float64(), st.sampled_from([-1.5, 0.0, -0.0, 2.0, math.nan, math.inf])),
    "y": (pa.float64(), st.sampled_from([-1.5, 0.0, -0.0, 2.0, math.nan, math.inf])),
    "f": (pa.float32(), st.sampled_from([-1.5, 0.5, math.nan])),
    "b": (pa.bool_(), st.booleans()),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | some for name, (_, some) in COLUMNS.items()}), max_size=12
)


COMPARED = ["=", "<>", "<", "<=", ">", ">="]


def value(name: str) -> st.SearchStrategy[Any]:
    return COLUMNS[name][1].filter(lambda found: found == found)  # there is no literal for NaN


@st.composite
def leaves(draw: st.DrawFn) -> Condition:
    name = draw(st.sampled_from(sorted(COLUMNS)))
    kind = draw(st.sampled_from(["null", "in", "other", *COMPARED]))
    if kind == "null":
        return Condition("null", name)
    if kind == "in":
        return Condition("in", name, tuple(draw(st.lists(value(name), min_size=1, max_size=3))))
    if kind == "other":
        one, other = draw(st.sampled_from([("x", "y"), ("y", "x"), ("f", "f"), ("n", "n"), ("x", "x")]))
        return Condition(draw(st.sampled_from(COMPARED)), one, other=other)
    return Condition(kind, name, (draw(value(name)),))


CONDITIONS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        inner.map(lambda part: Condition("not", parts=(part,))),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(
            lambda made: Condition(made[0], parts=(made[1], made[2]))
        ),
    ),
    max_leaves=6,
)


def rank(found: Any) -> tuple[bool, Any]:
    nan = isinstance(found, float) and math.isnan(found)
    return nan, 0 if nan else found


def answer(row: dict[str, Any], condition: Condition) -> bool | None:
    if condition.operator == "not":
        inner = answer(row, condition.parts[0])
        return None if inner is None else not inner
    if condition.operator in ("and", "or"):
        found = [answer(row, part) for part in condition.parts]
        decides = condition.operator == "or"
        return decides if decides in found else None if None in found else not decides
    mine = row[condition.column]
    if condition.operator == "null":
        return mine is None
    if mine is None:
        return None
    if condition.operator == "in":
        return any(rank(mine) == rank(one) for one in condition.values)
    theirs = row[condition.other] if condition.other else condition.values[0]
    if theirs is None:
        return None
    left, right = rank(mine), rank(theirs)
    return {
        "=": left == right, "<>": left != right, "<": left < right, "<=": left <= right,
        ">": left > right, ">=": left >= right,
    }[condition.operator]  # fmt: skip


@given(ROWS, CONDITIONS)
def test_only_rows_of_which_it_is_true_are_left(rows: list[dict[str, Any]], condition: Condition) -> None:
    schema = pa.schema([pa.field("at", pa.int64()), *((name, kind) for name, (kind, _) in COLUMNS.items())])
    batch = pa.RecordBatch.from_pylist([{"at": at, **row} for at, row in enumerate(rows)], schema=schema)
    kept = matching(batch, Condition.from_json(condition.to_json())).column("at").to_pylist()
    assert kept == [at for at, row in enumerate(rows) if answer(row, condition)]


def test_zero_is_one_of_the_values_whatever_its_sign() -> None:
    rows = pa.RecordBatch.from_pydict({"x": [0.0, -0.0, 1.0, None]})
    assert matching(rows, Condition("in", "x", (0.0, 7.0))).num_rows == 2
