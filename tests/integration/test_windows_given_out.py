"""EMIT ON WINDOW CLOSE where tasks close the windows: each is given out once, and rows that come after that are late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sessions import (
    BASE_MS,
    EVENTS,
    caught_up,
    checkpoint_of,
    connect,
    create_source,
    event,
    events,
    name,
    rows,
    utc,
)
from support import Cluster
from waiting import eventually

from forebay.runtime.session import Session

START = datetime.fromtimestamp(BASE_MS / 1000, UTC)
KEYED = f"{EVENTS} PER KEY k"
WINDOWS = "SELECT k, window_start AS w, count(*) AS n FROM {} GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), k"


def of(key: str, *seconds: int) -> list[str]:
    return [event(number, k=key) for number in seconds]


def given_out(db: Session, view: str = "v") -> list[tuple[str, int, int]]:
    found = utc(rows(db, f"SELECT k, w, n FROM {view}"))
    return sorted((key, (at - START) // timedelta(minutes=1), n) for key, at, n in found)


def late(db: Session, view: str = "v") -> int:
    return next(query.late for query in db.queries() if query.view == view)


def forget_last_commit(home: Path, view: str) -> None:
    """As after a crash before Spark's commit: the batch is repeated."""
    commits = checkpoint_of(home, view) / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)


def test_a_window_is_given_out_once_and_what_comes_later_is_in_the_table_of_late_rows(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(1), name("src"), tmp_path / "home"
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, auto_offset_reset="earliest"))
        db.execute(
            f"CREATE MATERIALIZED VIEW v AS {WINDOWS.format(source)} LATE DATA TO late_rows EMIT ON WINDOW CLOSE"
        )
        cluster.produce(topic, [*of("a", 0, 1, 70), *of("b", 2)])  # the watermark is 65 s
        caught_up(db)
        assert given_out(db) == [("a", 0, 2), ("b", 0, 1)]
        cluster.produce(topic, [*of("a", 3, 71), *of("c", 130)])  # 125 s
        caught_up(db)
        assert given_out(db) == [("a", 0, 2), ("a", 1, 2), ("b", 0, 1)]
        assert rows(db, "SELECT k, id FROM late_rows") == [("a", 3)]
    forget_last_commit(home, "v")
    with connect(home) as db:
        db.start_all()
        cluster.produce(topic, [*of("b", 72), *of("c", 200)])
        caught_up(db)
        assert given_out(db) == [("a", 0, 2), ("a", 1, 2), ("b", 0, 1), ("c", 2, 1)]
        assert sorted(rows(db, "SELECT k, id FROM late_rows")) == [("a", 3), ("b", 72)]
        assert late(db) == 2
        # What the view misses is judged by what it has given out.
        db.execute(f"CREATE MATERIALIZED VIEW other AS SELECT id FROM {source}")
        caught_up(db)
        db.execute("STOP VIEW v")
        cluster.produce(topic, [*of("c", 201, 131), *of("a", 300)])
        caught_up(db)
        db.execute("START VIEW v")
        caught_up(db)
        assert given_out(db) == [("a", 0, 2), ("a", 1, 2), ("b", 0, 1), ("c", 2, 1), ("c", 3, 2)]
        assert sorted(rows(db, "SELECT k, id FROM late_rows")) == [("a", 3), ("b", 72), ("c", 131)]


def test_windows_close_when_nothing_comes_any_more(tmp_path: Path, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(2), name("src")
    with connect(tmp_path / "home") as db:
        idle = {"watermark_idle_timeout_ms": "500"}
        db.execute(create_source(cluster, source, topic, auto_offset_reset="earliest", **idle))
        db.execute(
            f"CREATE MATERIALIZED VIEW v AS {WINDOWS.format(source)} LATE DATA TO late_rows EMIT ON WINDOW CLOSE"
        )
        cluster.produce(topic, events([0, 57]))  # the window is over when 8 s have passed since
        eventually(lambda: len(given_out(db)) == 2, "the window closes with the clock", 60)


def test_windows_are_given_out_by_the_watermark_of_their_own_key_each_once(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(1), name("src"), tmp_path / "home"
    create = f"CREATE MATERIALIZED VIEW v AS {WINDOWS.format(source)} EMIT ON WINDOW CLOSE"
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, KEYED, auto_offset_reset="earliest"))
        db.execute(create)
        cluster.produce(topic, [*of("fast", 7100, 7200), *of("slow", 0, 10)])
        caught_up(db)
        assert given_out(db) == [("fast", 118, 1)]  # the slow key's first minute is not over
        cluster.produce(topic, [*of("slow", 20, 70), *of("new", 5)])
        caught_up(db)
        expected: list[Any] = [("fast", 118, 1), ("slow", 0, 3)]
        assert given_out(db) == expected
        assert late(db) == 0
    forget_last_commit(home, "v")
    with connect(home) as db:
        db.start_all()
        cluster.produce(topic, [*of("slow", 30, 131), *of("fast", 7101, 7270)])  # 30 and 7101 are late
        caught_up(db)
        expected = sorted([*expected, ("slow", 1, 1), ("fast", 120, 1)])
        assert given_out(db) == expected
        assert late(db) == 2
        db.execute(f"CREATE MATERIALIZED VIEW other AS SELECT id FROM {source}")
        caught_up(db)
        db.execute("STOP VIEW v")
        cluster.produce(
            topic, [*of("slow", 40, 200), *of("new", 6, 70)]
        )  # it has given out the first minute of slow
        caught_up(db)
        db.execute("START VIEW v")
        caught_up(db)
        assert given_out(db) == sorted([*expected, ("slow", 2, 1), ("new", 0, 2)])
        assert late(db) == 3


def test_every_key_closes_when_all_are_idle(tmp_path: Path, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(1), name("src")
    with connect(tmp_path / "home") as db:
        idle = {"watermark_idle_timeout_ms": "500"}
        db.execute(create_source(cluster, source, topic, KEYED, auto_offset_reset="earliest", **idle))
        db.execute(f"CREATE MATERIALIZED VIEW v AS {WINDOWS.format(source)} EMIT ON WINDOW CLOSE")
        cluster.produce(topic, [*of("a", 0), *of("b", 57)])
        eventually(lambda: given_out(db) == [("a", 0, 1), ("b", 0, 1)], "both are over with the clock", 60)
