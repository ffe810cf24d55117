"""What Spark is given for a view's query, and how the view is written."""

from __future__ import annotations

import pyarrow as pa
import pytest
import sqlglot

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.sql import CreateView, Select, ViewPlan, parse_one, plan, plan_select, tables

MAPPING = {"trades": "fb_trades", "orders": "fb_orders", "forebay_catalog.errors": "fb errors"}


def planned(query: str, columns: pa.Schema | None = None) -> ViewPlan:
    statement = parse_one(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert isinstance(statement, CreateView)
    return plan(statement.query, statement.emit, MAPPING, columns=columns, adding=columns is not None)


def selected(query: str) -> str:
    statement = parse_one(query)
    assert isinstance(statement, Select)
    return plan_select(statement.query, MAPPING)


def test_the_seed_example_compiles() -> None:
    assert planned(
        "SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) as window_start, COUNT(*) as order_count, "
        "SUM(amount) as total_amount FROM orders GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE"
    ) == ViewPlan(
        spark_sql=(
            "SELECT window(ts, '1 minute').start as window_start, COUNT(*) as order_count, "
            "SUM(amount) as total_amount FROM fb_orders AS orders GROUP BY window(ts, '1 minute')"
        ),
        tables=("orders",),
        aggregated=True,
        window="tumble",
        emit="window_close",
        merge_keys=(),
    )


@pytest.mark.parametrize(
    ("query", "spark_sql"),
    [
        (
            "SELECT window_start, window_end, count(*) AS n FROM trades "
            "GROUP BY HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE)",
            "SELECT window(ts, '1 minute', '30 seconds').start AS window_start, "
            "window(ts, '1 minute', '30 seconds').end AS window_end, count(*) AS n FROM fb_trades AS trades "
            "GROUP BY window(ts, '1 minute', '30 seconds')",
        ),
        (
            "SELECT SESSION_START(ts, INTERVAL '5' MINUTE), SESSION_END(ts, INTERVAL '5' MINUTE) AS e, count(*) AS n "
            "FROM trades t GROUP BY SESSION(t.ts, INTERVAL '5' MINUTE) EMIT ON WINDOW CLOSE",
            "SELECT session_window(ts, '5 minutes').start AS window_start, session_window(ts, '5 minutes').end AS e, "
            "count(*) AS n FROM fb_trades t GROUP BY session_window(t.ts, '5 minutes')",
        ),
        (
            "SELECT HOP_END(ts, '30 seconds', '1 minute'), count(*) AS n FROM trades GROUP BY HOP(ts, '30 seconds', '1 minute')",
            "SELECT window(ts, '1 minute', '30 seconds').end AS window_end, count(*) AS n FROM fb_trades AS trades "
            "GROUP BY window(ts, '1 minute', '30 seconds')",
        ),
        (
            "SELECT TUMBLE(ts, INTERVAL '1' DAY), count(*) AS n FROM trades GROUP BY TUMBLE(ts, INTERVAL '1' DAY)",
            "SELECT window(ts, '1 day') AS `window`, count(*) AS n FROM fb_trades AS trades GROUP BY window(ts, '1 day')",
        ),
    ],
)
def test_windows_become_those_of_spark(query: str, spark_sql: str) -> None:
    assert planned(query).spark_sql == spark_sql


@pytest.mark.parametrize(
    ("query", "spark_sql", "keys"),
    [
        (
            'SELECT "userId", count(*) FROM trades GROUP BY "userId"',
            "SELECT `userId`, count(*) AS count_all FROM fb_trades AS trades GROUP BY `userId`",
            ("userId",),
        ),
        (
            'SELECT t."userId" AS "User", sum("v") AS "total" FROM "trades" AS t WHERE "k" = \'a "b"\' GROUP BY t."userId"',
            "SELECT t.`userId` AS `User`, sum(`v`) AS `total` FROM fb_trades AS t WHERE `k` = 'a \"b\"' GROUP BY t.`userId`",
            ("User",),
        ),
        (
            'SELECT window_start, "k""k" AS k, max("v") FROM trades GROUP BY TUMBLE("ts", INTERVAL \'1\' MINUTE), "k""k"',
            "SELECT window(`ts`, '1 minute').start AS window_start, `k\"k`  AS k, max(`v`) AS max_v FROM fb_trades AS trades "
            "GROUP BY window(`ts`, '1 minute'), `k\"k` ",
            ("window_start", "k"),
        ),
        ('SELECT "a" FROM trades /* "b" */', "SELECT `a` FROM fb_trades AS trades", ()),
    ],
)  # fmt: skip
def test_a_name_in_double_quotes_is_a_name_everywhere(
    query: str, spark_sql: str, keys: tuple[str, ...]
) -> None:
    found = planned(query)
    assert (found.spark_sql, found.merge_keys) == (spark_sql, keys)
    assert selected(query).replace(" AS count_all", "") == spark_sql.replace(" AS count_all", "").replace(
        " AS max_v", ""
    )


def test_a_complaint_points_at_what_the_user_wrote() -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        planned('SELECT "a", "b" FROM trades ORDER BY "a"')
    assert 'SELECT "a", "b" FROM trades ORDER BY "a"' in str(caught.value)


OWN = {
    "TUMBLE": "TUMBLE(ts, INTERVAL '1' MINUTE)",
    "HOP": "HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE)",
    "SESSION": "SESSION(ts, INTERVAL '5' MINUTE)",
}
STYLES = {
    "TUMBLE": [
        "TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
        "TABLE(TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '60' SECONDS))",
        "TUMBLE(DATA => TABLE trades, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' MINUTE)",
        "tumble(trades, ts, INTERVAL '1 MINUTE')",
        "TUMBLE(\"trades\", ts, '1 minute')",
    ],
    "HOP": [
        "HOP(TABLE trades, DESCRIPTOR(ts), INTERVAL '30' SECONDS, INTERVAL '1' MINUTES)",
        "HOP(DATA => TABLE trades, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '30' SECOND, SIZE => INTERVAL '1' MINUTE)",
        "HOP(trades, ts, INTERVAL '30 SECONDS', INTERVAL '1 MINUTE')",
    ],
    "SESSION": [
        "SESSION(TABLE trades PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTES)",
        "TABLE(SESSION(TABLE trades PARTITION BY (k), DESCRIPTOR(ts), INTERVAL '5' MINUTE))",
        "SESSION(trades PARTITION BY k, ts, INTERVAL '5 MINUTES')",
    ],
}


@pytest.mark.parametrize("emit", ["EMIT CHANGES", "EMIT ON WINDOW CLOSE"])
@pytest.mark.parametrize(
    ("kind", "table"), [(kind, table) for kind, tables in STYLES.items() for table in tables]
)
def test_a_table_of_windows_is_the_same_query_as_a_window_in_group_by(
    kind: str, table: str, emit: str
) -> None:
    if kind == "SESSION" and emit == "EMIT CHANGES":
        pytest.skip("there is none")
    select = "SELECT window_start, window_end, k, count(*) AS n FROM"
    own = planned(f"{select} trades WHERE v > 1 GROUP BY {OWN[kind]}, k {emit}")
    assert planned(f"{select} {table} WHERE v > 1 GROUP BY window_start, window_end, k {emit}") == own
    # The source adds up for the one as for the other.
    fields = [
        pa.field("ts", types.TIMESTAMP),
        pa.field("k", types.STRING),
        pa.field("v", types.BIGINT),
    ]
    helped = planned(f"{select} trades WHERE v > 1 GROUP BY {OWN[kind]}, k {emit}", pa.schema(fields))
    assert (helped.partial is not None) == (kind != "SESSION")
    query = f"{select} {table} WHERE v > 1 GROUP BY window_start, window_end, k {emit}"
    assert planned(query, pa.schema(fields)) == helped
    keys = own.merge_keys and ("k", "window_start", "window_end")
    turned = planned(f"{select} {table} WHERE v > 1 GROUP BY k, window_start, window_end {emit}")
    assert (turned.window, turned.merge_keys) == (own.window, keys)
    # By an alias of the table, by place, and by one bound alone.
    for keys_of in (
        "w.window_start, w.window_end, k",
        "1, 2, 3",
        "window_end, k",
        "window_start, k, window_end",
    ):
        named = planned(f"{select} {table} AS w WHERE v > 1 GROUP BY {keys_of} {emit}")
        assert (named.window, named.emit) == (own.window, own.emit)
        assert (
            named.spark_sql.count("GROUP BY window(") + named.spark_sql.count("GROUP BY session_window(") == 1
        )


@pytest.mark.parametrize(
    ("query", "spark_sql"),
    [
        (
            "SELECT * FROM TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
            "SELECT * FROM (SELECT *, window(ts, '1 minute').start AS window_start, window(ts, '1 minute').end AS window_end, "
            "(window(ts, '1 minute').end - INTERVAL '0.001' SECOND) AS window_time FROM fb_trades AS trades) AS trades",
        ),
        (
            "SELECT w.k, window_start FROM HOP(trades, ts, '30 seconds', '1 minute') AS w WHERE w.v > 1",
            "SELECT w.k, window_start FROM (SELECT *, window(ts, '1 minute', '30 seconds').start AS window_start, "
            "window(ts, '1 minute', '30 seconds').end AS window_end FROM fb_trades) AS w WHERE w.v > 1",
        ),
        (
            "SELECT window_start AS s, max(window_time) AS t FROM TUMBLE(TABLE trades, DESCRIPTOR(`order`), '1 minute') "
            "GROUP BY s",
            "SELECT window(`order`, '1 minute').start AS s, max((window(`order`, '1 minute').end - INTERVAL '0.001' SECOND)) AS t "
            "FROM fb_trades AS trades GROUP BY window(`order`, '1 minute')",
        ),
        (
            "SELECT window_start, o.k, count(*) AS n FROM TUMBLE(trades, ts, '1 minute') t JOIN orders o ON t.k = o.k "
            "GROUP BY window_start, window_end, o.k",
            "SELECT window(t.ts, '1 minute').start AS window_start, o.k, count(*) AS n FROM fb_trades t JOIN fb_orders o "
            "ON t.k = o.k GROUP BY window(t.ts, '1 minute'), o.k",
        ),
    ],
)  # fmt: skip
def test_a_table_of_windows_has_the_bounds_as_columns(query: str, spark_sql: str) -> None:
    found = planned(query)
    assert (found.spark_sql, found.plain) == (spark_sql, False)


def test_two_tables_of_windows_are_joined_by_their_bounds() -> None:
    query = (
        "SELECT l.k, l.window_start FROM TUMBLE(trades, ts, '1 minute') l JOIN TUMBLE(orders, ts, '1 minute') r "
        "ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end"
    )
    found = planned(query)
    assert found.tables == ("trades", "orders")
    assert found.spark_sql.count(".start AS window_start") == 2


def test_window_start_without_a_window_is_a_column_like_any_other() -> None:
    found = planned("SELECT window_start, sum(n) AS n FROM trades GROUP BY window_start")
    assert (
        found.spark_sql == "SELECT window_start, sum(n) AS n FROM fb_trades AS trades GROUP BY window_start"
    )
    assert found.merge_keys == ("window_start",)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("FROM trades WHERE trades.a > 1", "FROM fb_trades AS trades WHERE trades.a > 1"),
        (
            "FROM trades AS t JOIN Orders ON t.a = orders.a",
            "FROM fb_trades AS t JOIN fb_orders AS Orders ON t.a = orders.a",
        ),
        (
            "FROM forebay_catalog.errors WHERE forebay_catalog.errors.a = 1",
            "FROM `fb errors` AS errors WHERE errors.a = 1",
        ),
        ("FROM (SELECT * FROM trades) q", "FROM (SELECT * FROM fb_trades AS trades) q"),
        (
            "FROM other WHERE a IN (SELECT a FROM orders)",
            "FROM other WHERE a IN (SELECT a FROM fb_orders AS orders)",
        ),
    ],
)
def test_renamed_tables_are_still_known_by_their_names(query: str, names: str) -> None:
    assert planned(f"SELECT a {query}").spark_sql == f"SELECT a {names}"
    assert selected(f"SELECT a {query}") == f"SELECT a {names}"


def test_the_names_of_ctes_are_no_tables() -> None:
    query = "WITH trades AS (SELECT * FROM trades), x AS (SELECT * FROM trades) SELECT x.a FROM x JOIN b.c ON x.a = c.a"
    found = planned(query)
    assert found.tables == ("trades", "b.c")
    assert found.spark_sql == query.replace("* FROM trades)", "* FROM fb_trades AS trades)", 1)


def test_what_is_not_ours_stays_as_it_was_written() -> None:
    text = "listagg(x) AS l, ts - INTERVAL 5 MINUTES 30 SECONDS AS t, 'it''s' AS s /* why */"
    assert planned(f"SELECT {text} FROM other").spark_sql == f"SELECT {text} FROM other"


@pytest.mark.parametrize(
    ("query", "emit", "keys"),
    [
        ("SELECT a FROM trades", "append", ()),
        ("SELECT a FROM trades EMIT CHANGES", "append", ()),
        ("SELECT a FROM trades UNION ALL SELECT a FROM orders", "append", ()),
        ("SELECT count(*) AS n FROM trades", "changes", ()),
        ("SELECT a, count(*) AS n FROM trades GROUP BY a", "changes", ("a",)),
        ("SELECT a AS x, count(*) AS n FROM trades GROUP BY a", "changes", ("x",)),
        ("SELECT a AS x, count(*) AS n FROM trades GROUP BY x", "changes", ("x",)),
        ("SELECT trades.a, B, count(*) AS n FROM trades GROUP BY A, trades.b", "changes", ("a", "B")),
        ("SELECT a, b, count(*) AS n FROM trades GROUP BY 2, 1", "changes", ("b", "a")),
        ("SELECT a, count(*) AS n FROM trades GROUP BY ALL", "changes", ("a",)),
        ("SELECT lower(a) AS l, count(*) AS n FROM trades GROUP BY LOWER(trades.a)", "changes", ("l",)),
        ("SELECT DISTINCT a, b FROM trades", "changes", ("a", "b")),
        ("SELECT a FROM trades UNION SELECT a FROM orders", "changes", ("a",)),
        ("SELECT window_end, a, mean(b) AS m FROM trades GROUP BY a, TUMBLE(ts, '1 minute')", "changes", ("a", "window_end")),
        ("SELECT window.start, count(*) AS n FROM trades GROUP BY window(ts, '1 minute')", "changes", ("start",)),
        ("WITH q AS (SELECT a AS k, count(*) AS n FROM trades GROUP BY a) SELECT k AS key, n FROM q", "changes", ("key",)),
        ("SELECT * FROM (SELECT a, count(*) AS n FROM trades GROUP BY a) q", "changes", ("a",)),
        ("SELECT count(*) AS n FROM trades GROUP BY TUMBLE(ts, '1 minute'), a EMIT ON WINDOW CLOSE", "window_close", ()),
    ],
)  # fmt: skip
def test_how_a_view_is_written_follows_from_its_query(query: str, emit: str, keys: tuple[str, ...]) -> None:
    found = planned(query)
    assert (found.emit, found.merge_keys) == (emit, keys)
    assert found.aggregated == (emit != "append")


@pytest.mark.parametrize(
    ("projection", "alias"),
    [
        ("count(*)", "count_all"),
        ("COUNT(DISTINCT a)", "count_distinct_a"),
        ("sum(trades.amount)", "sum_amount"),
        ("max_by(a, b)", "max_by_a_b"),
        ("sum(a + b)", "_c0"),
        ("sum(`odd name`)", "_c0"),
        ("1 + 1", "_c0"),
        ("count(*) AS n", ""),
        ("a", ""),
    ],
)
def test_outputs_without_a_name_get_a_stable_one(projection: str, alias: str) -> None:
    expected = f"SELECT {projection}{f' AS {alias}' if alias else ''} FROM other"
    assert planned(f"SELECT {projection} FROM other").spark_sql == expected


def test_a_made_name_gives_way_to_a_given_one() -> None:
    assert planned("SELECT sum(a), b AS sum_a, sum(a) FROM other").spark_sql == (
        "SELECT sum(a) AS _c0, b AS sum_a, sum(a) AS _c2 FROM other"
    )


@pytest.mark.parametrize(
    ("query", "column", "message", "remedy"),
    [
        ("SELECT a FROM trades ORDER BY a", 61, "a view is a table", "when you SELECT"),
        ("SELECT a FROM trades LIMIT 5", 58, "LIMIT in a view", "when you SELECT"),
        ("SELECT a FROM (SELECT a FROM trades LIMIT 5)", 73, "LIMIT in a view", "when you SELECT"),
        ("SELECT a, count(*) AS n FROM trades GROUP BY a EMIT ON WINDOW CLOSE", 31, "no window that could close", "TUMBLE"),
        ("SELECT a FROM trades EMIT ON WINDOW CLOSE", 31, "no window that could close", "TUMBLE"),
        ("SELECT count(*) AS n FROM trades GROUP BY SESSION(ts, '1 minute') EMIT CHANGES", 31, "session window", "EMIT ON WINDOW CLOSE"),
        ("SELECT count(*) AS n FROM trades GROUP BY SESSION(ts, '1 minute')", 31, "session window", "EMIT ON WINDOW CLOSE"),
        ("SELECT count(*) AS n FROM trades GROUP BY symbol", 73, "symbol is in GROUP BY but not in SELECT", "add symbol"),
        ("SELECT count(*) AS n FROM trades GROUP BY TUMBLE(ts, '1 minute')", 73, "window_start or window_end", "add window_start"),
        ("SELECT a, count(*) AS n FROM trades GROUP BY a HAVING count(*) < 5", 85, "HAVING", "filter when you SELECT"),
        ("SELECT a, a FROM trades", 41, "two columns are named 'a'", "alias"),
        ("SELECT a AS x, b AS X FROM trades", 46, "two columns are named 'X'", "alias"),
        ("SELECT a AS `x y` FROM trades", 43, "no column named 'x y'", "underscores"),
        ("SELECT DISTINCT * FROM trades", 31, "DISTINCT *", "name the columns"),
        ("SELECT explode(a) FROM trades", 38, "needs an alias", "AS item"),
        ("SELECT a, row_number() OVER (ORDER BY a) AS n FROM trades", 41, "OVER", "TUMBLE"),
        ("SELECT a FROM trades EXCEPT SELECT a FROM orders", 66, "EXCEPT", "a view of each part"),
        ("SELECT a, b, count(*) AS n FROM trades GROUP BY ROLLUP(a, b)", 86, "ROLLUP", "a view for each"),
        ("SELECT 1 AS a", 31, "reads from nothing", "FROM source"),
        ("SELECT count(*) AS n FROM (SELECT DISTINCT a FROM trades)", 74, "an aggregate of an aggregate", "when you SELECT from that view"),
        ("SELECT * FROM (SELECT a, count(*) AS n FROM trades GROUP BY a) WHERE n > 1", 53, "an aggregate inside", "when you SELECT from that view"),
        ("SELECT TUMBLE_START(ts, '2 minutes'), count(*) FROM trades GROUP BY TUMBLE(ts, '1 minute')", 38, "other arguments", "repeat"),
        ("SELECT TUMBLE_START(ts, '2 minutes'), count(*) FROM trades GROUP BY a", 38, "without a window", "TUMBLE(…)"),
        ("SELECT count(*) FROM trades GROUP BY TUMBLE_START(ts, '2 minutes')", 68, "when a window closes", "GROUP BY TUMBLE"),
        ("SELECT count(*) FROM trades GROUP BY TUMBLE(ts, '1 minute'), TUMBLE(ts, '2 minutes')", 92, "one window", "each window"),
        ("SELECT count(*) FROM trades GROUP BY TUMBLE(ts)", 68, "number of arguments", "time, size"),
        ("SELECT count(*) FROM trades GROUP BY HOP(ts, '2 minutes', '1 minute')", 68, "slides further", "time, slide, size"),
        ("SELECT count(*) FROM trades GROUP BY TUMBLE(ts, INTERVAL '1' MONTH)", 88, "no fixed length", "INTERVAL"),
        ("SELECT count(*) FROM trades GROUP BY TUMBLE(ts, INTERVAL '0' SECOND)", 88, "not positive", "INTERVAL"),
        ("SELECT count(*) FROM trades GROUP BY TUMBLE(ts, size)", 79, "not a constant INTERVAL", "INTERVAL"),
        ("SELECT window_start FROM SESSION(trades, ts, '1 minute')", 56, "SESSION without GROUP BY", "GROUP BY window_start"),
        ("SELECT window_start, k, count(*) AS n FROM SESSION(TABLE trades, DESCRIPTOR(ts), '1 minute') GROUP BY window_start, k", 74, "not those of the groups", "PARTITION BY k"),
        ("SELECT window_start, count(*) AS n FROM SESSION(trades PARTITION BY k, ts, '1 minute') GROUP BY window_start", 71, "not those of the groups", "PARTITION BY k"),
        ("SELECT a FROM HOP(trades, ts, '2 minutes', '1 minute')", 45, "slides further", "time, slide, size"),
        ("SELECT window_start, count(*) AS n FROM HOP(trades, ts, '1 minute', '2 minutes') WHERE window_start > now() GROUP BY window_start", 118, "WHERE cannot look at the bounds of HOP", "when you SELECT"),
        ("SELECT count(*) AS n FROM trades WHERE HOP_END(ts, '1 minute', '2 minutes') > now() GROUP BY HOP(ts, '1 minute', '2 minutes') EMIT ON WINDOW CLOSE", 70, "WHERE cannot look at the bounds of HOP", "when you SELECT"),
        ("SELECT a FROM TUMBLE(trades, ts, size)", 64, "not a constant INTERVAL", "INTERVAL"),
        ("SELECT window_time, count(*) AS n FROM trades GROUP BY TUMBLE(ts, '1 minute'), window_time", 86, "window_start or window_end is in GROUP BY", "add window_start"),
    ],
)  # fmt: skip
def test_what_a_view_cannot_do_is_refused_with_its_reason(
    query: str, column: int, message: str, remedy: str
) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        planned(query)
    error = caught.value
    assert error.position is not None
    assert message in error.message
    assert remedy in error.remedy
    assert (error.position.line, error.position.column) == (1, column)
    assert error.statement.endswith(query)


def test_a_plain_select_may_order_limit_and_window() -> None:
    query = "SELECT window_start, count(*) FROM trades GROUP BY TUMBLE(ts, '1 hour') ORDER BY window_start LIMIT 3"
    assert selected(query) == (
        "SELECT window(ts, '1 hour').start AS window_start, count(*) FROM fb_trades AS trades "
        "GROUP BY window(ts, '1 hour') ORDER BY window_start LIMIT 3"
    )


def test_a_group_that_no_longer_passes_having_is_taken_back_by_tasks_and_not_by_spark() -> None:
    columns = pa.schema([("a", pa.int64()), ("b", pa.string())])
    having = parse_one("SELECT a, count(*) AS n FROM trades GROUP BY a HAVING n < 5").query
    found = plan(having, None, columns=columns)
    assert (found.emit, found.merge_keys) == ("changes", ("a",))
    with pytest.raises(UnsupportedSqlError, match="HAVING cannot take back"):
        found.for_spark()
    inner = parse_one("SELECT * FROM (SELECT a, count(*) AS n FROM trades GROUP BY a HAVING n < 5)").query
    with pytest.raises(UnsupportedSqlError, match="HAVING cannot take back"):
        plan(inner, None, columns=columns)


def test_having_and_order_by_see_the_window_but_not_its_time() -> None:
    query = (
        "SELECT count(*) AS n FROM trades GROUP BY TUMBLE(ts, '1 hour') "
        "HAVING TUMBLE_END(ts, '1 hour') > now() AND window_start IS NOT NULL ORDER BY window_start"
    )
    assert selected(query) == (
        "SELECT count(*) AS n FROM fb_trades AS trades GROUP BY window(ts, '1 hour') "
        "HAVING window.end > now() AND window.start IS NOT NULL ORDER BY window.start"
    )


def test_a_query_built_by_hand_is_planned_too() -> None:
    query = sqlglot.select("a").from_("trades")
    assert plan(query, None, MAPPING).spark_sql == "SELECT a FROM fb_trades AS trades"
    assert tables(query) == ("trades",)


@pytest.mark.parametrize(
    ("query", "plain"),
    [
        ("SELECT * FROM orders", True),
        ("SELECT o.*, upper(c) AS u FROM orders o WHERE a > 1", True),
        ("SELECT * FROM orders JOIN trades ON orders.id = trades.id", False),
        ("SELECT * FROM orders, trades", False),
        ("SELECT * FROM orders UNION ALL SELECT * FROM trades", False),
        ("SELECT * FROM (SELECT * FROM orders)", False),
        ("WITH o AS (SELECT * FROM orders) SELECT * FROM o", False),
        ("SELECT a, count(*) AS n FROM orders GROUP BY a", False),
        ("SELECT DISTINCT a FROM orders", False),
    ],
)
def test_rows_of_one_source_are_plain_and_all_else_is_not(query: str, plain: bool) -> None:
    assert planned(query).plain is plain
