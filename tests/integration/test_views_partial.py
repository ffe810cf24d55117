"""Where a source adds up before Spark does, a view holds what the same query gives over the rows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from sessions import catalog_of, caught_up, connect, name, rows
from support import Cluster

from forebay.errors import QueryFailedError
from forebay.runtime.session import Session

COLUMNS = "k STRING, side STRING, n BIGINT, i INT, x DOUBLE, f FLOAT, flag BOOLEAN, d DATE, ts TIMESTAMP"
QUERIES = {
    "keys": "SELECT k, count(*) AS n, count(x) AS nx, sum(n) AS sn, sum(i) AS si, min(n) AS lo, max(n) AS hi, "
    "min(ts) AS first, max(d) AS day, avg(i) AS mean, max(f) AS top, sum(x) AS sx, avg(x) AS ax, min(x) AS least, "
    "avg(f) AS af FROM {s} GROUP BY k",
    "all": "SELECT count(*) AS n, sum(n) AS s, max(ts) AS last FROM {s} "
    "WHERE NOT (i > 5 AND side = 'buy') OR f IS NULL",
    "tumble": "SELECT window_start, window_end, k, count(*) AS n, max(x) AS top FROM {s} "
    "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), k",
    "hop": "SELECT window_start, count(*) AS n, sum(n) AS s FROM {s} WHERE upper(side) <> 'SELL' "
    "GROUP BY HOP(ts, INTERVAL '20' SECOND, INTERVAL '50' SECOND)",
    "expressions": "SELECT upper(k) AS u, year(d) AS y, count(*) + 1 AS n, sum(i) / count(*) AS r FROM {s} "
    "WHERE (x > 0.5 OR NOT i BETWEEN -10 AND 10) AND side IN ('buy', 'other') AND flag GROUP BY upper(k), year(d)",
    # Nearly a group for each row.
    "many": "SELECT n, ts, window_start, count(*) AS c, sum(x) AS s FROM {s} "
    "GROUP BY n, ts, TUMBLE(ts, INTERVAL '1' MINUTE)",
}


def batched(kinds: Iterable[str], count: int) -> list[list[str]]:
    listed = list(kinds)
    return [listed[at : at + count] for at in range(0, len(listed), count)]


def record(chance: random.Random, number: int) -> str:
    def some(value: object) -> object:
        return None if chance.random() < 0.1 else value

    return json.dumps(
        {
            "k": some(chance.choice(["a", "b", "ä", "", "longer than the others"])),
            "side": some(chance.choice(["buy", "sell"])),
            "n": some(chance.randrange(-(2**40), 2**40)),
            "i": some(chance.randrange(-100, 100)),
            "x": some(chance.choice([0.0, -0.0, 1.5, -2.25, 1e6, -3e5, 0.125])),
            "f": some(chance.choice([0.5, -0.5, 2.0])),
            "flag": some(chance.random() < 0.5),
            "d": some(f"20{chance.randrange(10, 30)}-01-{chance.randrange(10, 28)}"),
            # Before 1970 as well: a pane's number is rounded down, not towards 0.
            "ts": some(
                f"{chance.choice([1969, 2024])}-12-31T23:5{chance.randrange(10)}:{number % 60:02}.25Z"
            ),
        }
    )


def source_of(db: Session, cluster: Cluster, records: list[str], columns: str = COLUMNS) -> str:
    topic, source = cluster.make_topic(3), name("src")
    cluster.produce(topic, records)
    db.execute(
        f"CREATE SOURCE {source} ({columns}) FROM KAFKA (brokers = '{cluster.bootstrap_servers}', "
        f"topic = '{topic}', group_id = '{name('group')}', startup_mode = 'earliest', max_records_per_batch = 700) FORMAT JSON"
    )
    return source


def is_added_up(db: Session, view: str) -> bool:
    with catalog_of(db) as catalog:
        known = catalog.get(view)
    assert known is not None
    shared = bool(known.detail.get("shared") and known.detail["emit"] == "changes")
    return shared or bool(known.detail.get("partial"))


def same(found: list[tuple[object, ...]], wanted: list[tuple[object, ...]]) -> None:
    def plain(row: tuple[object, ...]) -> str:
        # Sums of doubles depend on the order, in Spark as well.
        return repr([float(f"{cell:.9g}") + 0.0 if isinstance(cell, float) else cell for cell in row])

    assert sorted(map(plain, found)) == sorted(map(plain, wanted))


def test_a_view_over_sums_of_the_source_is_the_same_as_over_its_rows(db: Session, cluster: Cluster) -> None:
    chance = random.Random(7)
    source = source_of(db, cluster, [record(chance, number) for number in range(1000)])
    for kinds in batched(QUERIES, 2):
        views = {kind: name(kind) for kind in kinds}
        for kind, view in views.items():
            db.execute(f"CREATE MATERIALIZED VIEW {view} AS {QUERIES[kind].format(s=source)}")
        caught_up(db)
        for kind, view in views.items():
            assert is_added_up(db, view), kind
            same(rows(db, f"SELECT * FROM {view}"), rows(db, QUERIES[kind].format(s=source)))
            db.execute(f"DROP MATERIALIZED VIEW {view}")
    db.execute(f"DROP SOURCE {source} CASCADE")


@pytest.fixture(scope="module")
def filtered(db: Session, cluster: Cluster) -> str:
    chance = random.Random(11)
    return source_of(db, cluster, [record(chance, number) for number in range(500)])


@pytest.mark.parametrize(
    "where",
    [
        "x > 0.5",
        "NOT (x <= 0.5)",
        "i <> 3 AND side = 'buy' AND upper(k) = 'A'",
        "side NOT IN ('buy', 'none') OR n < 0",
        "flag AND NOT (f >= 0.5) AND 0 >= i",
        "side IS NULL AND ts IS NOT NULL AND x = 0",
    ],
)
def test_rows_that_a_source_leaves_out_are_those_that_the_query_leaves_out(
    db: Session, filtered: str, where: str
) -> None:
    view = name("filtered")
    query = f"SELECT k, side, n, i, x, f, flag, ts FROM {filtered} WHERE {where}"
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")
    caught_up(db)
    wanted = rows(db, query)
    assert 0 < len(wanted) < 500
    same(rows(db, f"SELECT * FROM {view}"), wanted)
    assert next(status.records for status in db.queries() if status.view == view) == 500
    db.execute(f"DROP MATERIALIZED VIEW {view}")


def test_a_sum_that_does_not_fit_fails_as_it_does_in_spark_and_never_wraps(
    db: Session, cluster: Cluster
) -> None:
    source = source_of(
        db, cluster, [json.dumps({"k": "a", "n": 2**62}) for _ in range(4)], "k STRING, n BIGINT"
    )
    view = name("large")
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT k, sum(n) AS s FROM {source} GROUP BY k")
    assert is_added_up(db, view)
    with pytest.raises(QueryFailedError, match=r"(?i)overflow"):
        caught_up(db)
    db.execute(f"DROP SOURCE {source} CASCADE")


def test_explain_says_what_the_source_adds_up(db: Session, cluster: Cluster) -> None:
    source = source_of(db, cluster, [], "k STRING, n BIGINT")
    told = dict(
        rows(db, f"EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT k, sum(n) AS s FROM {source} GROUP BY k")
    )
    assert told["the source adds up"] == "sum(n) by k"
    told = dict(rows(db, f"EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT k FROM {source}"))
    assert told["the source adds up"] == ""
    db.execute(f"DROP SOURCE {source}")


def test_a_view_that_began_over_rows_goes_on_over_rows(cluster: Cluster, tmp_path: Path) -> None:
    """Spark's state of it has other columns than that of a view over sums."""
    view = name("old")
    with connect(tmp_path / "home") as db:
        source = source_of(
            db, cluster, [json.dumps({"k": "ab"[n % 2], "n": n}) for n in range(100)], "k STRING, n BIGINT"
        )
        query = f"SELECT k, count(*) AS c, sum(n) AS s FROM {source} GROUP BY k"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("forebay.runtime.views.adds_up_alike", lambda *_: False)
            patch.setattr("forebay.runtime.views.returns", lambda *_: None)
            db.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")
        caught_up(db)
        assert not is_added_up(db, view)
        wanted = rows(db, query)
    with connect(tmp_path / "home") as db:
        db.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")
        caught_up(db)
        assert not is_added_up(db, view)
        same(rows(db, f"SELECT * FROM {view}"), wanted)
