"""Who answers a SELECT: this process where it can, Spark for all the rest by itself, and EXPLAIN says which."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from homes import finished_view
from sessions import connect

import forebay
from forebay.errors import SelectFailedError, UnknownObjectError, UnsupportedSqlError

BARS = pa.table(
    {
        "symbol": ["b", "a", None, "a"],
        "price": [1.5, math.nan, -0.0, None],
        "volume": pa.array([10, 20, 30, None], pa.int64()),
        "small": pa.array([Decimal("1.1"), None, Decimal("2.3"), None], pa.decimal128(5, 1)),
        "at": pa.array([0, 1, 2, None], pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forebay.Session]:
    home = tmp_path_factory.mktemp("answers")
    finished_view(home, "bars", BARS)
    finished_view(home, "large", pa.table({"n": [2**63 - 1, 1], "x": [0.5, 1.5]}))
    weights = pa.array([2, 0, 1], pa.int64())
    finished_view(home, "log", pa.table({"a": ["x", "y", "z"], "_weight": weights}), kept="rows")
    with connect(home) as session:
        session.execute("CREATE SOURCE ticks (id BIGINT) FROM DATAGEN (number_of_rows = 3)")
        yield session


def explained(db: forebay.Session, query: str) -> dict[str, Any]:
    return dict(db.sql(f"EXPLAIN {query}").fetchall())


@pytest.mark.parametrize(
    ("query", "reason", "rows"),
    [
        ("SELECT count(*) FROM ticks", "ticks, which is a source", [(3,)]),
        ("SELECT upper(symbol) FROM bars WHERE volume = 10", "UPPER(symbol)", [("B",)]),
        ("SELECT volume / 4 FROM bars WHERE volume = 10", "volume / 4", [(2.5,)]),
        ("SELECT symbol FROM bars WHERE symbol RLIKE 'b'", "WHERE symbol RLIKE 'b'", [("b",)]),
        ("SELECT symbol FROM bars WHERE volume = '10'", "WHERE volume = '10'", [("b",)]),
        ("SELECT volume FROM bars WHERE at > '1970'", "WHERE at > '1970'", [(20,), (30,)]),
        ("SELECT CAST(volume AS STRING) FROM bars WHERE volume = 10", "CAST(volume AS STRING)", [("10",)]),
        ("SELECT sum(x) FROM large", "sum(x), which rounds by the order of rows", [(2.0,)]),
        ("SELECT avg(small) FROM bars", "avg(small) of DECIMAL(5,1)", [(Decimal("1.70000"),)]),
        ("SELECT count(DISTINCT symbol) FROM bars", "COUNT(DISTINCT symbol)", [(2,)]),
        ("SELECT b.a FROM log a JOIN log b ON a.a = b.a WHERE a.a = 'z'", "JOIN", [("z",)]),
        ("SELECT symbol FROM bars WHERE volume IN (SELECT max(volume) FROM bars)", "WHERE volume IN", [(None,)]),
        (r"SELECT symbol FROM bars WHERE symbol <> '\t' AND symbol > 'a'", "a backslash in a text", [("b",)]),
    ],
)  # fmt: skip
def test_what_is_spark_s_goes_to_spark_by_itself_and_explain_says_why(
    db: forebay.Session, query: str, reason: str, rows: list[tuple[Any, ...]]
) -> None:
    found = explained(db, query)
    assert found["answered by"] == "Spark"
    assert reason in found["because of"]
    assert "Physical Plan" in found["plan"]
    assert db.sql(query).fetchall() == rows


def test_a_sum_that_may_overflow_turns_out_to_be_spark_s_when_it_is_asked_for(db: forebay.Session) -> None:
    query = "SELECT sum(n) FROM large"
    assert "too large" in explained(db, query)["because of"]
    with pytest.raises(SelectFailedError, match="ARITHMETIC_OVERFLOW"):
        db.sql(query).arrow()
    assert db.sql("SELECT sum(n) FROM large WHERE n = 1").fetchall() == [(1,)]


def test_nan_and_minus_zero_are_found_by_spark_too(db: forebay.Session) -> None:
    """Parquet's statistics leave out NaN, and its dictionaries tell -0.0 from 0.0."""
    assert db.sql("SELECT volume FROM bars WHERE price > 5").spark().collect() == [(20,)]
    assert db.sql("SELECT volume FROM bars WHERE price = 0").spark().collect() == [(30,)]
    assert db.sql("SELECT concat(symbol, '') FROM bars WHERE price > 5").fetchall() == [("a",)]


def test_each_row_of_a_change_log_is_there_as_often_as_it_should_be(db: forebay.Session) -> None:
    assert explained(db, "SELECT a FROM log")["answered by"] == "Arrow, in this process"
    assert db.sql("SELECT * FROM log ORDER BY a").fetchall() == [("x",), ("x",), ("z",)]
    assert sorted(db.sql("SELECT * FROM log").spark().collect()) == [("x",), ("x",), ("z",)]
    assert db.sql("SELECT count(*) FROM log").fetchall() == [(3,)]


@pytest.mark.parametrize("table", ["source_errors", "dead_letters"])
def test_tables_of_the_catalog_are_what_spark_makes_of_them(db: forebay.Session, table: str) -> None:
    query = f"SELECT * FROM forebay_catalog.{table}"
    assert explained(db, query)["answered by"] == "Arrow, in this process"
    found, spark = db.sql(query).arrow(), db.sql(query).spark().toArrow()
    assert found.schema == spark.schema
    assert found.to_pylist() == spark.to_pylist()
    counted = f"SELECT count(*) AS n, max(source_name) FROM forebay_catalog.{table}"
    if table == "source_errors":
        assert db.sql(counted).fetchall() == [(1, "ticks")]


def test_errors_are_those_of_spark_and_of_the_catalog(db: forebay.Session) -> None:
    with pytest.raises(UnsupportedSqlError, match="there is no column 'volum'") as unresolved:
        db.sql("SELECT volum FROM bars")
    assert "did you mean volume?" in str(unresolved.value)
    assert "1 | SELECT volum FROM bars" in str(unresolved.value)
    with pytest.raises(UnknownObjectError, match="there is no view or source 'bar'") as unknown:
        db.sql("SELECT * FROM bar")
    assert "did you mean 'bars'" in str(unknown.value)
    with pytest.raises(UnknownObjectError, match="there is no view or source 'bar'"):
        db.sql("SELECT * FROM bars JOIN bar ON true")


def test_no_spark_is_started_for_an_answer_that_needs_none(tmp_path: Path) -> None:
    finished_view(tmp_path, "bars", BARS)
    with connect(tmp_path) as session:
        assert session.sql("SELECT count(*) FROM bars").fetchall() == [(4,)]
        with pytest.raises(UnknownObjectError):
            session.sql("SELECT * FROM bar")
        assert not session.spark_started


@pytest.mark.parametrize("started", [False, True])
def test_with_settings_that_may_change_answers_spark_answers(tmp_path: Path, started: bool) -> None:
    finished_view(tmp_path, "bars", BARS)
    with connect(tmp_path) as session:
        given = {} if started else {"spark.sql.caseSensitive": "true"}
        with forebay.connect(tmp_path, spark_conf=given) as other:
            if started:
                other.spark.conf.set("spark.sql.caseSensitive", "true")
            found = explained(other, "SELECT symbol FROM bars")
            assert (found["answered by"], found["because of"]) == (
                "Spark",
                "the setting spark.sql.caseSensitive",
            )
        assert explained(session, "SELECT symbol FROM bars")["answered by"] == "Arrow, in this process"
