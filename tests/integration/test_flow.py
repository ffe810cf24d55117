"""Flow on the real broker and Spark: sizes of batches, the budget in flight, pausing, waiting for fuller batches."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from benchmarks.fetching import Traffic
from commands import forebay
from sessions import (
    catalog_of,
    caught_up,
    connect,
    create_source,
    create_view,
    event,
    events,
    name,
    notes,
    rows,
)
from support import Cluster, kafka_source
from waiting import eventually

from forebay import column_types as types
from forebay.errors import MissingOptionError, SourcePausedError, UnknownObjectError, UnsupportedSqlError
from forebay.kafka.offsets import KafkaSplit, Range
from forebay.runtime.session import Session
from forebay.runtime.source_flow import SourceFlow
from forebay.source.batch_size import FIRST

COLUMNS = "id BIGINT NOT NULL, k STRING, v BIGINT"
OWN_QUERY = "SELECT DISTINCT id FROM {}"  # Spark's alone: such a view has a query of its own
AWAY_S = float(os.environ.get("FOREBAY_AWAY_SECONDS", "4"))  # make chaos: ten minutes


def ids(db: Session, view: str) -> list[int]:
    return sorted(row[0] for row in rows(db, f"SELECT id FROM {view}"))


def status(db: Session, view: str) -> Any:
    return next(query for query in db.queries() if query.view == view)


def source_status(db: Session, source: str) -> Any:
    return next(each for each in db.sources() if each.name == source)


def batch_records(db: Session, view: str) -> list[int]:
    """Of the view's batches, the first one first."""
    with catalog_of(db) as catalog:
        return [records for _, _, records, _, _ in reversed(catalog.batches(view))]


# -- pausing ---------------------------------------------------------------------------------------------


def test_a_paused_source_is_not_read_and_goes_on_without_a_gap_when_it_is_resumed(
    db: Session, cluster: Cluster
) -> None:
    topic, source = cluster.make_topic(2), name("src")
    cluster.produce(topic, events(range(20)))
    db.execute(create_source(cluster, source, topic, COLUMNS))
    shared = create_view(db, f"SELECT id FROM {source}")
    own = create_view(db, OWN_QUERY.format(source))
    caught_up(db)

    assert "paused" in str(db.sql(f"PAUSE SOURCE {source}"))
    cluster.produce(topic, events(range(20, 60)))
    for view in (shared, own):
        found = eventually(lambda view=view: (q := status(db, view)).state == "paused" and q, "it is paused")  # type: ignore[misc]
        assert f"RESUME SOURCE {source}" in found.message
        assert f"RESUME SOURCE {source}" in found.catch_up
    with pytest.raises(SourcePausedError, match=f"RESUME SOURCE {source}"):
        db.wait(until_caught_up=True, timeout=60)
    assert ids(db, shared) == ids(db, own) == list(range(20))
    assert source_status(db, source).flow.startswith("paused since ")
    db.watch_health()
    found = eventually(
        lambda: [m.paused_partitions for m in db.metrics() if m.source == source and m.paused_partitions],
        "the brokers have said how many partitions there are",
    )
    assert found == [2]
    query = f"SELECT paused_partitions FROM forebay_catalog.sources WHERE name = '{source}'"
    assert rows(db, query) == [(2,)]
    lines = notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
    assert any("paused by statement" in line for line in lines), lines
    assert "paused already" in str(db.sql(f"PAUSE SOURCE {source}"))

    db.execute(f"RESUME SOURCE {source}")
    caught_up(db)
    assert ids(db, shared) == ids(db, own) == list(range(60))
    eventually(lambda: status(db, own).state == status(db, shared).state == "running", "both run")
    assert status(db, shared).message == ""
    assert "not paused" in str(db.sql(f"RESUME SOURCE {source}"))

    with pytest.raises(UnknownObjectError, match="there is no source 'nobody'"):
        db.execute("PAUSE SOURCE nobody")
    with pytest.raises(UnsupportedSqlError, match=f"STOP VIEW {shared} .*, PAUSE SOURCE {source}"):
        db.execute(f"PAUSE SOURCE {shared}")


def test_a_pause_outlives_the_process_that_asked_for_it_and_the_one_that_reads(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(1), name("src"), tmp_path / "home"
    cluster.produce(topic, events(range(10)))
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {source}")
        caught_up(db)
        killed = subprocess.run(
            [sys.executable, "-c", f"import forebay, os; forebay.connect({str(home)!r}).execute('PAUSE SOURCE {source}');"
             "os.kill(os.getpid(), 9)"],
            check=False,
        )  # fmt: skip
        assert killed.returncode == -signal.SIGKILL
        cluster.produce(topic, events(range(10, 20)))
        eventually(lambda: status(db, "v").state == "paused", "another process's pause is heeded")
        shown = forebay("show", "queries", "-o", "json", "--home", str(home), environment=os.environ)
        assert '"state": "paused"' in shown.stdout, shown
    with connect(home) as db:
        db.start_all()
        eventually(lambda: status(db, "v").state == "paused", "also after a restart")
        assert ids(db, "v") == list(range(10))
        done = forebay("sql", "-e", f"RESUME SOURCE {source}", "--home", str(home), environment=os.environ)
        assert done.returncode == 0, done
        caught_up(db)
        assert ids(db, "v") == list(range(20))
        db.execute(f"PAUSE SOURCE {source}; DROP SOURCE {source} CASCADE")
        db.execute(create_source(cluster, source, topic, COLUMNS))
        assert source_status(db, source).flow == "", "a source that is made anew is not paused"


# -- the size of batches ---------------------------------------------------------------------------------


def test_a_backlog_begins_with_a_small_batch_and_the_next_is_larger(db: Session, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(2), name("src")
    cluster.produce(topic, (event(number) for number in range(FIRST + 20_000)))
    db.execute(create_source(cluster, source, topic, COLUMNS, **{"batch_target_ms": 60_000}))
    view = create_view(db, f"SELECT id FROM {source}")
    caught_up(db)
    assert batch_records(db, view) == [FIRST, 20_000]
    lines = notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
    assert any(
        line.startswith("read for all views: at most 400,000 records a batch; grew") for line in lines
    ), lines
    assert "current" in lines
    assert status(db, view).catch_up == source_status(db, source).flow == "current"


def test_batches_that_take_longer_than_the_target_become_smaller(db: Session, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(1), name("src")
    cluster.produce(topic, (event(number) for number in range(FIRST + 14_000)))
    db.execute(create_source(cluster, source, topic, COLUMNS, **{"batch_target_ms": 1}))
    view = create_view(db, f"SELECT id FROM {source}")
    caught_up(db)
    assert batch_records(db, view) == [FIRST, 12_500, 1500]


def test_a_first_batch_of_wide_records_fits_the_budget_though_nothing_was_measured_yet(
    db: Session, cluster: Cluster
) -> None:
    topic, source = cluster.make_topic(2), name("src")
    cluster.produce(topic, events(range(150), pad="x" * 100_000))
    db.execute(create_source(cluster, source, topic, COLUMNS, backpressure_budget_bytes="4MB"))
    view = create_view(db, f"SELECT id FROM {source}")
    caught_up(db)
    assert ids(db, view) == list(range(150))
    sizes = batch_records(db, view)
    # 80 % of four megabytes: a few records were looked at. By the largest that there may be, three would fit.
    assert 25 <= sizes[0] <= (4 << 20) * 0.8 / 100_000
    assert max(sizes) <= (4 << 20) * 0.8 / 100_000


def test_lag_says_how_far_a_source_is_behind_and_how_long_that_lasts(
    db: Session, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, source = cluster.make_topic(2), name("src")
    db.execute(create_source(cluster, source, topic, COLUMNS, max_records_per_batch=100))
    view = create_view(db, f"SELECT id FROM {source}")
    free, table = threading.Event(), db._views.running[view].table
    add, batches = table.add, list[int]()

    def third_waits(*args: Any) -> Any:
        batches.append(1)
        return (len(batches) != 3 or free.wait(60)) and add(*args)

    monkeypatch.setattr(table, "add", third_waits)
    try:
        db.execute(f"PAUSE SOURCE {source}")  # so that there is a backlog
        cluster.produce(topic, events(range(1000)))
        db.execute(f"RESUME SOURCE {source}")
        eventually(lambda: len(batches) == 3, "two batches can be compared")
        done = forebay("lag", "--home", str(db.home), environment={**os.environ, "COLUMNS": "200"})
        assert re.search(r"behind by 800 records, \d+ s at this rate", done.stdout), done
        shown = source_status(db, source)
        assert shown.flow.startswith("behind by 800 records, ")
    finally:
        free.set()
    caught_up(db)
    assert ids(db, view) == list(range(1000))


# -- fuller batches --------------------------------------------------------------------------------------


def test_with_a_delay_batches_are_fewer_and_fuller_and_nothing_waits_longer(
    db: Session, cluster: Cluster
) -> None:
    topic, slow, quick = cluster.make_topic(1), name("src"), name("src")
    db.execute(create_source(cluster, slow, topic, COLUMNS, max_delay_ms=1000))
    db.execute(create_source(cluster, quick, topic, COLUMNS, max_delay_ms=1000, min_records_per_batch=5))
    views = [create_view(db, f"SELECT id FROM {each}") for each in (slow, quick)]
    for number in range(0, 120, 10):
        cluster.produce(topic, events(range(number, number + 10)))
        if number == 60:
            caught_up(db)
    caught_up(db)
    assert ids(db, views[0]) == ids(db, views[1]) == list(range(120))
    assert max(batch_records(db, views[0])) >= 20, "several writes are one batch"
    assert len(batch_records(db, views[0])) <= len(batch_records(db, views[1]))
    began = time.monotonic()
    cluster.produce(topic, events(range(120, 121)))
    caught_up(db)
    assert time.monotonic() - began >= 0.8, "one record alone waits for others"
    with pytest.raises(MissingOptionError, match=r"needs 'max\.delay\.ms'"):
        db.execute(create_source(cluster, name("src"), topic, COLUMNS, min_records_per_batch=5))


# -- the budget in flight --------------------------------------------------------------------------------


def test_above_the_high_watermark_other_reads_of_the_source_wait_and_say_whose_table_is_slow(
    db: Session, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, source = cluster.make_topic(1), name("src")
    db.execute(create_source(cluster, source, topic, COLUMNS, backpressure_budget_records=100))
    slow = create_view(db, OWN_QUERY.format(source))
    free, table = threading.Event(), db._views.running[slow].table
    write = table.merge
    monkeypatch.setattr(table, "merge", lambda *args: free.wait(60) and write(*args))
    db.execute(f"PAUSE SOURCE {source}")  # so that the first batch finds all of them
    cluster.produce(topic, events(range(400)))
    db.execute(f"RESUME SOURCE {source}")
    eventually(
        lambda: SourceFlow.of(db.home, source).in_flight.records == 80, "as much as may be is in flight"
    )
    quick = create_view(db, f"SELECT id FROM {source}")
    eventually(lambda: status(db, quick).state == "backpressured", "the other view waits")
    assert SourceFlow.of(db.home, source).in_flight.records == 80
    words = f"above the high watermark: the table of view {slow} is slow"
    assert status(db, quick).message == status(db, quick).catch_up == words
    assert ids(db, quick) == []
    free.set()
    caught_up(db)
    assert ids(db, quick) == ids(db, slow) == list(range(400))
    eventually(lambda: status(db, quick).state == "running", "it runs again")
    assert max(batch_records(db, quick)) <= 80


def test_memory_and_what_is_in_flight_stay_bounded_while_a_table_is_away(
    db: Session, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short here; FOREBAY_AWAY_SECONDS=600 is the long form."""
    topic, source = cluster.make_topic(2), name("src")
    big = {"pad": "x" * 2000}
    cluster.produce(topic, events(range(100), **big))
    db.execute(create_source(cluster, source, topic, COLUMNS))
    view = create_view(db, f"SELECT id FROM {source}")
    caught_up(db)
    free, table = threading.Event(), db._views.running[view].table
    add = table.add
    monkeypatch.setattr(table, "add", lambda *args: free.wait(AWAY_S + 120) and add(*args))

    def in_flight() -> int:
        return SourceFlow.of(db.home, source).in_flight.records

    eventually(lambda: in_flight() == 0, "the batch before is done")
    cluster.produce(topic, events(range(100, 200), **big))
    held = eventually(in_flight, "a batch waits for the table")
    sent, until, sizes = 200, time.monotonic() + AWAY_S, list[int]()
    while time.monotonic() < until:
        cluster.produce(topic, events(range(sent, sent + 5000), **big))  # ten megabytes
        sent += 5000
        sizes.append(_workers_memory())
        assert in_flight() == held, "one batch, and no other"
        time.sleep(AWAY_S / 40)  # a table that is away for ten minutes is not to fill the broker's disk
    assert len(sizes) >= 2
    assert sizes[-1] - sizes[0] < 64 << 20, sizes
    assert len(batch_records(db, view)) == 1
    free.set()
    caught_up(db)
    assert len(ids(db, view)) == sent


def _workers_memory() -> int:
    """Of the Python processes that Spark has started for this one."""
    found = 0
    for process in psutil.Process().children(recursive=True):
        try:
            if "python" in process.name():
                found += process.memory_info().rss
        except psutil.Error:
            continue
    return found


# -- fetching --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("native", [True, False])
def test_fetching_stops_within_ten_milliseconds_of_the_high_watermark_when_rows_are_taken_slowly(
    cluster: Cluster, plainly: Any, native: bool
) -> None:
    """A task holds no more than its budget: who does not take rows makes the reader fetch none."""
    if not native:
        plainly()
    topic, count = cluster.make_topic(1), 6000
    cluster.produce(topic, (b'{"n": %d, "pad": "%s"}' % (number, b"x" * 2000) for number in range(count)))
    options = cluster.kafka_options(
        topic, **{"fetch.budget.bytes": "2MB", "max.partition.fetch.bytes": "262144"}
    )
    source = kafka_source(options, pa.schema([pa.field("n", types.BIGINT)]))
    port = int(cluster.bootstrap_servers.rpartition(":")[2])
    with Traffic(port) as traffic:
        batches = source.read_batch(KafkaSplit((Range(topic, 0, 0, count),)))
        taken = next(batches).read
        stopped = time.monotonic()
        time.sleep(0.5)  # whoever takes rows is busy with them: that time passes is what is tested
        if not native:  # the library reads ahead, up to the share of the budget
            stopped = traffic.reached(int(0.8 * (2 << 20)))
        quiet_since = traffic.last_fetch()
        held = traffic.samples[-1][2]
        taken += sum(batch.read for batch in batches)
    source.close()
    assert quiet_since <= stopped + 0.010, f"{(quiet_since - stopped) * 1000:.1f} ms"
    assert held < 4 << 20, "and what came is within the budget, and one answer more"
    assert taken == count
