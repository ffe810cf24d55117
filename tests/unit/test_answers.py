"""Which SELECTs are answered without Spark, why the others are not, and answers that are plain to see.

That the answers are Spark's, tests/integration/test_answers_equal_spark.py shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from homes import finished_view

from forebay.answers import view_tables as tables
from forebay.answers.answer import answer
from forebay.answers.question import NeedsSpark
from forebay.answers.view_tables import Table, view_table
from forebay.runtime.session_settings import changes_answers, from_outside
from forebay.sql import parse_one
from forebay.views.paths import paths_of

NAN = math.nan
BARS = pa.table(
    {
        "symbol": ["b", "a", None, "a"],
        "price": [1.5, NAN, -0.0, None],
        "Volume": pa.array([10, 20, 30, None], pa.int64()),
        "cents": pa.array([Decimal("1.10"), Decimal("2.20"), None, Decimal("3.30")], pa.decimal128(12, 2)),
        "small": pa.array([Decimal("1.1"), None, None, None], pa.decimal128(5, 1)),
        "at": pa.array([0, 1, 2, None], pa.timestamp("us", "UTC")),
        "tags": [["x"], [], None, ["y", None]],
    }
)


def table(rows: pa.Table = BARS) -> Table:
    return Table(rows.schema, "bars", lambda columns: rows.to_batches())


def ask(query: str, rows: pa.Table = BARS) -> list[tuple[Any, ...]]:
    statement: Any = parse_one(query)
    found = answer(statement.query, table(rows)).rows()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT 1", "reads from no table"),
        ("SELECT 1 AS one FROM bars", "1"),
        ("SELECT price + 1 FROM bars", "price + 1"),
        ("SELECT upper(symbol) FROM bars", "UPPER(symbol)"),
        ("SELECT nope FROM bars", "nope"),
        ("SELECT other.price FROM bars", "other.price"),
        ("SELECT bars.price FROM bars AS b", "bars.price"),
        ("SELECT symbol, symbol FROM bars", "two columns of one name"),
        ("SELECT * EXCEPT (price) FROM bars", "* EXCEPT"),
        ("SELECT a.symbol FROM bars a JOIN bars b ON a.symbol = b.symbol", "JOIN"),
        ("SELECT symbol FROM bars UNION ALL SELECT symbol FROM bars", "UNION"),
        ("WITH x AS (SELECT 1) SELECT symbol FROM bars", "WITH"),
        ("SELECT symbol FROM (SELECT * FROM bars) AS x", "a subquery in FROM"),
        ("SELECT symbol FROM bars TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT x FROM bars AS b(x, y)", "new names"),
        ("SELECT symbol FROM bars LATERAL VIEW explode(tags) AS tag", "LATERAL"),
        ("SELECT /*+ COALESCE(1) */ symbol FROM bars", "a hint"),
        ("SELECT symbol FROM bars SORT BY symbol", "SORT BY"),
        ("SELECT symbol FROM bars WHERE symbol RLIKE 'a'", "WHERE symbol RLIKE 'a'"),
        ("SELECT symbol FROM bars WHERE Volume > 1 AND Volume + 1 > 2", "WHERE Volume + 1 > 2"),
        ("SELECT symbol FROM bars WHERE NOT (Volume > 1 OR symbol = 5)", "WHERE symbol = 5"),
        ("SELECT symbol FROM bars WHERE Volume = '1'", "WHERE Volume = '1'"),
        ("SELECT symbol FROM bars WHERE price = 1e400", "1e400"),
        ("SELECT symbol FROM bars WHERE at > '2026'", "at > '2026'"),
        ("SELECT symbol FROM bars WHERE at > '2026-01-01T00:00:00Z'", "at > "),
        ("SELECT symbol FROM bars WHERE at > '2026-02-30'", "at > "),
        ("SELECT symbol FROM bars WHERE at > current_timestamp()", "at > "),
        ("SELECT symbol FROM bars WHERE symbol IN (SELECT symbol FROM bars)", "IN"),
        (r"SELECT symbol FROM bars WHERE symbol = '\n'", "a backslash"),
        ("SELECT symbol FROM bars WHERE tags = tags", "tags"),
        ("SELECT symbol FROM bars WHERE tags[0] = 'x'", "tags[0]"),
        ("SELECT sum(price) FROM bars", "order of rows"),
        ("SELECT avg(price) FROM bars", "order of rows"),
        ("SELECT avg(small) FROM bars", "avg(small) of DECIMAL(5,1)"),
        ("SELECT min(tags) FROM bars", "ARRAY<STRING>"),
        ("SELECT count(DISTINCT symbol) FROM bars", "DISTINCT"),
        ("SELECT count(symbol, price) FROM bars", "COUNT"),
        ("SELECT mean(Volume) FROM bars", "MEAN"),
        ("SELECT count(*) FILTER (WHERE Volume > 1) FROM bars", "FILTER"),
        ("SELECT count(*) OVER () FROM bars", "OVER"),
        ("SELECT sum(Volume) + 1 FROM bars", "+ 1"),
        ("SELECT symbol, count(*) FROM bars", "symbol"),
        ("SELECT symbol, count(*) FROM bars GROUP BY ROLLUP (symbol)", "ROLLUP"),
        ("SELECT symbol, count(*) FROM bars GROUP BY ALL", "GROUP BY"),
        ("SELECT count(*) FROM bars GROUP BY upper(symbol)", "UPPER(symbol)"),
        ("SELECT count(*) AS n FROM bars GROUP BY n", "n"),
        ("SELECT count(*) FROM bars GROUP BY tags", "GROUP BY tags"),
        ("SELECT DISTINCT tags FROM bars", "DISTINCT tags"),
        ("SELECT DISTINCT symbol, count(*) FROM bars GROUP BY symbol", "DISTINCT of groups"),
        (
            "SELECT symbol, sum(Volume) AS volume FROM bars GROUP BY symbol HAVING volume > 1",
            "HAVING volume > 1",
        ),
        ("SELECT symbol FROM bars GROUP BY symbol HAVING price > 1", "HAVING price > 1"),
        ("SELECT tags FROM bars ORDER BY tags", "ORDER BY tags"),
        ("SELECT symbol FROM bars ORDER BY 7", "7"),
        ("SELECT symbol FROM bars ORDER BY -Volume", "-Volume"),
        ("SELECT symbol FROM bars ORDER BY ALL", "ALL"),
        ("SELECT symbol FROM bars ORDER BY count(*)", "COUNT(*)"),
        ("SELECT DISTINCT symbol FROM bars ORDER BY Volume", "Volume"),
        ("SELECT symbol FROM bars LIMIT ALL", "LIMIT"),
        ("SELECT symbol FROM bars LIMIT 1 + 1", "LIMIT"),
        ("SELECT symbol FROM bars LIMIT 99999999999", "LIMIT"),
    ],
)
def test_what_may_be_another_answer_is_left_to_spark_and_named(query: str, reason: str) -> None:
    with pytest.raises(NeedsSpark) as left:
        ask(query)
    assert reason in str(left.value)


@pytest.mark.parametrize(
    ("condition", "volumes"),
    [
        ("symbol LIKE 'a%'", [20, None]),
        ("symbol <=> 'a'", [20, None]),
        ("symbol = NULL", []),
        ("price + 1 > 2", [10, 20]),
        ("Volume % 20 = 10", [10, 30]),
        ("Volume = 10.0", [10]),
        ("Volume = 1e1", [10]),
        ("Volume < 9223372036854775808", [10, 20, 30]),
        ("Volume > price", [10, 30]),
        ("cents <= 1.105", [10]),
        ("year(at) = 1970 AND length(symbol) = 1", [10, 20]),
    ],
)
def test_a_where_is_any_condition_that_no_row_makes_fail(condition: str, volumes: list[int | None]) -> None:
    assert ask(f"SELECT Volume FROM bars WHERE {condition}") == [(volume,) for volume in volumes]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT count(*), count(price), min(price), max(price) FROM bars", [(4, 3, -0.0, "NaN")]),
        ("SELECT symbol FROM bars ORDER BY price, Volume", [("a",), (None,), ("b",), ("a",)]),
        ("SELECT VOLUME AS v FROM bars b WHERE b.price >= 0 ORDER BY V DESC", [(30,), (20,), (10,)]),
        ("SELECT symbol, sum(Volume) AS v FROM bars GROUP BY symbol ORDER BY v DESC, 1", [(None, 30), ("a", 20), ("b", 10)]),
        ("SELECT avg(cents), sum(cents), avg(Volume) FROM bars", [(Decimal("2.200000"), Decimal("6.60"), 20.0)]),
        ("SELECT symbol FROM bars WHERE at = '1970-01-01' OR at > TIMESTAMP '1970-01-01 00:00:00.000001'", [("b",), (None,)]),
        ("SELECT DISTINCT symbol FROM bars ORDER BY symbol NULLS LAST LIMIT 2 OFFSET 1", [("b",), (None,)]),
        ("SELECT Volume FROM bars ORDER BY price DESC, Volume LIMIT 2 OFFSET 1", [(10,), (30,)]),
        ("SELECT Volume FROM bars ORDER BY Volume LIMIT 2", [(None,), (10,)]),
        ("SELECT Volume FROM bars ORDER BY Volume LIMIT 0", []),
        ("SELECT count(*) AS n FROM bars WHERE Volume > 99 HAVING n >= 0", [(0,)]),
        ("SELECT symbol FROM bars WHERE Volume > 99", []),
        ("SELECT symbol AS price, price AS p FROM bars WHERE price = 0 ORDER BY price", [(None, -0.0)]),
    ],
)  # fmt: skip
def test_answers(query: str, rows: list[tuple[Any, ...]]) -> None:
    found = [tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in row) for row in ask(query)]
    assert found == rows


@pytest.mark.parametrize(
    ("values", "kind", "function"),
    [
        ([2**62, 2**62], pa.int64(), "sum"),
        ([2**63 - 1, -(2**63)], pa.int64(), "sum"),  # adding up two others first would be too large
        ([2**52, 1, 1], pa.int64(), "avg"),
        ([Decimal(9) * 10**37, Decimal(1)], pa.decimal128(38, 0), "sum"),
        ([Decimal(9) * 10**37, None], pa.decimal128(38, 0), "avg"),
    ],
)
def test_a_sum_that_could_overflow_or_round_on_the_way_is_left_to_spark(
    values: list[Any], kind: pa.DataType, function: str
) -> None:
    with pytest.raises(NeedsSpark, match=r"too large|does not fit"):
        ask(f"SELECT {function}(x) FROM bars", pa.table({"x": pa.array(values, kind)}))


def test_any_rows_will_do_without_an_order_so_no_more_are_read() -> None:
    read: list[int] = []

    def batches(columns: Iterable[str]) -> Iterable[pa.RecordBatch]:
        for number in range(10):
            read.append(number)
            yield from BARS.to_batches()

    statement: Any = parse_one("SELECT symbol FROM bars LIMIT 3 OFFSET 2")
    assert len(answer(statement.query, Table(BARS.schema, "bars", batches)).rows()) == 3
    assert len(read) <= 3


def test_a_row_of_a_change_log_is_there_as_often_as_its_weight_says(tmp_path: Path) -> None:
    rows = pa.table({"a": ["x", "y", "z", "n"], "_weight": pa.array([2, 0, 1, None], pa.int64())})
    finished_view(tmp_path, "v", rows, kept="rows")
    delta = DeltaTable(str(paths_of(tmp_path, "v").table))
    statement: Any = parse_one("SELECT * FROM v ORDER BY a")
    found = answer(statement.query, view_table("v", delta, weighed=True)).rows()
    assert found.to_pylist() == [{"a": "x"}, {"a": "x"}, {"a": "z"}]


def test_a_table_that_is_too_large_for_memory_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_view(tmp_path, "v", BARS)
    monkeypatch.setattr(tables, "LARGEST", 100)
    with pytest.raises(NeedsSpark, match=r"v, version 0: 1 files, .* bytes, more than 100"):
        view_table("v", DeltaTable(str(paths_of(tmp_path, "v").table)), weighed=False)


def test_a_file_that_is_gone_is_for_spark_to_complain_about(tmp_path: Path) -> None:
    finished_view(tmp_path, "v", BARS)
    path = paths_of(tmp_path, "v").table
    found = view_table("v", DeltaTable(str(path)), weighed=False)
    for file in path.glob("*.parquet"):
        file.unlink()
    statement: Any = parse_one("SELECT * FROM v")
    with pytest.raises(NeedsSpark):
        answer(statement.query, found).rows()


def test_settings_of_spark_that_may_change_answers_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_ANSI_SQL_MODE", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert changes_answers({"spark.sql.shuffle.partitions": "2", "spark.executor.cores": "1"}) is None
    assert changes_answers({"spark.sql.session.timeZone": "UTC"}) is None
    assert changes_answers({"spark.sql.session.timeZone": "Asia/Tokyo"}) == "spark.sql.session.timeZone"
    assert changes_answers({"spark.sql.ansi.enabled": "false"}) == "spark.sql.ansi.enabled"
    assert from_outside() is None
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert from_outside() is None
    (tmp_path / "spark-defaults.conf").touch()
    assert from_outside() == str(tmp_path / "spark-defaults.conf")
    monkeypatch.setenv("SPARK_ANSI_SQL_MODE", "false")
    assert from_outside() == "SPARK_ANSI_SQL_MODE"
