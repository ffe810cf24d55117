"""A view begins where its source begins, whenever it is created, and the group does not go back for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from sessions import caught_up, connect, create_source, events, name, rows
from support import Cluster

from forebay.errors import ObjectInUseError, OptionError, UnknownObjectError
from forebay.runtime.session import Session

COLUMNS = "id BIGINT NOT NULL, k STRING, v BIGINT"
COUNT = 500


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Session]:
    with connect(tmp_path / "home") as session:
        yield session


def filled(cluster: Cluster, count: int = COUNT) -> str:
    topic = cluster.make_topic(3)
    cluster.produce(topic, events(range(count)))
    return topic


def view_of(view: str, source: str) -> str:
    return f"CREATE MATERIALIZED VIEW {view} AS SELECT id, v FROM {source}"


def count_of(db: Session, view: str) -> int:
    caught_up(db)
    [(count, distinct)] = rows(db, f"SELECT count(*), count(DISTINCT id) FROM {view}")
    assert count == distinct
    return int(count)


def test_a_second_view_a_replaced_one_and_one_made_again_begin_where_the_source_began(
    db: Session, cluster: Cluster
) -> None:
    topic, source = filled(cluster), name("src")
    db.execute(create_source(cluster, source, topic, COLUMNS))
    db.execute(view_of("first", source))
    assert count_of(db, "first") == COUNT
    assert sum(cluster.committed(source, topic).values()) == COUNT

    db.execute(view_of("second", source))
    assert count_of(db, "second") == COUNT
    db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW first AS SELECT id FROM {source} WHERE v >= 0")
    assert count_of(db, "first") == COUNT
    db.execute(f"DROP MATERIALIZED VIEW second; {view_of('second', source)}")
    assert count_of(db, "second") == COUNT


def test_a_source_that_is_dropped_and_made_again_begins_where_it_did(db: Session, cluster: Cluster) -> None:
    topic, source = filled(cluster), name("src")
    script = f"{create_source(cluster, source, topic, COLUMNS)}; {view_of('v', source)}"
    db.execute(script)
    assert count_of(db, "v") == COUNT
    db.execute(f"DROP SOURCE {source} CASCADE; {script}")
    assert count_of(db, "v") == COUNT


def test_a_source_begins_at_its_groups_offsets_if_the_group_has_some(db: Session, cluster: Cluster) -> None:
    topic, source = filled(cluster, 30), name("src")
    cluster.commit(source, topic, {0: 4, 1: 10, 2: 0})
    db.execute(create_source(cluster, source, topic, COLUMNS))
    db.execute(view_of("first", source))
    assert count_of(db, "first") == 16
    db.execute(view_of("second", source))
    assert count_of(db, "second") == 16


def test_another_topic_or_group_under_the_same_name_is_another_beginning(
    db: Session, cluster: Cluster
) -> None:
    topic, other, source = filled(cluster, 30), filled(cluster, 60), name("src")
    db.execute(f"{create_source(cluster, source, topic, COLUMNS)}; {view_of('v', source)}")
    assert count_of(db, "v") == 30
    db.execute(f"DROP SOURCE {source} CASCADE")
    db.execute(f"{create_source(cluster, source, other, COLUMNS)}; {view_of('v', source)}")
    assert count_of(db, "v") == 60


def test_the_group_never_goes_back_for_a_later_view_and_the_view_it_waits_for_is_named(
    db: Session, cluster: Cluster
) -> None:
    topic, source = filled(cluster), name("src")
    db.execute(create_source(cluster, source, topic, COLUMNS, max_records_per_batch=30))
    db.execute(view_of("first", source))
    assert count_of(db, "first") == COUNT
    whole = cluster.committed(source, topic)
    assert sum(whole.values()) == COUNT

    db.execute(view_of("later", source))
    [status] = db.sources()
    assert status.waits_for == "later"
    notes = db.sql(f"DESCRIBE EXTENDED SOURCE {source}").notes
    assert "The group waits for view later, which is behind it" in notes
    later = db.queries()[1]
    while later.lag or later.records < COUNT:
        assert cluster.committed(source, topic) == whole
        later = db.queries()[1]
    cluster.produce(topic, events(range(COUNT, COUNT + 30)))
    caught_up(db)
    assert sum(cluster.committed(source, topic).values()) == COUNT + 30
    assert db.sources()[0].waits_for is None


def test_what_retention_has_taken_is_said_with_its_exact_ranges_at_create(
    db: Session, cluster: Cluster
) -> None:
    topic, source = filled(cluster, 300), name("src")
    db.execute(create_source(cluster, source, topic, COLUMNS))
    db.execute(view_of("first", source))
    assert count_of(db, "first") == 300
    gone = [TopicPartition(topic, 0, 40), TopicPartition(topic, 2, 100)]
    for deleted in cluster.admin.delete_records(gone).values():
        deleted.result(30)
    [result] = db.execute(view_of("second", source))
    assert list(result.notes) == [
        f"note: {topic}-0 [0, 40) of source '{source}' is gone; the view begins after it",
        f"note: {topic}-2 [0, 100) of source '{source}' is gone; the view begins after it",
    ]
    assert count_of(db, "second") == 160
    assert db.queries()[1].state == "running"


def test_a_source_in_use_is_replaced_where_the_views_can_go_on_and_what_differs_is_shown(
    db: Session, cluster: Cluster
) -> None:
    topic, source = filled(cluster, 60), name("src")
    db.execute(f"{create_source(cluster, source, topic, COLUMNS)}; {view_of('v', source)}")
    assert count_of(db, "v") == 60
    changed = create_source(cluster, source, topic, f"{COLUMNS}, more STRING", max_records_per_batch=7)
    [result] = db.execute(changed.replace("CREATE SOURCE", "CREATE OR REPLACE SOURCE"))
    assert result.done == f"source {source} replaced; v started again"
    assert sorted(result.notes) == ["'max.records.per.batch': default → 7", "column more STRING is new"]
    cluster.produce(topic, events(range(60, 90)))
    assert count_of(db, "v") == 90
    assert db.queries()[0].batch >= 4, "thirty records in batches of seven"


def test_a_source_in_use_is_not_replaced_where_the_views_cannot_go_on(db: Session, cluster: Cluster) -> None:
    topic, other, source = filled(cluster, 10), filled(cluster, 20), name("src")
    db.execute(f"{create_source(cluster, source, topic, COLUMNS)}; {view_of('v', source)}")
    changed = create_source(cluster, source, other, "id STRING, k STRING, v BIGINT")
    with pytest.raises(ObjectInUseError) as caught:
        db.execute(changed.replace("CREATE SOURCE", "CREATE OR REPLACE SOURCE"))
    assert "column id: BIGINT NOT NULL → STRING" in caught.value.message
    assert f"'topic': {topic} → {other}" in caught.value.message
    assert count_of(db, "v") == 10, "the view goes on over the old one"


def test_a_view_can_start_now_or_at_a_time_instead(db: Session, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(2), name("src")
    cluster.produce(topic, events(range(10)), timestamp=1_768_471_200_000)  # 2026-01-15 10:00:00 UTC
    cluster.produce(topic, events(range(10, 16)), timestamp=1_768_474_800_000)  # an hour later
    db.execute(create_source(cluster, source, topic, COLUMNS))
    starts = {
        "everything": "start = 'beginning'",
        "later": "start = '2026-01-15 10:30:00'",
        "later_too": "start = '2026-01-15T11:30:00+01:00'",
        "later_in_ms": "start = 1768473000000",
        "none_yet": "'start' = 'now'",
    }
    for view, option in starts.items():
        db.execute(f"CREATE MATERIALIZED VIEW {view} WITH ({option}) AS SELECT id FROM {source}")
    assert {view: count_of(db, view) for view in starts} == {
        "everything": 16, "later": 6, "later_too": 6, "later_in_ms": 6, "none_yet": 0,
    }  # fmt: skip
    cluster.produce(topic, events(range(16, 18)))
    assert count_of(db, "none_yet") == 2
    assert "WITH (start = 'now')" in rows(db, "SHOW CREATE VIEW none_yet")[0][0]

    for wrong in ("start = 'yesterday'", "begin = 'now'"):
        with pytest.raises(OptionError) as caught:
            db.execute(f"CREATE MATERIALIZED VIEW wrong WITH ({wrong}) AS SELECT id FROM {source}")
        assert caught.value.position is not None


def test_a_view_is_stopped_and_started_by_a_statement_and_a_stopped_one_stays_so(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = filled(cluster, 30), name("src"), tmp_path / "home"
    with connect(home) as db:
        db.execute(f"{create_source(cluster, source, topic, COLUMNS)}; {view_of('v', source)}")
        db.execute(view_of("w", source))
        assert count_of(db, "v") == 30
        assert db.sql("STOP VIEW v").done == "view v stopped; START VIEW v goes on with it"
        assert {query.view: query.state for query in db.queries()} == {"v": "stopped", "w": "running"}
        cluster.produce(topic, events(range(30, 40)))
        assert count_of(db, "w") == 40
        assert rows(db, "SELECT count(*) FROM v") == [(30,)]
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        assert db.start_all() == ["view w goes on where it stood"]
        assert db.sql("START VIEW v").done == "view v goes on where it stood"
        assert count_of(db, "v") == 40
        with pytest.raises(UnknownObjectError, match="there is no view 'x'"):
            db.sql("STOP VIEW x")
        assert db.sql("DESCRIBE v").fetchall() == db.sql("DESCRIBE VIEW v").fetchall()
        assert db.sql(f"DESCRIBE {source}").notes == db.sql(f"DESCRIBE SOURCE {source}").notes
