"""Queries over a change log: the weights that are put into them, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.sql import ChangeLog, CreateView, ViewPlan, parse_one, plan

TYPES: dict[str, pa.DataType] = {
    "id": types.BIGINT,
    "price": pa.decimal128(10, 2),
    "x": types.DOUBLE,
    "city": types.STRING,
}
HIDDEN = {"_op", "_ts_ms", "_weight", "_offset"}


def planned(query: str) -> ViewPlan:
    statement = parse_one(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert isinstance(statement, CreateView)
    log = ChangeLog(HIDDEN, lambda text, _: TYPES[text.split(".")[-1].strip()])
    return plan(statement.query, statement.emit, {"users": "fb_users"}, {"users": log})


@pytest.mark.parametrize(
    ("query", "spark"),
    [
        ("SELECT id, city FROM users", "SELECT id, city, _weight FROM fb_users AS users"),
        ("SELECT * FROM users WHERE id > 1", "SELECT * FROM fb_users AS users WHERE id > 1"),
        ("SELECT u.*, id + 1 AS n FROM users u", "SELECT u.*, id + 1 AS n FROM fb_users u"),
        ("SELECT id + 1 FROM users", "SELECT id + 1 AS _c0, _weight FROM fb_users AS users"),
    ],
)
def test_a_choice_of_rows_and_columns_keeps_their_weight(query: str, spark: str) -> None:
    found = planned(query)
    assert (found.spark_sql, found.kept, found.emit, found.merge_keys) == (spark, "rows", "changes", ())


COUNT_ID = "SUM(IF((id) IS NULL, 0, _weight))"
COUNT_PRICE = "SUM(IF((price) IS NULL, 0, _weight))"
SUM_ID = "SUM(CAST((id) AS DECIMAL(20, 0)) * _weight)"


@pytest.mark.parametrize(
    ("call", "spark"),
    [
        ("COUNT(*)", "COALESCE(SUM(_weight), 0)"),
        ("count( 1 )", "COALESCE(SUM(_weight), 0)"),
        ("COUNT(id)", f"COALESCE({COUNT_ID}, 0)"),
        ("SUM(id)", f"CASE WHEN {COUNT_ID} <> 0 THEN CAST({SUM_ID} AS BIGINT) END"),
        ("AVG(id)", f"(CAST({SUM_ID} AS DOUBLE) / NULLIF({COUNT_ID}, 0))"),
        ("SUM(price)", f"CASE WHEN {COUNT_PRICE} <> 0 THEN SUM(IF(_weight < 0, -(price), (price))) END"),
        ("AVG(price)", f"(CAST(SUM(IF(_weight < 0, -(price), (price))) / NULLIF({COUNT_PRICE}, 0) "
                       "AS DECIMAL(14, 6)))"),
    ],
)  # fmt: skip
def test_aggregates_become_sums_of_weights(call: str, spark: str) -> None:
    found = planned(f"SELECT city, {call} AS n FROM users GROUP BY city")
    assert found.spark_sql == (
        f"SELECT city, {spark} AS n, SUM(_weight) AS _weight FROM fb_users AS users GROUP BY city"
    )
    assert (found.kept, found.merge_keys) == ("groups", ("city",))


def test_aggregates_within_expressions_are_weighed_where_they_stand() -> None:
    found = planned("SELECT COUNT(*) + COUNT(id) FROM users")
    weighed = f"COALESCE(SUM(_weight), 0) + COALESCE({COUNT_ID}, 0) AS _c0, SUM(_weight) AS _weight"
    assert found.spark_sql == f"SELECT {weighed} FROM fb_users AS users"
    assert (found.kept, found.merge_keys) == ("groups", ())


def test_distinct_is_a_group_for_each_row() -> None:
    found = planned("SELECT DISTINCT city FROM users WHERE id > 1")
    assert found.spark_sql == (
        "SELECT  city, SUM(_weight) AS _weight FROM fb_users AS users WHERE id > 1 GROUP BY ALL"
    )
    assert (found.kept, found.merge_keys) == ("groups", ("city",))


def test_windows_are_groups_like_others() -> None:
    found = planned("SELECT window_start, COUNT(*) FROM users GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)")
    assert found.spark_sql == (
        "SELECT window(ts, '1 minute').start AS window_start, COALESCE(SUM(_weight), 0) AS count_all, "
        "SUM(_weight) AS _weight FROM fb_users AS users GROUP BY window(ts, '1 minute')"
    )
    assert found.merge_keys == ("window_start",)


@pytest.mark.parametrize(
    ("query", "message", "remedy"),
    [
        ("SELECT MAX(id) FROM users", "MAX over a change log cannot take a row back", "SELECT from that view"),
        ("SELECT city, COUNT(DISTINCT id) FROM users GROUP BY city", "DISTINCT", "COUNT, SUM and AVG can"),
        ("SELECT COUNT(*) FILTER (WHERE id > 1) FROM users", "FILTER", "COUNT, SUM and AVG can"),
        ("SELECT collect_list(id) FROM users", "COLLECT_LIST", "COUNT, SUM and AVG can"),
        ("SELECT mean(x) FROM users", "MEAN", "COUNT, SUM and AVG can"),
        ("SELECT SUM(x) FROM users", "SUM of DOUBLE", "DECIMAL"),
        ("SELECT AVG(city) FROM users", "AVG of STRING", "DECIMAL"),
        ("SELECT a.id FROM users a JOIN users b ON a.id = b.id", "a join", "make a view of each side"),
        ("SELECT a.id FROM users a, orders b", "a join", "make a view of each side"),
        ("SELECT id FROM (SELECT id FROM users)", "a subquery", "one SELECT"),
        ("SELECT id FROM users WHERE id IN (SELECT id FROM orders)", "a subquery", "one SELECT"),
        ("WITH u AS (SELECT id FROM users) SELECT id FROM u", "a subquery", "one SELECT"),
        ("SELECT id FROM users UNION ALL SELECT id FROM users", "a UNION", "a view of each part"),
        ("SELECT id, _op FROM users", "'_op' belongs to a change", "FORMAT json"),
        ("SELECT id FROM users WHERE _ts_ms > 5", "'_ts_ms' belongs to a change", "FORMAT json"),
        ("SELECT SUM(_weight) FROM users", "'_weight' belongs to a change", "FORMAT json"),
        ("SELECT id, users._offset FROM users", "'_offset' belongs to a change", "FORMAT json"),
        ("SELECT id AS _weight FROM users", "no column '_weight'", "another name"),
        ("SELECT id, rand() AS r FROM users", "rand()", "leave it out"),
        ("SELECT id, now() AS r FROM users", "another value when the row is taken back", "leave it out"),
        ("SELECT id, current_date AS r FROM users", "another value when the row is taken back", "leave it out"),
        ("SELECT window_start, COUNT(*) FROM users GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE",
         "never closes", "EMIT CHANGES"),
        ("SELECT city, COUNT(*) FROM users GROUP BY city HAVING COUNT(*) > 1", "HAVING", "when you SELECT"),
        ("SELECT session_window.start AS s, COUNT(*) FROM users GROUP BY SESSION(ts, INTERVAL '1' MINUTE)",
         "a session window", "SELECT from that view"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_up_to_date_is_refused_with_a_way_out(
    query: str, message: str, remedy: str
) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        planned(query)
    assert message in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.position is not None


def test_other_tables_are_not_weighed() -> None:
    statement = parse_one("CREATE MATERIALIZED VIEW v AS SELECT MAX(a) AS a FROM t")
    assert isinstance(statement, CreateView)
    assert plan(statement.query, None).kept is None
