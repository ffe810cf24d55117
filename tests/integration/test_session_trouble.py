"""What happens to the topic and to the broker while a view runs."""

from __future__ import annotations

import inside
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from sessions import caught_up, checkpointed, create_source, events, name, notes, rows
from support import Cluster
from waiting import eventually

from forebay.devstack import DevStack
from forebay.errors import BadRecordError, OffsetOutOfRangeError, TopicRecreatedError
from forebay.runtime.session import Session

TIMELESS = "id BIGINT NOT NULL, k STRING, v BIGINT"


def ids(db: Session, view: str) -> list[int]:
    return [number for (number,) in rows(db, f"SELECT id FROM {view} ORDER BY id")]


def state(db: Session, view: str) -> str:
    [found] = [query.state for query in db.queries() if query.view == view]
    return found


def test_a_new_partition_is_picked_up_while_the_view_runs(db: Session, cluster: Cluster) -> None:
    topic, source, view = cluster.make_topic(1), name("src"), name("view")
    cluster.produce(topic, events(range(5)))
    db.execute(create_source(cluster, source, topic, startup_mode="latest"))
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    cluster.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    cluster.await_leaders(topic, 3)
    cluster.produce(topic, events(range(5, 8)), partition=2)  # from its first record on, also with latest
    caught_up(db)
    assert ids(db, view) == [5, 6, 7]
    assert cluster.committed(source, topic) == checkpointed(db.home, view, topic) == {0: 5, 1: 0, 2: 3}
    db.execute(f"DROP SOURCE {source} CASCADE")


def test_a_recreated_topic_stops_the_view_and_says_so(db: Session, cluster: Cluster) -> None:
    topic, source, view, other = cluster.make_topic(1), name("src"), name("view"), name("other")
    cluster.produce(topic, events(range(5)))
    db.execute(create_source(cluster, source, topic))
    db.execute(f"CREATE SOURCE {other} (n BIGINT) FROM DATAGEN (rows_per_second = 1)")
    db.execute(f"CREATE MATERIALIZED VIEW {other}_view AS SELECT n FROM {other}")
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    caught_up(db)
    db.execute(f"DROP MATERIALIZED VIEW {view}")
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    cluster.produce(topic, events(range(5, 8)))
    caught_up(db)
    assert ids(db, view) == list(range(8))

    # Stopped in between, it finds another topic of the same name when it comes back.
    db.execute(f"STOP VIEW {view}")
    cluster.delete_topic(topic)
    cluster.make_topic(1, name=topic)
    cluster.produce(topic, events(range(100, 120)))
    db.execute(f"START VIEW {view}")
    with pytest.raises(TopicRecreatedError, match=topic):
        db.wait(until_caught_up=False, timeout=60)
    assert state(db, view) == "failed"
    assert state(db, f"{other}_view") == "running"
    assert ids(db, view) == list(range(8))
    with pytest.raises(TopicRecreatedError):
        db.check()
    # Its remedy works: dropped and made again, it starts on the new topic.
    db.execute(f"DROP MATERIALIZED VIEW {view}")
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    caught_up(db)
    assert ids(db, view) == list(range(100, 120))
    assert cluster.committed(source, topic) == {0: 20}
    db.execute(f"DROP SOURCE {source} CASCADE; DROP SOURCE {other} CASCADE")


def test_records_that_are_gone_before_they_were_read_are_named_exactly(db: Session, cluster: Cluster) -> None:
    topic, source, view = cluster.make_topic(2), name("src"), name("view")
    strict = create_source(cluster, source, topic)
    cluster.produce(topic, events(range(10)), partition=0)
    db.execute(strict)
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    caught_up(db)
    inside.end_query(db, view)
    cluster.produce(topic, events(range(10, 30)), partition=0)
    cluster.admin.delete_records([TopicPartition(topic, 0, 25)])[TopicPartition(topic, 0)].result(30)

    create = f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}"
    db.execute(create)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        db.wait(until_caught_up=True, timeout=60)
    assert f"{topic}-0 [10, 25)" in str(caught.value)
    assert "fail.on.data.loss" in str(caught.value)
    assert ids(db, view) == list(range(10))
    db.execute(create)  # a failed view can be started again, and fails again as long as nothing has changed
    with pytest.raises(OffsetOutOfRangeError):
        db.wait(until_caught_up=True, timeout=60)
    db.execute(f"DROP SOURCE {source} CASCADE")


def test_a_batch_that_is_repeated_after_its_topic_was_made_again_stops_the_view(
    db: Session, cluster: Cluster
) -> None:
    """It is in Spark's offset log, and was not finished. The new topic has records at these offsets, too: others."""
    topic, source, view = cluster.make_topic(1), name("src"), name("view")
    db.execute(create_source(cluster, source, topic) + " ON ERROR = 'fail'")
    create = f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}"
    db.execute(create)
    cluster.produce(topic, events(range(3)))
    caught_up(db)
    cluster.produce(topic, [*events(range(3, 6)), "{"])
    with pytest.raises(BadRecordError):
        db.wait(until_caught_up=True, timeout=60)
    cluster.delete_topic(topic)
    cluster.make_topic(1, name=topic)
    cluster.produce(topic, events(range(100, 120)))
    db.execute(create)
    with pytest.raises(TopicRecreatedError, match=f"topic '{topic}' was deleted and created again"):
        db.wait(until_caught_up=True, timeout=60)
    assert ids(db, view) == [0, 1, 2]
    db.execute(f"DROP SOURCE {source} CASCADE")


def test_with_leave_to_lose_the_view_goes_on_and_the_ranges_are_kept(db: Session, cluster: Cluster) -> None:
    topic, source, view = cluster.make_topic(1), name("src"), name("view")
    cluster.produce(topic, events(range(10)))
    db.execute(create_source(cluster, source, topic, fail_on_data_loss="false"))
    create = f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}"
    db.execute(create)
    caught_up(db)
    inside.end_query(db, view)
    cluster.produce(topic, events(range(10, 30)))
    cluster.admin.delete_records([TopicPartition(topic, 0, 25)])[TopicPartition(topic, 0)].result(30)
    db.execute(create)
    caught_up(db)
    assert ids(db, view) == [*range(10), *range(25, 30)]
    described = notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
    assert f"lost: {topic}-0 [10, 25)" in described
    assert "lost.total: 15 offsets in 1 range" in described
    db.execute(f"DROP SOURCE {source} CASCADE")


@pytest.mark.timeout(240)
def test_a_broker_that_dies_and_comes_back_costs_no_record_and_doubles_none(
    db: Session, mortal_broker: DevStack
) -> None:
    cluster = Cluster(mortal_broker)
    topic, source, view, sums = cluster.make_topic(2), name("src"), name("view"), name("sums")
    cluster.produce(topic, events(range(200)))
    db.execute(create_source(cluster, source, topic, TIMELESS, max_records_per_batch=50))
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    db.execute(f"CREATE MATERIALIZED VIEW {sums} AS SELECT sum(v) AS total FROM {source}")
    eventually(lambda: len(ids(db, view)) > 0, "it runs")
    mortal_broker.kill_broker()
    mortal_broker.start_broker()
    cluster.produce(topic, events(range(200, 400)))
    caught_up(db)
    assert ids(db, view) == list(range(400))
    mortal_broker.kill_broker()  # now while it is idle
    mortal_broker.start_broker()
    cluster.produce(topic, events(range(400, 410)))
    caught_up(db)
    assert ids(db, view) == list(range(410))
    assert rows(db, f"SELECT total FROM {sums}") == [(sum(range(410)),)]
    assert {query.state for query in db.queries()} == {"running"}
    assert [query.records for query in db.queries()] == [410, 410]
    assert cluster.committed(source, topic) == checkpointed(db.home, view, topic) == {0: 205, 1: 205}
    db.execute(f"DROP SOURCE {source} CASCADE")
