"""Several views in one session: the groups, the counts and the status follow, and nobody is in another's way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest
from pyspark.sql import SparkSession
from sessions import caught_up, checkpointed, connect, create_source, events, name, rows
from support import Cluster
from waiting import eventually

from forebay.runtime.session import Session

VIEWS = int(os.environ.get("FOREBAY_MANY_VIEWS", "10"))
LOAD_S = float(os.environ.get("FOREBAY_MANY_VIEWS_S", "6"))
COLUMNS = "id BIGINT NOT NULL, k STRING, v BIGINT"


def test_with_ten_views_under_load_group_counts_and_status_follow_the_checkpoints_within_a_second(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(4), name("src"), tmp_path / "home"
    views = [f"v{number}" for number in range(VIEWS)]
    cluster.produce(topic, events(range(10)))
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        for number, view in enumerate(views):
            query = f"SELECT id, v FROM {source} WHERE v % {VIEWS} = {number}"
            db.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")
        caught_up(db)
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            feeding = pool.submit(feed, cluster, topic, stop)
            try:
                delays = [
                    behind(db, cluster, home, views, source, topic) for _ in until(time.monotonic() + LOAD_S)
                ]
            finally:
                stop.set()
            produced = 10 + feeding.result()
        caught_up(db)
        assert {query.view: query.records for query in db.queries()} == dict.fromkeys(views, produced)
        assert sum(cluster.committed(source, topic).values()) == produced
        assert sum(rows(db, f"SELECT count(*) FROM {view}")[0][0] for view in views) == produced
    # The bound is a second; a pause of a shared machine may break into one look, but not into most of them.
    assert median(delays) < 1.0, delays
    assert max(delays) < 10.0, delays


def until(deadline: float):  # type: ignore[no-untyped-def]
    while time.monotonic() < deadline:
        yield


def feed(cluster: Cluster, topic: str, stop: threading.Event) -> int:
    """A thousand records a second, until it is stopped; how many they were."""
    count, began = 0, time.monotonic()
    while not stop.wait(0.05):
        due = int((time.monotonic() - began) * 1000)
        cluster.produce(topic, events(range(count, due)))
        count = max(count, due)
    return count


def behind(db: Session, cluster: Cluster, home: Path, views: list[str], source: str, topic: str) -> float:
    """How long it takes until all that the checkpoints say now is counted, shown and committed."""
    began = time.monotonic()
    reached = [checkpointed(home, view, topic) for view in views]
    read = {view: sum(each.values()) for view, each in zip(views, reached, strict=True)}
    least = {number: min(each.get(number, 0) for each in reached) for number in range(4)}

    def counted() -> bool:
        return all(query.records >= read[query.view] for query in db.queries())

    def committed() -> bool:
        group = cluster.committed(source, topic)
        return all(group.get(number, 0) >= offset for number, offset in least.items())

    eventually(counted, "all that the checkpoints have is counted", timeout=60)
    eventually(committed, "the group is where the slowest checkpoint was", timeout=60)
    return time.monotonic() - began


DROPPING = """
import sys, time
import forebay
from confluent_kafka import Producer
from pyspark.sql.streaming import StreamingQueryListener

class Slow(StreamingQueryListener):
    heard = 0
    def onQueryStarted(self, event): pass
    def onQueryTerminated(self, event): pass
    def onQueryProgress(self, event):
        Slow.heard += 1
        time.sleep(1.0)  # what is slow here: Spark drops events while it is at it

home, source = sys.argv[1:]
with forebay.connect(home, spark_conf={"spark.scheduler.listenerbus.eventqueue.streams.capacity": "1"}) as db:
    db.spark.streams.addListener(Slow())
    db.execute(source)
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, v FROM s")
    db.wait(timeout=60)
    for round in range(int(sys.stdin.readline())):
        print("next", flush=True)
        sys.stdin.readline()
        db.wait(timeout=60)
    found = db.queries()[0]
    print(found.batch, found.records, found.rejected, Slow.heard, sum(row.lag for row in db.lag()), flush=True)
"""


def test_an_event_that_sparks_queue_drops_loses_no_count_and_no_commit(
    tmp_path: Path, cluster: Cluster
) -> None:
    """A listener of the user's that is slow makes Spark drop the events of all listeners."""
    topic, rounds = cluster.make_topic(1), 12
    source = create_source(cluster, "s", topic, COLUMNS, group_id=name("dropping"))
    script = tmp_path / "dropping.py"
    script.write_text(DROPPING)
    cluster.produce(topic, events(range(5)))
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "home"), source],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        print(rounds, file=process.stdin, flush=True)
        for number in range(1, rounds + 1):
            assert process.stdout.readline() == "next\n"
            cluster.produce(topic, [*events(range(number * 5, number * 5 + 5)), "junk"])
            print(file=process.stdin, flush=True)
        batch, records, rejected, heard, lag = map(int, process.stdout.readline().split())
    assert process.returncode == 0
    assert heard < batch, "no event was dropped"
    assert (records, rejected, lag) == (5 + rounds * 6, rounds, 0)


def test_selects_at_once_over_one_view_do_not_disturb_each_other(tmp_path: Path, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(2), name("src")
    cluster.produce(topic, events(range(30)))
    with connect(tmp_path / "home") as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        db.execute(f"CREATE MATERIALIZED VIEW all_of_them AS SELECT id, v FROM {source}")
        caught_up(db)
        with ThreadPoolExecutor(8) as pool:
            asked = [
                pool.submit(rows, db, f"SELECT count(*), {number} FROM all_of_them") for number in range(32)
            ]
            assert [each.result() for each in asked] == [[(30, number)] for number in range(32)]


def test_views_whose_names_join_alike_have_temporary_names_of_their_own(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic = cluster.make_topic(1)
    with connect(tmp_path / "home") as db:
        db.execute(create_source(cluster, "c", topic, COLUMNS))
        db.execute(create_source(cluster, "b_c", topic, COLUMNS))

        def planned(view: str, source: str) -> str:
            steps = dict(
                rows(db, f"EXPLAIN CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source} WHERE v > 1")
            )
            return str(steps["spark sql"])

        assert planned("a_b", "c") != planned("a", "b_c")


def test_a_users_own_spark_keeps_its_settings_its_log_level_and_its_temporary_views(
    tmp_path: Path, cluster: Cluster
) -> None:
    connect(tmp_path / "first").close()  # there is a Spark in this process now
    mine = SparkSession.builder.getOrCreate()
    root = mine.sparkContext._jvm.org.apache.logging.log4j.LogManager.getRootLogger()  # type: ignore[union-attr]
    before = {
        key: mine.conf.get(key) for key in ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")
    }
    level = root.getLevel().toString()
    topic, source = cluster.make_topic(1), name("src")
    cluster.produce(topic, events(range(4)))
    try:
        mine.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        mine.conf.set("spark.sql.shuffle.partitions", "7")
        mine.sparkContext.setLogLevel("FATAL")
        mine.range(3).createOrReplaceTempView("forebay_mine")
        with connect(tmp_path / "home") as db:
            db.execute(create_source(cluster, source, topic, COLUMNS))
            db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM {source} GROUP BY k")
            caught_up(db)
            assert rows(db, "SELECT k, n FROM v ORDER BY k") == [("a", 2), ("b", 2)]
            assert mine.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
            assert mine.conf.get("spark.sql.shuffle.partitions") == "7"
            assert root.getLevel().toString() == "FATAL"
            assert mine.sql("SELECT count(*) FROM forebay_mine").collect()[0][0] == 3
        assert mine.range(5).count() == 5, "it goes on when the session is closed"
    finally:
        for key, value in before.items():
            mine.conf.set(key, str(value))
        mine.sparkContext.setLogLevel(level)
        mine.catalog.dropTempView("forebay_mine")


def test_a_setting_that_a_running_spark_cannot_take_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import forebay

    connect(tmp_path / "first").close()
    with (
        caplog.at_level("WARNING", "forebay.spark"),
        forebay.connect(tmp_path / "home", spark_conf={"spark.executor.memory": "9g"}) as db,
    ):
        assert db.spark.range(2).count() == 2
    assert "spark.executor.memory" in caplog.text
