"""Only the columns that a query needs travel to Spark, and nobody can tell from the results."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sessions import caught_up, create_source, event, events, name, notes, rows
from support import Cluster

from forebay import column_types as types
from forebay.runtime.session import Session
from forebay.source.needed import needed_columns

TRADES = pa.schema(
    [
        pa.field("id", types.BIGINT, False),
        pa.field("k", types.STRING),
        pa.field("v", types.INT),
        pa.field("ts", types.TIMESTAMP),
    ]
)


@pytest.mark.parametrize(
    ("query", "needed"),
    [
        ("SELECT * FROM t", {"id", "k", "v", "ts"}),
        ("SELECT count(*) FROM t", set()),
        ("SELECT count(id) FROM t", {"id"}),  # NOT NULL in the source, yet a streaming column may be NULL
        ("SELECT sum(v) FROM t", {"v"}),
        ("SELECT k, count(*) FROM t WHERE v > 1 GROUP BY k", {"k", "v"}),
        ("SELECT v FROM (SELECT id, v, upper(k) AS u FROM t)", {"v"}),
        ("SELECT a.v FROM t a JOIN t b ON a.id = b.id", {"v", "id"}),
        ("SELECT window(ts, '1 minute'), count(*) FROM t GROUP BY 1", {"ts"}),
        ("SELECT v FROM t WHERE v > (SELECT avg(id) FROM t)", {"id", "k", "v", "ts"}),  # not looked into
        ("SELECT nonsense FROM t", {"id", "k", "v", "ts"}),  # to be refused by who runs it
    ],
)
def test_what_a_query_needs(db: Session, query: str, needed: set[str]) -> None:
    assert needed_columns(db.spark, {"t": TRADES}, query) == {"t": needed}


def test_each_source_has_its_own(db: Session) -> None:
    other = pa.schema([pa.field("id", types.BIGINT), pa.field("w", types.BIGINT)])
    query = "SELECT sum(w) FROM t JOIN u ON t.id = u.id WHERE t.v > 1"
    assert needed_columns(db.spark, {"t": TRADES, "u": other}, query) == {"t": {"id", "v"}, "u": {"id", "w"}}


def test_a_record_is_judged_by_all_its_columns_whatever_the_query_needs(
    db: Session, cluster: Cluster
) -> None:
    topic, source, view = cluster.make_topic(2), name("src"), name("view")
    cluster.produce(topic, [*events(range(50)), event(50, k=7), event(51, ts="yesterday")])
    db.execute(create_source(cluster, source, topic))
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT count(*) AS n, sum(id) AS s FROM {source}")
    caught_up(db)
    assert rows(db, f"SELECT n, s FROM {view}") == [(50, sum(range(50)))]
    said = notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
    assert "rejected.TypeConversion: 2" in said


def test_a_column_that_is_named_but_not_needed_does_not_change_the_result(
    db: Session, cluster: Cluster
) -> None:
    topic, source, view = cluster.make_topic(2), name("src"), name("view")
    cluster.produce(topic, events(range(30)))
    db.execute(create_source(cluster, source, topic))
    inner = f"SELECT id, upper(k) AS u, v FROM {source}"
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM ({inner}) AS x WHERE id < 10")
    caught_up(db)
    assert sorted(rows(db, f"SELECT id FROM {view}")) == [(number,) for number in range(10)]
