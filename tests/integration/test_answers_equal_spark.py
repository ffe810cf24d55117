"""What is answered without Spark is what Spark answers: rows, order, types, names, and whether a column may be NULL."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from answer_cases import COLUMNS, NUMBERS, QUERIES, TABLES, Query, table
from homes import finished_view
from hypothesis import Phase, given, settings
from sessions import connect

import forebay


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forebay.Session]:
    home = tmp_path_factory.mktemp("answers")
    finished_view(home, "t", table(0, 0))
    with connect(home) as session:
        yield session


def without_spark(db: forebay.Session, query: str) -> pa.Table | None:
    """None where Spark answers."""
    found = dict(db.sql(f"EXPLAIN {query}").fetchall())
    return None if found["answered by"] == "Spark" else db.sql(query).arrow()


def plain(found: pa.Table) -> list[tuple[Any, ...]]:
    """Rows that can be compared: one NaN, one zero, and no time that Python has no year for."""
    columns = []
    for column in found.columns:
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
        columns.append([_plain(value) for value in column.to_pylist()])
    return list(zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((key, _plain(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value


def check(db: forebay.Session, query: Query) -> None:
    ours = without_spark(db, query.text)
    if ours is None:
        assert query.sums, f"only sums may be too large: {query.text}"
        return
    spark = db.sql(query.text).spark().toArrow()
    assert ours.schema == spark.schema, query.text
    mine, theirs = plain(ours), plain(spark)
    assert Counter(mine) == Counter(theirs), query.text
    assert _at(mine, query.keys) == _at(theirs, query.keys), query.text
    if query.tail:
        some = without_spark(db, query.text + query.tail)
        assert some is not None
        some_of_theirs = plain(db.sql(query.text + query.tail).spark().toArrow())
        assert len(some) == len(some_of_theirs)
        assert _at(plain(some), query.keys) == _at(some_of_theirs, query.keys)
        assert Counter(plain(some)) <= Counter(mine)


def _at(rows: list[tuple[Any, ...]], keys: tuple[int, ...]) -> list[tuple[Any, ...]]:
    return [tuple(row[key] for key in keys) for row in rows]


# To make a failing example smaller takes Spark minutes, and the queries are short as they are.
@settings(phases=[Phase.explicit, Phase.generate], max_examples=settings().max_examples // 3)
@given(TABLES, TABLES, QUERIES)
def test_random_queries_over_random_rows(
    db: forebay.Session, first: pa.Table, second: pa.Table, queries: list[Query]
) -> None:
    finished_view(db.home, "t", first, second)
    for query in queries:
        check(db, query)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_that_came_later_is_null_in_earlier_files(db: forebay.Session, name: str) -> None:
    rows = table(30, 1)
    finished_view(db.home, "t", rows.drop_columns([name]), rows)
    check(db, Query(f"SELECT {name} FROM t WHERE {name} IS NULL"))
    check(db, Query(f"SELECT count(*), count({name}) FROM t"))


@pytest.mark.parametrize("seed", range(4))
def test_totals_of_many_groups(db: forebay.Session, seed: int) -> None:
    finished_view(db.home, "t", table(2000, seed, extreme=False))
    for name in NUMBERS:
        average = "" if name == "d5" else f", avg({name})"  # which is Spark's own
        totals = f"count({name}), sum({name}), min({name}), max({name}){average}"
        check(db, Query(f"SELECT i8, few, {totals} FROM t GROUP BY i8, few"))
