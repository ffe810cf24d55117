"""A weighed query over a change log gives what the query as it was written gives on the database's table.

Both run in SQLite: the weights are plain SQL, and what is in question is their algebra.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import Any

import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from tests.property.change_logs import Database, databases
from tests.property.test_debezium_properties import NAMES, TABLE

from forebay import column_types as types
from forebay.formats import decoder
from forebay.sql import ChangeLog, CreateView, parse_one, plan

QUERIES = st.sampled_from(
    [
        "SELECT * FROM users",
        "SELECT city FROM users",
        "SELECT id, amount + 1 AS more FROM users WHERE city = 'Oslo' OR amount IS NULL",
        "SELECT COUNT(*) AS n, COUNT(amount) AS k, SUM(amount) AS s, AVG(amount) AS a FROM users",
        "SELECT city, COUNT(*) AS n, COUNT(name) AS k FROM users GROUP BY city",
        "SELECT city, name, SUM(amount) AS s, AVG(amount * 2) AS a FROM users GROUP BY city, name",
        "SELECT amount, SUM(u.id) + COUNT(*) AS x FROM users u WHERE amount > -2 GROUP BY amount",
    ]
)


def filled(rows: Iterable[dict[str, Any]], columns: list[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE users ({', '.join(columns)})")
    marks = ", ".join("?" * len(columns))
    connection.executemany(
        f"INSERT INTO users VALUES ({marks})", [[row[name] for name in columns] for row in rows]
    )
    return connection


def run(connection: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(sqlglot.transpile(query, "spark", "sqlite")[0]).fetchall()


@given(databases(), QUERIES, st.randoms())
def test_the_weights_do_not_change_what_a_query_means(database: Database, query: str, random: Any) -> None:
    statement = parse_one(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert isinstance(statement, CreateView)
    log = ChangeLog({"_op", "_ts_ms", "_weight"}, lambda _text, _alias: types.BIGINT)
    weighed = plan(statement.query, None, None, {"users": log})

    changes = decoder("debezium-json", TABLE, {}).decode([value for _, value in database.messages(1)[0]])
    rows = changes.batch.to_pylist()
    random.shuffle(rows)
    found: Counter[tuple[Any, ...]] = Counter()
    groups = run(filled(rows, [*NAMES, "_weight"]), weighed.spark_sql)
    for *row, weight in groups:
        if weighed.kept == "rows":
            found[tuple(row)] += weight
        elif weight or not weighed.merge_keys:
            found[tuple(row)] += 1
    found = Counter({row: count for row, count in found.items() if count})

    assert found == Counter(run(filled(database.rows.values(), NAMES), query))
