"""Views over a change log: what they hold is what the query would give on the database's table."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest
from sessions import connect, name, notes, rows
from support import Cluster
from tests.property.change_logs import Database, Row

import forebay
from forebay.errors import ChangeLogError, OptionConflictError, UnsupportedSqlError

PATIENCE_S = 150  # each change of a batch is a merge, and machines are slow at times
COLUMNS = (
    "id BIGINT NOT NULL, city STRING, amount BIGINT, price DECIMAL(10, 2), Note STRING, tags ARRAY<STRING>"
)
VIEWS = {
    "everything": "SELECT * FROM {0}",
    "notes": "SELECT u.city, upper(u.Note) AS Note FROM {0} u WHERE u.amount > 0",
    "by_city": "SELECT city, COUNT(*) AS n, COUNT(amount) AS k, SUM(amount) AS total, AVG(amount) AS mean, "
    "SUM(price) AS prices, AVG(price) AS price FROM {0} GROUP BY city",
    "places": "SELECT DISTINCT city, amount FROM {0}",
}


def create_source(cluster: Cluster, source: str, topic: str, columns: str = COLUMNS) -> str:
    options = f"brokers = '{cluster.bootstrap_servers}', topic = '{topic}', include_metadata = true"
    return f"CREATE SOURCE {source} ({columns}) FROM KAFKA ({options}) FORMAT DEBEZIUM_JSON"


def script(cluster: Cluster, source: str, topic: str, names: Sequence[str]) -> str:
    views = [f"CREATE MATERIALIZED VIEW {view} AS {VIEWS[view].format(source)}" for view in names]
    return ";\n".join([create_source(cluster, source, topic), *views])


def churn(database: Database, chance: random.Random, count: int) -> None:
    """Insert, update and delete rows of twelve keys, with NULLs everywhere they may be."""
    for _ in range(count):
        row: Row | None = {
            "city": chance.choice(["Oslo", "Rome", "Lima", None]),
            "amount": chance.choice([None, -5, 0, 7, 10**12]),
            "price": chance.choice([None, "1.10", "-3.33", 2.5]),
            "Note": chance.choice([None, "é", "x"]),
            "tags": chance.choice([None, [], ["a", None]]),
        }
        database.apply(chance.randrange(12), chance.choice([row, row, row, None]))


def settled(db: forebay.Session) -> None:
    db.wait(until_caught_up=True, timeout=PATIENCE_S)


class Log:
    """Sends a database's changes to a topic, each key's to its partition, a few from one and then from another."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._sent = [0] * partitions

    def send(self, database: Database, chance: random.Random, wrapped: bool) -> None:
        messages = database.messages(len(self._sent), wrapped)
        while open_ := [at for at, part in enumerate(messages) if self._sent[at] < len(part)]:
            at = chance.choice(open_)
            key, value = messages[at][self._sent[at]]
            self._cluster.produce(self._topic, [value], key=key, partition=at)
            self._sent[at] += 1


def decimal(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value)).quantize(Decimal("0.01"))


def total(values: Iterable[Any]) -> Any:
    found = [value for value in values if value is not None]
    return sum(found[1:], found[0]) if found else None


def mean(values: Iterable[Any], exact: bool) -> Any:
    found = [value for value in values if value is not None]
    if not found:
        return None
    if not exact:
        return sum(found) / len(found)
    return (sum(found, Decimal(0)) / len(found)).quantize(Decimal("0.000001"), ROUND_HALF_UP)


def expected(database: Database) -> dict[str, Counter[Any]]:
    """What each of the views must hold."""
    table = [row | {"price": decimal(row["price"])} for row in database.rows.values()]
    cities: dict[Any, list[Row]] = {}
    for row in table:
        cities.setdefault(row["city"], []).append(row)
    amounts: Callable[[list[Row]], list[Any]] = lambda found: [row["amount"] for row in found]  # noqa: E731
    prices: Callable[[list[Row]], list[Any]] = lambda found: [row["price"] for row in found]  # noqa: E731
    groups = [
        (city, len(found), len([a for a in amounts(found) if a is not None]), total(amounts(found)),
         mean(amounts(found), False), total(prices(found)), mean(prices(found), True))
        for city, found in cities.items()
    ]  # fmt: skip
    return {
        "everything": Counter(repr(tuple(row.values())) for row in table),
        "notes": Counter(
            repr((row["city"], row["Note"] and row["Note"].upper()))
            for row in table
            if (row["amount"] or 0) > 0
        ),
        "by_city": Counter(map(repr, groups)),
        "places": Counter({repr((row["city"], row["amount"])) for row in table}),
    }


def assert_views_hold(db: forebay.Session, database: Database, names: Sequence[str]) -> None:
    wanted = expected(database)
    for view in names:
        assert Counter(repr(row) for row in rows(db, f"SELECT * FROM {view}")) == wanted[view], view


@pytest.mark.timeout(600)
@pytest.mark.parametrize("names", [("everything", "by_city"), ("notes", "places")], ids=" and ".join)
def test_a_change_log_ends_in_the_table_that_the_database_holds_across_a_restart(
    tmp_path: Path, cluster: Cluster, names: tuple[str, str]
) -> None:
    topic, source, home = cluster.make_topic(3), name("users"), tmp_path / "home"
    chance, database, log = random.Random(7), Database(), Log(cluster, topic, 3)
    churn(database, chance, 60)
    log.send(database, chance, wrapped=False)
    with connect(home) as db:
        db.execute(script(cluster, source, topic, names))
        settled(db)
        assert_views_hold(db, database, names)
        churn(database, chance, 40)
        log.send(database, chance, wrapped=False)
        settled(db)
        assert_views_hold(db, database, names)

    churn(database, chance, 60)
    log.send(database, chance, wrapped=True)
    with connect(home) as db:
        db.execute(script(cluster, source, topic, names))
        settled(db)
        assert_views_hold(db, database, names)
        assert "_weight" not in [row[0] for row in rows(db, f"DESCRIBE VIEW {names[0]}")]
        tombstones = sum(event is None for _, event in database.log)
        assert f"skipped: {tombstones} (header lines, comments or tombstones)" in notes(
            db, f"DESCRIBE EXTENDED SOURCE {source}"
        )
        for key in list(database.rows):
            database.apply(key, None)
        log.send(database, chance, wrapped=True)
        settled(db)
        assert_views_hold(db, database, names)
        assert [rows(db, f"SELECT * FROM {view}") for view in names] == [[], []]


def test_a_total_of_no_rows_is_a_row_and_a_watermark_drops_no_change(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source = cluster.make_topic(1), name("users")
    columns = "id BIGINT, amount BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
    old = {"id": 1, "amount": 5, "ts": 0}
    new = {"id": 2, "amount": None, "ts": 1_768_471_200_000}
    with connect(tmp_path) as db:
        db.execute(create_source(cluster, source, topic, columns))
        db.execute(f"CREATE MATERIALIZED VIEW totals AS SELECT COUNT(*) AS n, SUM(amount) AS s FROM {source}")
        db.execute(
            f"CREATE MATERIALIZED VIEW minutes AS SELECT window_start, COUNT(*) AS n FROM {source} "
            "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
        )
        for event, n, total, windows in (
            ({"op": "c", "after": old}, 1, 5, 1),
            ({"op": "c", "after": new}, 2, 5, 2),
            ({"op": "d", "before": old}, 1, None, 1),
            ({"op": "d", "before": new}, 0, None, 0),
        ):
            cluster.produce(topic, [json.dumps(event)])
            settled(db)
            assert rows(db, "SELECT * FROM totals") == [(n, total)]
            assert rows(db, "SELECT count(*), coalesce(sum(n), 0) FROM minutes") == [(windows, n)]


def test_a_row_that_is_taken_back_without_having_been_there_stops_the_view(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source = cluster.make_topic(1), name("users")
    update = {"op": "u", "before": {"id": 1, "city": "Oslo"}, "after": {"id": 1, "city": "Rome"}}
    cluster.produce(topic, [json.dumps(update)])
    with connect(tmp_path) as db:
        db.execute(create_source(cluster, source, topic))
        for view in ("everything", "by_city"):
            db.execute(f"CREATE MATERIALIZED VIEW {view} AS {VIEWS[view].format(source)}")
            with pytest.raises(ChangeLogError, match="taken back"):
                db.wait(until_caught_up=True, timeout=PATIENCE_S)
            db.execute(f"DROP MATERIALIZED VIEW {view}")


def test_what_cannot_be_kept_is_refused_where_it_stands_and_leaves_nothing(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source = cluster.make_topic(1), name("users")
    with connect(tmp_path) as db:
        db.execute(create_source(cluster, source, topic, "id BIGINT, m MAP<STRING, STRING>, x DOUBLE"))
        for query, complaint in (
            (f"SELECT MAX(id) AS m FROM {source}", "MAX over a change log"),
            (f"SELECT id, _offset FROM {source}", "'_offset' belongs to a change"),
            (f"SELECT id, m FROM {source}", "holds a MAP"),
            (f"SELECT SUM(x * 2) AS s FROM {source}", "SUM of DOUBLE"),
            (f"SELECT SUM(nothing) AS s FROM {source}", "nothing"),
        ):
            with pytest.raises(UnsupportedSqlError, match=complaint) as caught:
                db.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
            assert caught.value.position is not None
        assert db.sql("SHOW VIEWS").fetchall() == []


def test_included_parts_and_key_columns_are_columns_in_sql(tmp_path: Path, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(1), name("src")
    cluster.produce(topic, ["n;v", "# comment", "7;x"], key="3")
    options = (
        f"brokers = '{cluster.bootstrap_servers}', topic = '{topic}', key_format = 'csv', key_columns = 'k'"
    )
    head = f"CREATE SOURCE {source} (k INT, n BIGINT, v STRING) FROM KAFKA ({options}) "
    csv = "FORMAT CSV (delimiter = ';', header = true, comment = '#') "
    with connect(tmp_path) as db:
        with pytest.raises(OptionConflictError, match="two columns 'K'") as caught:
            db.execute(
                f"{head.replace(', topic', ', ' + repr('include.key.as') + ' = ' + repr('K') + ', topic')}{csv}"
            )
        assert caught.value.position is not None
        db.execute(f"{head}{csv}INCLUDE OFFSET AS o, KEY AS bytes, PARTITION AS p")
        assert rows(db, f"SELECT * FROM {source}") == [(3, 7, "x", b"3", 0, 2)]
        assert (
            "INCLUDE KEY AS bytes, PARTITION AS p, OFFSET AS o"
            in rows(db, f"SHOW CREATE SOURCE {source}")[0][0]
        )
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT k, o, n FROM {source}")
        settled(db)
        assert rows(db, "SELECT * FROM v") == [(3, 2, 7)]
        assert "skipped: 2 (header lines, comments or tombstones)" in notes(
            db, f"DESCRIBE EXTENDED SOURCE {source}"
        )
