"""An expression survives its JSON to the last bit."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from forebay import column_types as types
from forebay.expression import Expression, plain_type, type_of_plain

FLAT = [*types.BITS, types.BOOLEAN, types.FLOAT, types.DOUBLE, types.STRING, types.BINARY, types.DATE, types.TIMESTAMP,
        types.TIMESTAMP_NTZ, pa.decimal128(38, 10), types.NULL]  # fmt: skip
KINDS = st.recursive(
    st.sampled_from(FLAT[:-1]),
    lambda inner: st.one_of(
        st.builds(types.array_of, inner, st.booleans()),
        st.builds(types.map_of, st.just(types.STRING), inner, st.booleans()),
        st.lists(st.builds(pa.field, st.text(min_size=1, max_size=3), inner, st.booleans()), max_size=3).map(
            pa.struct
        ),
    ),
    max_leaves=4,
)
LITERALS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (types.BIGINT, st.integers(-(2**63), 2**63 - 1)),
    (types.DOUBLE, st.floats()),
    (types.FLOAT, st.floats(width=32)),
    (types.STRING, st.text()),
    (types.BOOLEAN, st.booleans()),
    (types.DATE, st.dates()),
    (types.TIMESTAMP, st.datetimes()),
    (pa.decimal128(38, 6), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -6)))),
]  # fmt: skip


@given(KINDS | st.just(types.NULL))
def test_a_type_survives(kind: pa.DataType) -> None:
    assert type_of_plain(plain_type(kind)) == kind


@given(st.sampled_from(LITERALS).flatmap(lambda pair: st.tuples(st.just(pair[0]), st.none() | pair[1])))
def test_a_literal_survives(pair: tuple[pa.DataType, Any]) -> None:
    kind, value = pair
    made = Expression.literal(value, kind)
    assert Expression.from_json(made.to_json()) == made
    found = made.scalar.as_py()
    if isinstance(value, float):
        assert repr(found) == repr(value) or (math.isnan(found) and math.isnan(value))
    elif isinstance(value, datetime):
        assert found.replace(tzinfo=None) == value
    else:
        assert found == value
        assert not isinstance(value, date) or found.isoformat() == value.isoformat()


def test_minus_zero_is_another_literal_than_zero() -> None:
    assert Expression.literal(-0.0, types.DOUBLE) != Expression.literal(0.0, types.DOUBLE)
    assert Expression.literal(math.nan, types.DOUBLE) == Expression.literal(math.nan, types.DOUBLE)


def test_a_call_says_what_it_is_in_sql() -> None:
    one = Expression.column("a", types.INT)
    call = Expression("+", types.INT, (one, Expression.literal(1, types.INT)))
    assert str(Expression("narrow", types.TINYINT, (call,))) == "cast((a + 1) as TINYINT)"
    assert list(call.columns()) == ["a"]
