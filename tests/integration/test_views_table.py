"""A view's Delta table: batches are in it once, compaction changes nothing, subscribers miss nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from sessions import caught_up, create_source, event, events, name, rows
from support import Cluster

from forebay.errors import OptionValueError, UnknownObjectError
from forebay.runtime.session import Session
from forebay.source.spark_types import from_spark
from forebay.views import compaction, tidy
from forebay.views.table import ViewTable

KEYED = "k string, n bigint"


def ids(batches: list[pa.RecordBatch]) -> list[int]:
    return [value for batch in batches for value in batch.column("id").to_pylist()]


def test_a_repeated_batch_is_written_once(db: Session, tmp_path: Path) -> None:
    frame = db.spark.createDataFrame([("a", 1), ("b", 2), (None, 3)], KEYED).coalesce(1)
    appended = ViewTable(tmp_path / "appended")
    appended.create(from_spark(frame.schema))
    assert not appended.holds("q", 0)
    assert appended.append(frame, "q", 0) == 3
    assert appended.holds("q", 0)
    assert not appended.holds("q", 1)
    assert not appended.holds("other", 0)  # another checkpoint's batches are others
    assert ViewTable(tmp_path / "appended").holds("q", 0)

    merged = ViewTable(tmp_path / "merged")
    merged.create(from_spark(frame.schema))
    for _ in range(2):  # merging is idempotent by itself
        assert merged.merge(frame.toArrow(), ("k",), "q", 0) == 3
    changed = db.spark.createDataFrame([("a", 10), (None, 30), ("c", 4)], KEYED)
    merged.merge(changed.toArrow(), ("k",), "q", 1)
    assert merged.holds("q", 1)
    found = pa.table(merged.open().to_pyarrow_table()).to_pydict()
    assert sorted(zip(found["k"], found["n"], strict=True), key=str) == sorted(
        [("a", 10), ("b", 2), ("c", 4), (None, 30)], key=str
    )


def test_a_batch_without_rows_leaves_no_file_and_no_version(db: Session, tmp_path: Path) -> None:
    frame = db.spark.createDataFrame([], KEYED)
    table = ViewTable(tmp_path / "empty")
    table.create(from_spark(frame.schema))
    assert table.append(frame, "q", 0) == table.merge(frame.toArrow(), ("k",), "q", 1) == 0
    assert table.open().version() == 0
    assert list((tmp_path / "empty").rglob("*.parquet")) == []


def test_files_carry_bounds_that_are_true(db: Session, tmp_path: Path) -> None:
    frame = db.spark.createDataFrame(
        [(1, 1.5, "x"), (None, float("nan"), "y"), (3, 0.5, None)], "i bigint, d double, s string"
    ).coalesce(1)
    table = ViewTable(tmp_path / "stats")
    table.create(from_spark(frame.schema))
    table.append(frame, "q", 0)
    [stats] = pa.table(table.open().get_add_actions(flatten=True)).to_pylist()
    assert stats["num_records"] == 3
    assert (stats["min.i"], stats["max.i"], stats["null_count.i"]) == (1, 3, 1)
    assert (stats["min.s"], stats["max.s"]) == ("x", "y")
    assert stats.get("max.d") is None  # NaN is beyond all bounds
    assert DeltaTable(str(table.path)).to_pyarrow_dataset().to_table().num_rows == 3


def test_compaction_keeps_the_contents_and_a_subscriber_sees_no_row_twice(
    db: Session, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy, "EVERY", 4)
    monkeypatch.setattr(compaction, "FAN", 2)
    topic, source, view, sums = cluster.make_topic(1), name("src"), name("view"), name("sums")
    cluster.produce(topic, events(range(40)))
    db.execute(create_source(cluster, source, topic, max_records_per_batch=5))  # eight batches
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    db.execute(f"CREATE MATERIALIZED VIEW {sums} AS SELECT k, count(*) AS n FROM {source} GROUP BY k")
    followed = []
    subscription = db.subscribe(view, timeout=60)
    for batch in subscription:  # while batches are written and compacted
        followed.append(batch)
        if len(ids(followed)) >= 40:
            break
    caught_up(db)
    followed += db.subscribe(view, after=subscription.position + 1, timeout=0)
    assert ids(followed) == list(range(40))
    assert rows(db, f"SELECT count(*), count(DISTINCT id) FROM {view}") == [(40, 40)]
    assert rows(db, f"SELECT k, n FROM {sums} ORDER BY k") == [("a", 20), ("b", 20)]
    assert len(ViewTable(db.home / "views" / view / "table").files()) < 8
    assert ids(list(db.subscribe(view, timeout=0))) == list(range(40))
    # Of a view that is updated in place the changes fold to what the table holds, compacted or not.
    last: dict[str, int] = {}
    for batch in db.subscribe(sums, timeout=0):
        for row in batch.to_pylist():
            if row["_change_type"] in ("insert", "update_postimage"):
                last[row["k"]] = row["n"]
    assert last == {"a": 20, "b": 20}
    db.execute(f"DROP SOURCE {source} CASCADE")


def test_a_view_without_retention_leaves_no_file_that_its_table_does_not_have(
    db: Session, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy, "EVERY", 1)
    monkeypatch.setattr(compaction, "FAN", 2)
    topic, source, view = cluster.make_topic(1), name("src"), name("view")
    cluster.produce(topic, events(range(40)))
    db.execute(create_source(cluster, source, topic, max_records_per_batch=5))
    with pytest.raises(OptionValueError, match="a length of time such as '7 days'"):
        db.execute(f"CREATE MATERIALIZED VIEW {view} WITH (retention = 'long') AS SELECT id FROM {source}")
    db.execute(f"CREATE MATERIALIZED VIEW {view} WITH (retention = '0 days') AS SELECT id FROM {source}")
    caught_up(db)
    assert rows(db, f"SELECT count(*), count(DISTINCT id) FROM {view}") == [(40, 40)]
    table = ViewTable(db.home / "views" / view / "table")
    # The files of the last merge go with the next batch.
    assert len(list(table.path.glob("*.parquet"))) <= len(table.files()) + 3
    db.execute(f"DROP SOURCE {source} CASCADE")


def test_a_subscription_gives_every_row_once_ends_by_timeout_and_goes_on_where_it_stopped(
    db: Session, cluster: Cluster
) -> None:
    topic, source, view = cluster.make_topic(2), name("src"), name("view")
    db.execute(create_source(cluster, source, topic))
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id, k FROM {source}")
    assert list(db.subscribe(view, timeout=0)) == []
    cluster.produce(topic, events(range(10)))
    caught_up(db)
    first = db.subscribe(view, timeout=0)
    batches = list(first)
    assert sorted(ids(batches)) == list(range(10))
    assert batches[0].schema.names == ["id", "k", "_change_type", "_commit_version"]
    assert {value for batch in batches for value in batch.column("_change_type").to_pylist()} == {"insert"}

    cluster.produce(topic, events(range(10, 15)))
    caught_up(db)
    second = db.subscribe(view, after=first.position, timeout=0)
    assert sorted(ids(list(second))) == list(range(10, 15))
    assert second.position > first.position
    assert list(db.subscribe(view, after=second.position, timeout=0)) == []

    # Breaking off in the middle of a version hands that version out again, never skips it.
    with db.subscribe(view, timeout=0) as broken:
        next(iter(broken))
    again = sorted(ids(list(db.subscribe(view, after=broken.position, timeout=0))))
    assert set(range(15)) >= set(again) >= set(range(10, 15))
    assert broken.position < first.position
    assert sorted(db.sql(f"SUBSCRIBE {view}").arrow()["id"].to_pylist()) == list(range(15))
    with pytest.raises(UnknownObjectError):
        db.subscribe("nosuch")
    db.execute(f"DROP SOURCE {source} CASCADE")


def test_a_subscription_to_a_view_that_is_updated_shows_before_and_after(
    db: Session, cluster: Cluster
) -> None:
    topic, source, view = cluster.make_topic(1), name("src"), name("view")
    db.execute(create_source(cluster, source, topic))
    db.execute(
        f"CREATE MATERIALIZED VIEW {view} AS SELECT k, sum(v) AS total FROM {source} GROUP BY k EMIT CHANGES"
    )
    cluster.produce(topic, [event(1, k="a"), event(2, k="b")])
    caught_up(db)
    inserts = db.subscribe(view, timeout=0)
    seen = [row for batch in inserts for row in batch.to_pylist()]
    assert sorted((row["k"], row["total"], row["_change_type"]) for row in seen) == [
        ("a", 1, "insert"),
        ("b", 2, "insert"),
    ]
    cluster.produce(topic, [event(10, k="a")])
    caught_up(db)
    seen = [
        row for batch in db.subscribe(view, after=inserts.position, timeout=0) for row in batch.to_pylist()
    ]
    assert sorted((row["k"], row["total"], row["_change_type"]) for row in seen) == [
        ("a", 1, "update_preimage"),
        ("a", 11, "update_postimage"),
    ]
    db.execute(f"DROP SOURCE {source} CASCADE")
