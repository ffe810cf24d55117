"""What a refusal tells people to write is taken when they write it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sessions import connect, name
from support import Cluster

from forebay import Session
from forebay.errors import UnsupportedSqlError

TICKS = "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP"
MARK = ", WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
WINDOW = "TUMBLE(ts, INTERVAL '1' MINUTE)"
WINDOWED = f"SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS w, count(*) AS n FROM {{}} GROUP BY {WINDOW}"
CLOSE = " EMIT ON WINDOW CLOSE"
COUNTS, OTHERS = "SELECT k, count(*) AS n FROM s GROUP BY k", "SELECT k, count(*) AS n FROM t GROUP BY k"
ROWS, OTHER_ROWS = "SELECT * FROM s", "SELECT * FROM t"
RANGE = "AND t.ts BETWEEN s.ts - INTERVAL '1' HOUR AND s.ts"
INNER = "make a view of the inner SELECT alone"
EACH = "make a view of each part"
SIDES = "make a view of each side"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with connect(tmp_path_factory.mktemp("remedies") / "home") as session:
        for source, columns in (("s", TICKS + MARK), ("t", TICKS + MARK), ("markless", TICKS)):
            session.execute(f"CREATE SOURCE {source} ({columns}) FROM DATAGEN (rows_per_second = 1)")
        yield session


def typed(db: Session, views: Sequence[str], select: str) -> None:
    """Views of these queries, and a SELECT that has their names in place of {0}, {1}."""
    names = [f"typed_{next(_numbers)}" for _ in views]
    try:
        for view, query in zip(names, views, strict=True):
            db.sql(f"CREATE MATERIALIZED VIEW {view} AS {query}")
        if select:
            db.sql(select.format(*names)).fetchall()
    finally:
        for view in names:
            db.sql(f"DROP MATERIALIZED VIEW IF EXISTS {view}")


# A query that is refused, a part of the remedy, and what it says typed out: views, and a SELECT from them.
CASES = [
    (f"SELECT max(n) AS m FROM ({COUNTS})", INNER, [COUNTS], "SELECT max(n) AS m FROM {0}"),
    (f"SELECT max(n) AS m FROM ({COUNTS}){CLOSE}", INNER, [COUNTS], "SELECT max(n) AS m FROM {0}"),
    (
        f"SELECT w, max(n) AS m FROM ({WINDOWED.format('s')}) GROUP BY w{CLOSE}",
        INNER,
        [WINDOWED.format("s") + CLOSE],
        "SELECT w, max(n) AS m FROM {0} GROUP BY w",
    ),
    ("SELECT count(*) AS n FROM (SELECT DISTINCT k FROM s)", INNER, ["SELECT DISTINCT k FROM s"], "SELECT count(*) FROM {0}"),
    (f"SELECT * FROM ({COUNTS}) WHERE n > 3", INNER, [COUNTS], "SELECT * FROM {0} WHERE n > 3"),
    (f"SELECT * FROM ({WINDOWED.format('s')}) WHERE n > 3", "or add EMIT ON WINDOW CLOSE", [f"SELECT * FROM ({WINDOWED.format('s')}) WHERE n > 3{CLOSE}"], ""),
    ("SELECT id FROM s WHERE v > (SELECT avg(v) FROM t)", INNER, ["SELECT avg(v) AS a FROM t", ROWS], "SELECT id FROM {1} WHERE v > (SELECT a FROM {0})"),
    (f"SELECT s.k, c.n FROM s JOIN ({OTHERS}) c ON s.k = c.k", INNER, [OTHERS, ROWS], "SELECT s.k, c.n FROM {1} s JOIN {0} c ON s.k = c.k"),
    (f"{COUNTS} UNION ALL {OTHERS}", EACH, [COUNTS, OTHERS], "SELECT * FROM {0} UNION ALL SELECT * FROM {1}"),
    (f"{COUNTS} UNION {OTHERS}", EACH, [COUNTS, OTHERS], "SELECT * FROM {0} UNION SELECT * FROM {1}"),
    (f"{WINDOWED.format('s')} UNION ALL {WINDOWED.format('t')}", "or add EMIT ON WINDOW CLOSE", [f"{WINDOWED.format('s')} UNION ALL {WINDOWED.format('t')}{CLOSE}"], ""),
    ("SELECT id FROM s EXCEPT SELECT id FROM t", EACH, ["SELECT id FROM s", "SELECT id FROM t"], "SELECT id FROM {0} EXCEPT SELECT id FROM {1}"),
    ("SELECT id FROM s INTERSECT SELECT id FROM t", EACH, ["SELECT id FROM s", "SELECT id FROM t"], "SELECT id FROM {0} INTERSECT SELECT id FROM {1}"),
    (f"{COUNTS} HAVING max(upper(k)) > 'A'", "leave HAVING out", [COUNTS], "SELECT * FROM {0} WHERE n > 3"),
    (f"{WINDOWED.format('s')} HAVING max(upper(k)) > 'A'", "or add EMIT ON WINDOW CLOSE", [f"{WINDOWED.format('s')} HAVING max(upper(k)) > 'A'{CLOSE}"], ""),
    ("SELECT id FROM s WHERE id IN (SELECT id FROM t)", SIDES, [ROWS, OTHER_ROWS], "SELECT id FROM {0} WHERE id IN (SELECT id FROM {1})"),
    ("SELECT id FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.id = s.id)", SIDES, [ROWS, OTHER_ROWS], "SELECT id FROM {0} s WHERE EXISTS (SELECT 1 FROM {1} t WHERE t.id = s.id)"),
    ("SELECT s.id FROM s LEFT ANTI JOIN t ON s.id = t.id", SIDES, [ROWS, OTHER_ROWS], "SELECT s.id FROM {0} s LEFT ANTI JOIN {1} t ON s.id = t.id"),
    ("SELECT s.id FROM s LEFT JOIN t ON s.k = t.k", "bound it in time", [f"SELECT s.id FROM s LEFT JOIN t ON s.k = t.k {RANGE}"], ""),
    ("SELECT s.id FROM s FULL JOIN t ON s.k = t.k", "bound it in time", [f"SELECT s.id FROM s FULL JOIN t ON s.k = t.k {RANGE}"], ""),
    ("SELECT count(DISTINCT k) AS n FROM s", "approx_count_distinct", ["SELECT approx_count_distinct(k) AS n FROM s", "SELECT DISTINCT k FROM s"], "SELECT count(*) FROM {1}"),
    ("SELECT * FROM (SELECT id FROM s LIMIT 3)", "limit when you SELECT", ["SELECT * FROM (SELECT id FROM s)"], "SELECT * FROM {0} LIMIT 3"),
    ("SELECT k, row_number() OVER (PARTITION BY k ORDER BY ts) AS r FROM s", "make a view of the rows", [ROWS], "SELECT k, row_number() OVER (PARTITION BY k ORDER BY ts) AS r FROM {0}"),
    ("SELECT DISTINCT k, count(*) AS n FROM s GROUP BY k", "leave out DISTINCT", [COUNTS], ""),
    (f"{COUNTS}{CLOSE}", "add TUMBLE", [f"SELECT window_start, k, count(*) AS n FROM s GROUP BY k, {WINDOW}{CLOSE}", f"{COUNTS} EMIT CHANGES"], ""),
    (f"{WINDOWED.format('markless')}{CLOSE}", "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", [f"{WINDOWED.format('s')}{CLOSE}"], ""),
]  # fmt: skip


def once_each(cases: list[tuple[str, str, list[str], str]]) -> Iterator[Any]:
    """All of them; of those with the same remedy, all but the first are long."""
    known = set[str]()
    for case in cases:
        yield pytest.param(*case, marks=[pytest.mark.long] if case[1] in known else [])
        known.add(case[1])


@pytest.mark.parametrize(("query", "remedy", "views", "select"), list(once_each(CASES)))
def test_what_the_remedy_says_works_when_it_is_typed(
    db: Session, query: str, remedy: str, views: list[str], select: str
) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        db.sql(f"CREATE MATERIALIZED VIEW refused AS {query}")
    assert remedy in caught.value.remedy
    typed(db, views, select)


def test_a_view_over_a_view_is_a_plain_select_or_a_view_over_the_source(db: Session) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW base AS {COUNTS}")
    with pytest.raises(UnsupportedSqlError, match="a view over a view") as caught:
        db.sql("CREATE MATERIALIZED VIEW over AS SELECT k FROM base")
    assert "write the SELECT alone" in caught.value.remedy
    assert "let this view read s" in caught.value.remedy
    db.sql("SELECT k FROM base").fetchall()
    typed(db, ["SELECT k FROM s"], "")


@pytest.fixture(scope="module")
def log(db: Session, cluster: Cluster) -> str:
    source = name("log")
    at = f"brokers = '{cluster.bootstrap_servers}', topic = '{cluster.make_topic(1)}'"
    db.sql(f"CREATE SOURCE {source} (id BIGINT, k STRING, v BIGINT) FROM KAFKA ({at}) FORMAT DEBEZIUM_JSON")
    return source


@pytest.mark.parametrize(
    ("query", "remedy", "views", "select"),
    [
        ("SELECT max(n) AS m FROM (SELECT k, count(*) AS n FROM log GROUP BY k)", "make a view that selects the rows", ["SELECT * FROM log"], "SELECT max(n) FROM (SELECT k, count(*) AS n FROM {0} GROUP BY k)"),
        ("SELECT k FROM (SELECT k FROM log)", "write it as one SELECT", ["SELECT k FROM log"], ""),
        ("SELECT k FROM log UNION SELECT k FROM log", "a view of each part", ["SELECT k FROM log", "SELECT k FROM log"], "SELECT * FROM {0} UNION SELECT * FROM {1}"),
        ("SELECT a.k FROM log a JOIN log b ON a.id = b.id", "join the views", ["SELECT * FROM log", "SELECT * FROM log"], "SELECT a.k FROM {0} a JOIN {1} b ON a.id = b.id"),
        ("SELECT k, max(v) AS m FROM log GROUP BY k", "make a view that selects the rows", ["SELECT * FROM log"], "SELECT k, max(v) FROM {0} GROUP BY k"),
    ],
)  # fmt: skip
def test_what_the_remedy_says_of_a_change_log_works_when_it_is_typed(
    db: Session, log: str, query: str, remedy: str, views: list[str], select: str
) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        db.sql(f"CREATE MATERIALIZED VIEW refused AS {query.replace('log', log)}")
    assert remedy in caught.value.remedy
    typed(db, [view.replace("log", log) for view in views], select)
