"""Rows that come after their window is closed: how long windows wait, and where late rows go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sessions import (
    BASE_MS,
    Send,
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

from forebay.errors import ForebayError, ObjectExistsError, UnsupportedSqlError
from forebay.runtime.session import Session

START = datetime.fromtimestamp(BASE_MS / 1000, UTC)
WINDOWS = "SELECT window_start AS w, count(*) AS n FROM {} GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"


def counts(db: Session, view: str) -> list[tuple[Any, ...]]:
    return [
        ((at - START) // timedelta(minutes=1), n)
        for at, n in utc(rows(db, f"SELECT w, n FROM {view} ORDER BY w"))
    ]


def late(db: Session, view: str) -> int:
    return next(query.late for query in db.queries() if query.view == view)


def test_windows_stay_open_for_the_allowed_lateness_and_not_longer(
    db: Session, feed: tuple[str, Send]
) -> None:
    source, send = feed
    strict, kind = name("strict"), name("kind")
    db.execute(f"CREATE MATERIALIZED VIEW {strict} AS {WINDOWS.format(source)}")
    db.execute(
        f"CREATE MATERIALIZED VIEW {kind} AS {WINDOWS.format(source)} ALLOW LATENESS INTERVAL '1' MINUTE EMIT CHANGES"
    )
    send(*events([0, 70]))  # the watermark is 65 s: the first minute is over
    send(*events([1, 130]))  # 125 s: over for the kind one, too
    assert counts(db, strict) == [(0, 1), (1, 1), (2, 1)]
    assert counts(db, kind) == [(0, 2), (1, 1), (2, 1)]
    send(*events([2, 71]))
    assert counts(db, kind) == [(0, 2), (1, 2), (2, 1)]
    assert (late(db, strict), late(db, kind)) == (3, 1)
    shown = db.sql(f"SHOW CREATE VIEW {kind}").fetchall()[0][0]
    assert shown.endswith("ALLOW LATENESS INTERVAL '1' MINUTE\nEMIT CHANGES")


def test_late_rows_are_in_the_table_that_late_data_names_each_once(tmp_path: Path, cluster: Cluster) -> None:
    topic, source, home = cluster.make_topic(1), name("src"), tmp_path / "home"
    create = f"CREATE MATERIALIZED VIEW v AS {WINDOWS.format(source)} LATE DATA TO late_rows EMIT CHANGES"
    create = create.replace(" GROUP BY", " WHERE v >= 0 GROUP BY")
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, auto_offset_reset="earliest"))
        db.execute(create)
        assert rows(db, "SELECT * FROM late_rows") == []
        cluster.produce(topic, events([0, 70]))
        caught_up(db)
        cluster.produce(topic, [event(1, k="late"), event(2, v=-1), event(71), event(3)])
        caught_up(db)
        assert counts(db, "v") == [(0, 1), (1, 2)]
        found = rows(db, "SELECT id, k, v FROM late_rows ORDER BY id")
        assert found == [(1, "late", 1), (3, "b", 3)], (
            "with all columns, and only what the view's WHERE takes"
        )
        assert rows(db, "SELECT count(*) FROM late_rows l JOIN (SELECT 1 AS one) o ON l.id = o.one") == [(1,)]
        assert late(db, "v") == 2
        for statement, error in (
            ("DESCRIBE late_rows", "table of late rows of view 'v'"),
            (f"CREATE MATERIALIZED VIEW late_rows AS SELECT id FROM {source}", "'late_rows' is a table"),
            (create.replace("VIEW v", "VIEW w"), "'late_rows' is a table"),
            (create.replace("TO late_rows", f"TO {source}"), "defined differently"),
            (
                create.replace("TO late_rows", f"TO {source}").replace("VIEW v", "VIEW w"),
                f"'{source}' is a source",
            ),
        ):
            with pytest.raises(ForebayError, match=error):
                db.execute(statement)

    # The last batch again, as after a crash before its commit.
    commits = checkpoint_of(home, "v") / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    with connect(home) as db:
        db.start_all()
        cluster.produce(topic, events([4, 72]))
        caught_up(db)
        assert [row[0] for row in rows(db, "SELECT id FROM late_rows ORDER BY id")] == [1, 3, 4]
        assert counts(db, "v") == [(0, 1), (1, 3)]
        assert late(db, "v") == 3
        db.execute("DROP MATERIALIZED VIEW v")
        with pytest.raises(ForebayError, match="there is no view or source 'late_rows'"):
            db.sql("SELECT * FROM late_rows")


@pytest.mark.usefixtures("either_decoder")
def test_late_records_are_dead_letters_byte_for_byte_and_replayed_where_to_says(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, dlq, aside, source = (
        cluster.make_topic(2),
        cluster.make_topic(1),
        cluster.make_topic(1),
        name("src"),
    )
    with connect(tmp_path / "home") as db:
        made = create_source(cluster, source, topic, auto_offset_reset="earliest")
        db.execute(
            f"{made} ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{dlq}', max_errors_per_second = 1)"
        )
        db.execute(
            f"CREATE MATERIALIZED VIEW v AS {WINDOWS.format(source)} "
            "EMIT CHANGES ALLOW LATENESS INTERVAL '5' SECOND LATE DATA TO DEAD LETTERS"
        )
        db.execute(f"CREATE MATERIALIZED VIEW all_rows AS SELECT id FROM {source}")
        cluster.produce(topic, [event(0), event(80)], partition=0)
        cluster.produce(topic, [event(81)], partition=1)
        caught_up(db)
        tardy = [event(number) for number in (1, 2, 3)]
        cluster.produce(
            topic, [event(82), *tardy, event(83)], partition=1, key=b"key", headers=[("h", b"\xff")]
        )
        caught_up(db)
        assert counts(db, "v") == [(0, 1), (1, 4)]
        assert len(rows(db, "SELECT id FROM all_rows")) == 8, "other views have them"
        assert {(query.view, query.late, query.rejected) for query in db.queries()} == {
            ("v", 3, 0),
            ("all_rows", 0, 0),
        }
        found = [entry.letter for entry in db.dead_letters(source)]
        assert [letter.value for letter in found] == [value.encode() for value in tardy]
        assert {(letter.kind, letter.key, letter.headers, letter.partition) for letter in found} == {
            ("LateRecord", b"key", (("h", b"\xff"),), 1)
        }
        assert "2026-01-15T10:00:01.000Z is late for view 'v'" in found[0].message
        assert "5000 ms of lateness" in found[0].message

        report = db.dead_letters(source).replay()
        assert (report.sent, report.problem_count) == (0, 3)
        assert "the others have it" in report.problems[0][1]
        report = db.dead_letters(source).replay(to=aside)
        assert report.sent == 3
        assert cluster.values(aside) == [value.encode() for value in tardy]
        with pytest.raises(ForebayError, match="LATE DATA TO DEAD LETTERS"):
            db.execute(f"ALTER SOURCE {source} ON ERROR = 'skip'")


def test_windows_of_spark_stay_open_for_the_allowed_lateness(db: Session, feed: tuple[str, Send]) -> None:
    source, send = feed
    view = name("view")
    db.execute(
        f"CREATE MATERIALIZED VIEW {view} AS {WINDOWS.format(source)} EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL '1' MINUTE"
    )
    send(*events([0, 70]))
    send(*events([1, 72]))
    assert counts(db, view) == [], "without lateness the first minute would be closed"
    send(*events([130]))
    eventually(lambda: counts(db, view) == [(0, 2)], "it is closed a minute later")


def test_what_cannot_be_had_of_late_rows_is_refused_and_not_ignored(
    db: Session, feed: tuple[str, Send]
) -> None:
    source, _ = feed
    windows = WINDOWS.format(source)
    for query, message in (
        (f"{windows.replace('TUMBLE', 'SESSION')} EMIT ON WINDOW CLOSE LATE DATA TO x", "is run by Spark"),
        (f"SELECT id FROM {source} LATE DATA TO x", "no window that closes by event time"),
        (f"SELECT k, count(*) AS n FROM {source} GROUP BY k ALLOW LATENESS INTERVAL '1' SECOND", "no window"),
        (f"SELECT DISTINCT k FROM {source} ALLOW LATENESS INTERVAL '1' SECOND", "no window"),
        (f"{windows} LATE DATA TO DEAD LETTERS", "which has no dead letters"),
    ):
        with pytest.raises(UnsupportedSqlError, match=message):
            db.execute(f"CREATE MATERIALIZED VIEW refused AS {query}")
        with pytest.raises(ForebayError, match="there is no view or source 'x'"):
            db.sql("SELECT * FROM x")
    with pytest.raises(ObjectExistsError, match="'refused' is a view"):
        db.execute(f"CREATE MATERIALIZED VIEW refused AS {windows} LATE DATA TO refused")
