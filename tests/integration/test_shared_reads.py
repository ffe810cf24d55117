"""One read for many views: who joins has every record once, who fails or leaves is missed by nobody."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable
from sessions import caught_up, checkpoint_of, connect, create_source, events, name, rows
from support import Cluster
from waiting import eventually

from forebay.errors import ForebayError
from forebay.runtime import shared_read, shared_reads
from forebay.runtime.session import Session

COLUMNS = "id BIGINT NOT NULL, k STRING, v BIGINT"


def ids(db: Session, view: str) -> list[int]:
    return sorted(row[0] for row in rows(db, f"SELECT id FROM {view}"))


def state(db: Session, view: str) -> str:
    return next(query.state for query in db.queries() if query.view == view)


def running_queries(db: Session) -> int:
    return len([query for query in db.spark.streams.active if query.isActive])


def test_ten_views_over_a_source_are_one_query_and_each_has_its_rows(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source = cluster.make_topic(3), name("src")
    cluster.produce(topic, events(range(100)))
    with connect(tmp_path / "home") as db:
        before = running_queries(db)
        db.execute(create_source(cluster, source, topic, COLUMNS))
        for number in range(9):
            db.execute(
                f"CREATE MATERIALIZED VIEW v{number} AS SELECT id, v FROM {source} WHERE v % 9 = {number}"
            )
        db.execute(
            f"CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS total FROM {source} GROUP BY k"
        )
        inner = f"WITH even AS (SELECT id, k, v AS amount FROM {source} WHERE v % 2 = 0)"
        db.execute(f"CREATE MATERIALIZED VIEW inner_rows AS {inner} SELECT id FROM even WHERE amount > 150")
        some = "count(*) FILTER (WHERE v < 10) AS low, count_if(v > 90) AS high, min(k) AS least"
        db.execute(f"CREATE MATERIALIZED VIEW some AS SELECT k, {some} FROM {source} GROUP BY ALL")
        caught_up(db)
        assert running_queries(db) - before == 1
        cluster.produce(topic, [*events(range(100, 200)), "junk"])
        caught_up(db)
        assert ids(db, "inner_rows") == list(range(152, 200, 2))
        assert sorted(rows(db, "SELECT * FROM some")) == [("a", 5, 54, "a"), ("b", 5, 55, "b")]
        for number in range(9):
            assert ids(db, f"v{number}") == list(range(number, 200, 9))
        assert rows(db, "SELECT * FROM sums ORDER BY k") == [("a", 100, 9900), ("b", 100, 10000)]
        assert {(query.records, query.rejected) for query in db.queries()} == {(201, 1)}
        assert sum(cluster.committed(source, topic).values()) == 201


@pytest.mark.parametrize("far", [False, True])
def test_a_view_that_comes_later_catches_up_and_joins_without_a_gap_or_a_repeat(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, far: bool
) -> None:
    if far:  # then it has a read of its own first
        monkeypatch.setattr(shared_reads, "NEAR", 20)
    topic, source = cluster.make_topic(3), name("src")
    cluster.produce(topic, events(range(500)))
    stop = threading.Event()
    sent = [500]

    def feed() -> None:
        while not stop.wait(0.02):
            cluster.produce(topic, events(range(sent[0], sent[0] + 5)))
            sent[0] += 5

    with connect(tmp_path / "home") as db:
        before = running_queries(db)
        db.execute(create_source(cluster, source, topic, COLUMNS, max_records_per_batch=100))
        db.execute(f"CREATE MATERIALIZED VIEW first AS SELECT id FROM {source}")
        caught_up(db)
        feeding = threading.Thread(target=feed)
        feeding.start()
        try:
            db.execute(f"CREATE MATERIALIZED VIEW second AS SELECT id, k FROM {source}")
            db.execute(f"CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n FROM {source} GROUP BY k")
            caught_up(db)
        finally:
            stop.set()
            feeding.join()
        caught_up(db)
        eventually(lambda: running_queries(db) - before == 1, "all views are served by one query")
        cluster.produce(topic, events(range(sent[0], sent[0] + 50)))
        caught_up(db)
        everything = list(range(sent[0] + 50))
        assert ids(db, "first") == ids(db, "second") == everything
        assert sum(row[1] for row in rows(db, "SELECT k, n FROM counts")) == len(everything)
        assert {query.records for query in db.queries()} == {len(everything)}
        assert sum(cluster.committed(source, topic).values()) == len(everything)


def test_a_view_over_a_quiet_source_has_what_is_there_though_nothing_new_comes(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source = cluster.make_topic(2), name("src")
    cluster.produce(topic, events(range(40)))
    with connect(tmp_path / "home") as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        db.execute(f"CREATE MATERIALIZED VIEW first AS SELECT id FROM {source}")
        caught_up(db)
        db.execute(f"CREATE MATERIALIZED VIEW second AS SELECT id FROM {source} WHERE v < 10")
        caught_up(db)
        assert ids(db, "second") == list(range(10))


def test_a_view_that_fails_is_failed_alone_and_goes_on_where_it_stood(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(2), name("src"), tmp_path / "home"
    cluster.produce(topic, events(range(20)))
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        db.execute(f"CREATE MATERIALIZED VIEW well AS SELECT id FROM {source}")
        db.execute(f"CREATE MATERIALIZED VIEW away AS SELECT id FROM {source}")
        db.execute(f"CREATE MATERIALIZED VIEW divides AS SELECT id, 100 / (v - 25) AS share FROM {source}")
        caught_up(db)
        shutil.move(home / "views" / "away" / "table", tmp_path / "elsewhere")
        db.execute(f"PAUSE SOURCE {source}")  # all of them in one batch, which is refused whole
        cluster.produce(topic, events(range(20, 40)))
        db.execute(f"RESUME SOURCE {source}")
        eventually(lambda: state(db, "away") == state(db, "divides") == "failed", "two views fail")
        eventually(lambda: ids(db, "well") == list(range(40)), "the third goes on")
        messages = {query.view: query.message for query in db.queries()}
        assert f"its table at {home / 'views' / 'away' / 'table'} is gone" in messages["away"], messages
        assert "FB4009" in messages["divides"], messages
        assert sum(cluster.committed(source, topic).values()) == 20, "the group waits for those that failed"
        with pytest.raises(ForebayError):
            db.check()

        shutil.move(tmp_path / "elsewhere", home / "views" / "away" / "table")
        db.execute("START VIEW away")
        eventually(lambda: ids(db, "away") == list(range(40)), "what was away is there again")
        assert sum(cluster.committed(source, topic).values()) == 20, "one view is still waited for"
        db.execute("ALTER VIEW divides DETACH")
        eventually(lambda: sum(cluster.committed(source, topic).values()) == 40, "nobody waits for it now")
        cluster.produce(topic, events(range(40, 60)))
        caught_up(db)
        assert ids(db, "away") == ids(db, "well") == list(range(60))
        eventually(lambda: sum(cluster.committed(source, topic).values()) == 60, "the group follows again")
        assert {query.view: query.records for query in db.queries()} == {
            "away": 60,
            "well": 60,
            "divides": 20,
        }
        db.execute("START VIEW divides")
        with pytest.raises(ForebayError, match="FB4009"):  # it has not moved, and meets the same row again
            caught_up(db)


def test_a_view_whose_table_is_slow_holds_up_nobody_and_follows(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_read, "SLOW_S", 0.5)
    topic, source = cluster.make_topic(2), name("src")
    cluster.produce(topic, events(range(20)))
    with connect(tmp_path / "home") as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        for view in ("quick", "slow"):
            db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
        caught_up(db)
        free = threading.Event()
        table = db._views.running[
            "slow"
        ].table  # what is slow in the field is the disk or the network under it
        add = table.add
        monkeypatch.setattr(table, "add", lambda *args: free.wait(60) and add(*args))
        cluster.produce(topic, events(range(20, 40)))
        eventually(lambda: ids(db, "quick") == list(range(40)), "the quick view goes on")
        cluster.produce(topic, events(range(40, 60)))
        eventually(lambda: ids(db, "quick") == list(range(60)), "and on")
        assert state(db, "slow") == "retrying"
        assert ids(db, "slow") == list(range(20))
        free.set()
        caught_up(db)
        assert ids(db, "slow") == list(range(60))
        eventually(lambda: {query.records for query in db.queries()} == {60}, "all is counted, once")
        assert state(db, "slow") == "running"


def test_a_view_that_is_stopped_or_dropped_leaves_the_others_running(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(2), name("src"), tmp_path / "home"
    cluster.produce(topic, events(range(20)))
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        for view in ("stays", "stops", "goes"):
            db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
        caught_up(db)
        db.execute("STOP VIEW stops; DROP MATERIALIZED VIEW goes")
        cluster.produce(topic, events(range(20, 40)))
        caught_up(db)
        assert ids(db, "stays") == list(range(40))
        assert ids(db, "stops") == list(range(20))
        assert not (home / "views" / "goes").exists()
        db.execute("START VIEW stops")
        caught_up(db)
        assert ids(db, "stops") == list(range(40))
        db.execute("DROP MATERIALIZED VIEW stays; DROP MATERIALIZED VIEW stops")
        assert not (home / "sources" / source / "read").exists(), "nobody needs it any more"


def test_a_second_process_on_the_home_serves_its_own_view_by_itself(tmp_path: Path, cluster: Cluster) -> None:
    """The read for all views belongs to the first; both have all records, and the group what both have."""
    topic, source, home = cluster.make_topic(2), name("src"), tmp_path / "home"
    cluster.produce(topic, events(range(20)))
    with connect(home) as first, connect(home) as second:
        first.execute(create_source(cluster, source, topic, COLUMNS))
        first.execute(f"CREATE MATERIALIZED VIEW mine AS SELECT id FROM {source}")
        caught_up(first)
        second.execute(f"CREATE MATERIALIZED VIEW yours AS SELECT id FROM {source}")
        caught_up(second)
        assert checkpoint_of(home, "yours") != checkpoint_of(home, "mine")
        assert ids(second, "yours") == ids(second, "mine") == list(range(20))
    cluster.produce(topic, events(range(20, 30)))
    with connect(home) as again:
        again.start_all()
        caught_up(again)
        assert ids(again, "yours") == ids(again, "mine") == list(range(30))
        eventually(
            lambda: checkpoint_of(home, "yours") == checkpoint_of(home, "mine"), "they are served together"
        )


def test_files_of_a_task_that_was_killed_are_no_rows(tmp_path: Path, cluster: Cluster) -> None:
    topic, source, home = cluster.make_topic(1), name("src"), tmp_path / "home"
    cluster.produce(topic, events(range(10)))
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {source}")
        caught_up(db)
        table = home / "views" / "v" / "table"
        [file] = table.glob("*.parquet")
        shutil.copy(file, table / "part-of-a-killed-task.parquet")
        assert ids(db, "v") == list(range(10))
        assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 10


def test_windows_with_changes_close_by_the_watermark_also_over_a_restart_and_late_rows_are_counted(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(1), name("src"), tmp_path / "home"
    columns = "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR TS AS TS - INTERVAL '5' SECOND"
    view = (
        f"CREATE MATERIALIZED VIEW minutes AS SELECT window_start AS w, count(*) AS n FROM {source} "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) EMIT CHANGES"
    )
    counts = "SELECT n FROM minutes ORDER BY w"
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, columns))
        db.execute(view)
        for numbers in ([0, 30], [70], [31, 71]):  # 70 s less 5: the first minute is over when 31 comes
            cluster.produce(topic, events(numbers))
            caught_up(db)
        assert rows(db, counts) == [(2,), (2,)]
        assert [query.late for query in db.queries()] == [1]
        assert dict(rows(db, f"EXPLAIN {view}"))["served by"].startswith("one read")
    with connect(home) as db:
        db.execute(view)
        cluster.produce(topic, events([32, 72, 130]))
        caught_up(db)
        assert rows(db, counts) == [(2,), (3,), (1,)]
        assert [query.late for query in db.queries()] == [2]
        cluster.produce(topic, events([131]))
        caught_up(db)
        changes = list(db.subscribe("minutes", timeout=0.5))
        kinds = [kind for batch in changes for kind in batch.column("_change_type").to_pylist()]
        assert kinds.count("insert") == 3
        assert kinds.count("update_preimage") == kinds.count("update_postimage") == 3


def test_a_source_whose_event_time_is_a_date_is_served_as_well(tmp_path: Path, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(1), name("src")
    cluster.produce(topic, ['{"id": 1, "day": "2026-01-15"}', '{"id": 2, "day": null}'])
    with connect(tmp_path / "home") as db:
        db.execute(
            create_source(
                cluster, source, topic, "id BIGINT, day DATE, WATERMARK FOR day AS day - INTERVAL '5' SECOND"
            )
        )
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id, day FROM {source}")
        caught_up(db)
        assert ids(db, "v") == [1, 2]


def test_whoever_reads_the_delta_table_of_groups_sees_all_within_the_freshness_and_at_once_when_the_session_ends(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(2), name("src"), tmp_path / "home"
    cluster.produce(topic, events(range(50)))
    table = str(home / "views" / "sums" / "table")

    def outside() -> dict[str, int]:
        return {row["k"]: row["n"] for row in DeltaTable(table).to_pyarrow_table().to_pylist()}

    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        query = f"SELECT k, count(*) AS n FROM {source} GROUP BY k"
        db.execute(f"CREATE MATERIALIZED VIEW sums WITH ('view.freshness' = '2 seconds') AS {query}")
        caught_up(db)
        eventually(lambda: outside() == {"a": 25, "b": 25}, "the table follows", timeout=10)
        cluster.produce(topic, events(range(50, 60)))
        caught_up(db)
        assert dict(rows(db, "SELECT k, n FROM sums")) == {"a": 30, "b": 30}, "SELECT waits for nobody"
    assert outside() == {"a": 30, "b": 30}


def test_having_shows_a_group_while_it_passes_in_select_subscribe_and_the_delta_table(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(1), name("src"), tmp_path / "home"
    table = str(home / "views" / "few" / "table")
    cluster.produce(topic, events([0, 1, 3]))  # of 'a' one, of 'b' two
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        query = f"SELECT k, count(*) AS n FROM {source} GROUP BY k HAVING n < 3 AND max(v) > 0"
        db.execute(f"CREATE MATERIALIZED VIEW few WITH ('view.freshness' = '1 second') AS {query}")
        caught_up(db)
        assert rows(db, "SELECT * FROM few") == [("b", 2)]
        cluster.produce(topic, events([2]))
        caught_up(db)
        assert sorted(rows(db, "SELECT * FROM few")) == [("a", 2), ("b", 2)]
        cluster.produce(topic, events([5]))
        caught_up(db)
        assert rows(db, "SELECT * FROM few") == [("a", 2)]
        changes = [row for batch in db.subscribe("few", timeout=1) for row in batch.to_pylist()]
        assert [(row["_change_type"], row["k"], row["n"]) for row in changes] == [
            ("insert", "b", 2),
            ("insert", "a", 2),
            ("delete", "b", 2),
        ]
    assert DeltaTable(table).to_pyarrow_table().to_pylist() == [{"k": "a", "n": 2}]


def test_a_view_of_groups_whose_table_is_away_can_be_dropped_and_the_others_go_on(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(1), name("src"), tmp_path / "home"
    cluster.produce(topic, events(range(10)))
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, COLUMNS))
        db.execute(f"CREATE MATERIALIZED VIEW well AS SELECT id FROM {source}")
        db.execute(f"CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n FROM {source} GROUP BY k")
        caught_up(db)
        (home / "views" / "sums").rename(tmp_path / "sums")  # at once: its table may just be published
        cluster.produce(topic, events(range(10, 20)))
        eventually(lambda: state(db, "sums") == "failed", "it fails")
        db.execute("DROP MATERIALIZED VIEW sums")
        caught_up(db)
        assert ids(db, "well") == list(range(20))
