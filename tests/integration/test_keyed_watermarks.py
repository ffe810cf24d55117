"""Keyed watermarks on a real broker: a slow key's rows are not late because a fast key ran ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sessions import BASE_MS, EVENTS, caught_up, checkpoint_of, connect, create_source, event, name, rows, utc
from support import Cluster

from forebay.errors import ForebayError, UnsupportedSqlError
from forebay.runtime.session import Session

START = datetime.fromtimestamp(BASE_MS / 1000, UTC)
KEYED = f"{EVENTS} PER KEY k"
WINDOWS = "SELECT k, window_start AS w, count(*) AS n FROM {} GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), k"


def of(key: str, *seconds: int) -> list[str]:
    return [event(number, k=key) for number in seconds]


def counts(db: Session, view: str) -> dict[str, list[tuple[Any, int]]]:
    found: dict[str, list[tuple[Any, int]]] = {}
    for key, at, n in utc(rows(db, f"SELECT k, w, n FROM {view} ORDER BY k, w")):
        found.setdefault(key, []).append(((at - START) // timedelta(minutes=1), n))
    return found


def late(db: Session, view: str) -> int:
    return next(query.late for query in db.queries() if query.view == view)


def test_windows_close_by_the_watermark_of_their_own_key_over_restarts_and_repeats(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(1), name("src"), tmp_path / "home"
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, KEYED, auto_offset_reset="earliest"))
        db.execute(
            f"CREATE MATERIALIZED VIEW v AS {WINDOWS.format(source)} LATE DATA TO late_rows EMIT CHANGES"
        )
        cluster.produce(topic, [*of("fast", 7200), *of("slow", 0, 10)])
        caught_up(db)
        # Two hours behind the fast key, and in order among its own: never late. A new key is not late, either.
        cluster.produce(topic, [*of("slow", 20, 70), *of("new", 5), *of("fast", 7260)])
        caught_up(db)
        # By its own watermark, which is at 65 s, the slow key's first minute is over.
        cluster.produce(topic, [*of("slow", 30, 71), *of("new", 6), *of("fast", 7199)])
        caught_up(db)
        expected = {"fast": [(120, 1), (121, 1)], "slow": [(0, 3), (1, 2)], "new": [(0, 2)]}
        assert counts(db, "v") == expected
        assert rows(db, "SELECT k, id FROM late_rows ORDER BY k") == [("fast", 7199), ("slow", 30)]
        assert late(db, "v") == 2
        assert "PER KEY k" in db.sql(f"SHOW CREATE SOURCE {source}").fetchall()[0][0]

    # The last batch again, as after a crash before its commit: it is judged by the marks that it was judged by before.
    commits = checkpoint_of(home, "v") / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    with connect(home) as db:
        db.start_all()
        cluster.produce(topic, [*of("slow", 31, 72), *of("new", 7), *of("fast", 7198)])
        caught_up(db)
        assert counts(db, "v") == {"fast": [(120, 1), (121, 1)], "slow": [(0, 3), (1, 3)], "new": [(0, 3)]}
        assert [row[0] for row in rows(db, "SELECT id FROM late_rows ORDER BY id")] == [30, 31, 7198, 7199]
        assert late(db, "v") == 4


def test_a_key_that_was_idle_falls_back_to_the_watermark_of_the_source(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source = cluster.make_topic(1), name("src")
    with connect(tmp_path / "home") as db:
        idle = {"watermark_idle_timeout_ms": "1"}
        db.execute(create_source(cluster, source, topic, KEYED, auto_offset_reset="earliest", **idle))
        db.execute(f"CREATE MATERIALIZED VIEW v AS {WINDOWS.format(source)}")
        cluster.produce(topic, [*of("fast", 7200), *of("slow", 0)])
        caught_up(db)
        for number in range(3):  # batches without a row of the slow key, each after all was read
            cluster.produce(topic, of("fast", 7210 + number))
            caught_up(db)
        cluster.produce(topic, of("slow", 1))
        caught_up(db)
        assert counts(db, "v") == {"fast": [(120, 4)], "slow": [(0, 1)]}
        assert late(db, "v") == 1
        # From now on it has a watermark of its own again.
        cluster.produce(topic, of("slow", 2))
        caught_up(db)
        assert counts(db, "v")["slow"] == [(0, 2)]


def test_views_that_cannot_heed_the_watermarks_of_keys_are_refused(db: Session, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(1), name("src")
    db.execute(create_source(cluster, source, topic, KEYED, auto_offset_reset="earliest"))
    windows = WINDOWS.format(source)
    for query, message in (
        (f"{windows.replace(', k', '').replace('k, ', '')} EMIT ON WINDOW CLOSE", "group by that key"),
        (f"{windows.replace('TUMBLE', 'SESSION')} EMIT ON WINDOW CLOSE", "one watermark for all"),
        (windows.replace("TUMBLE(ts", "HOP(ts, INTERVAL '30' SECOND"), "windows that overlap"),
        (f"SELECT a.id FROM {source} a JOIN {source} b ON a.id = b.id", "one watermark for all"),
    ):
        with pytest.raises(UnsupportedSqlError, match=message):
            db.execute(f"CREATE MATERIALIZED VIEW refused AS {query}")
    with pytest.raises(ForebayError, match="tells no keys apart"):
        db.execute(create_source(cluster, name("src"), topic, KEYED.replace("k STRING", "k DOUBLE")))
    # What needs no watermark leaves no row out.
    view = name("view")
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT DISTINCT k, ts FROM {source}")
    cluster.produce(topic, [*of("fast", 7200), *of("slow", 0)])
    caught_up(db)
    cluster.produce(topic, of("slow", 1))
    caught_up(db)
    assert len(rows(db, f"SELECT * FROM {view}")) == 3
    db.execute(f"DROP SOURCE {source} CASCADE")
