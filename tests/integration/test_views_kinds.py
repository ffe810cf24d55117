"""Every kind of view over real streams: what is in the table once the topic has been read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sessions import (
    BASE_MS,
    EVENTS,
    Send,
    caught_up,
    create_source,
    create_view,
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


def minute(number: float) -> datetime:
    return START + timedelta(minutes=number)


def test_a_view_without_aggregates_adds_rows_as_they_come(db: Session, feed: tuple[str, Send]) -> None:
    source, send = feed
    view = create_view(db, f"SELECT id, upper(k) AS k, v * 2 AS double FROM {source} WHERE id % 3 = 0")
    send(*events(range(6)))
    send(*events(range(6, 12)))
    assert rows(db, f"SELECT * FROM {view} ORDER BY id") == [
        (0, "A", 0), (3, "B", 6), (6, "A", 12), (9, "B", 18),
    ]  # fmt: skip


def test_emit_changes_replaces_rows_and_null_is_one_group(db: Session, feed: tuple[str, Send]) -> None:
    source, send = feed
    view = create_view(
        db,
        f"SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS w, k, count(*) AS n, sum(v) AS total FROM {source} "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), k EMIT CHANGES",
    )
    send(event(0), event(1, k=None), event(2))
    send(event(3, k=None), event(4), event(61, k=None))
    assert utc(rows(db, f"SELECT * FROM {view} ORDER BY w, k")) == [
        (minute(0), None, 2, 4),
        (minute(0), "a", 3, 6),
        (minute(1), None, 1, 61),
    ]


def test_emit_on_window_close_gives_each_window_once_and_when_it_is_complete(
    db: Session, feed: tuple[str, Send]
) -> None:
    source, send = feed
    view = create_view(
        db,
        f"SELECT window_start, window_end, k, count(*) AS n FROM {source} "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), k EMIT ON WINDOW CLOSE",
    )
    send(*events(range(0, 60, 10)))
    send(event(58))
    assert rows(db, f"SELECT * FROM {view}") == []  # the watermark has not passed the minute
    send(event(59), event(66))  # 66 s less the 5 s that a record may be late: the first minute is over
    first = [(minute(0), minute(1), "a", 7), (minute(0), minute(1), "b", 1)]
    eventually(lambda: utc(rows(db, f"SELECT * FROM {view} ORDER BY k")) == first, "the first window closes")
    send(event(5), event(130))  # the first is too late, and told as such
    everything = [*first, (minute(1), minute(2), "a", 1)]
    eventually(
        lambda: utc(rows(db, f"SELECT * FROM {view} ORDER BY window_start, k")) == everything,
        "the second window closes, and the first stays as it was",
    )


def test_hop_counts_a_record_in_every_window_it_falls_into(db: Session, feed: tuple[str, Send]) -> None:
    source, send = feed
    view = create_view(
        db,
        f"SELECT window_start AS w, count(*) AS n FROM {source} "
        "GROUP BY HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE) EMIT CHANGES",
    )
    send(event(0), event(40), event(70))
    assert utc(rows(db, f"SELECT * FROM {view} ORDER BY w")) == [
        (minute(-0.5), 1), (minute(0), 2), (minute(0.5), 2), (minute(1), 1),
    ]  # fmt: skip


def test_session_windows_close_after_a_gap(db: Session, feed: tuple[str, Send]) -> None:
    source, send = feed
    view = create_view(
        db,
        f"SELECT SESSION_START(ts, INTERVAL '10' SECOND) AS s, SESSION_END(ts, INTERVAL '10' SECOND) AS e, k, "
        f"count(*) AS n FROM {source} GROUP BY SESSION(ts, INTERVAL '10' SECOND), k EMIT ON WINDOW CLOSE",
    )
    send(*events([0, 8, 16, 60]), event(120))
    found = [
        (START, START + timedelta(seconds=26), "a", 3),
        (minute(1), START + timedelta(seconds=70), "a", 1),
    ]
    eventually(lambda: utc(rows(db, f"SELECT * FROM {view} ORDER BY s")) == found, "both sessions close")


def test_a_global_aggregate_is_one_row_and_distinct_keeps_one_of_each(
    db: Session, feed: tuple[str, Send]
) -> None:
    source, send = feed
    total = create_view(db, f"SELECT count(*) AS n, sum(v) AS total, max(k) AS k FROM {source} EMIT CHANGES")
    unique = create_view(db, f"SELECT DISTINCT k, v % 2 AS odd FROM {source}")
    send(*events(range(10)))
    send(event(10), event(11, k=None), event(12, k=None, v=11))
    assert rows(db, f"SELECT * FROM {total}") == [(13, sum(range(12)) + 11, "b")]
    assert rows(db, f"SELECT * FROM {unique} ORDER BY k") == [(None, 1), ("a", 0), ("b", 1)]


def test_two_sources_join_and_a_union_of_them_adds_up(
    db: Session, cluster: Cluster, feed: tuple[str, Send]
) -> None:
    source, send = feed
    other_topic, other = cluster.make_topic(2), name("other")
    db.execute(create_source(cluster, other, other_topic, EVENTS.replace(" v ", " price ")))
    joined = create_view(
        db,
        f"SELECT l.id, l.v, r.price FROM {source} l JOIN {other} r ON l.id = r.id "
        "AND r.ts BETWEEN l.ts - INTERVAL '1' HOUR AND l.ts + INTERVAL '1' HOUR",
    )
    both = create_view(db, f"SELECT id, v FROM {source} UNION ALL SELECT id, price AS v FROM {other}")
    cluster.produce(other_topic, [event(n, price=n * 10).replace('"v"', '"_v"') for n in (1, 2, 5)])
    send(*events(range(4)))
    cluster.produce(other_topic, [event(3, price=30)])
    caught_up(db)
    assert rows(db, f"SELECT * FROM {joined} ORDER BY id") == [(1, 1, 10), (2, 2, 20), (3, 3, 30)]
    assert rows(db, f"SELECT count(*), sum(v) FROM {both}") == [(8, 6 + 110)]
    for topic, group in ((other_topic, other),):
        ends = {number: high for number, (_, high) in cluster.watermarks(topic).items()}
        assert cluster.committed(group, topic) == ends
    db.execute(f"DROP MATERIALIZED VIEW {joined}; DROP MATERIALIZED VIEW {both}; DROP SOURCE {other}")


def test_a_source_joined_with_itself_is_read_once_for_each_side(db: Session, feed: tuple[str, Send]) -> None:
    source, send = feed
    view = create_view(
        db,
        f"SELECT a.id, b.v FROM {source} a JOIN {source} b ON a.id = b.id + 1 "
        "AND a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' MINUTE",
    )
    send(*events(range(5)))
    send(*events(range(5, 7)))
    assert rows(db, f"SELECT id, v FROM {view} ORDER BY id") == [(n, n - 1) for n in range(1, 7)]


def test_nested_types_and_every_scalar_come_through_unchanged(db: Session, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(1), name("src")
    columns = (
        "flag BOOLEAN, tiny TINYINT, small SMALLINT, i INT, big BIGINT, f FLOAT, d DOUBLE, money DECIMAL(12, 2), "
        "word STRING, day DATE, at TIMESTAMP, list ARRAY<INT>, tags MAP<STRING, BIGINT>, "
        "deep STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING>>>"
    )
    cluster.produce(
        topic,
        [
            '{"flag": true, "tiny": -128, "small": 32767, "i": -1, "big": 9007199254740993, "f": 0.5, "d": 1e-3, '
            '"money": 1234567890.12, "word": "größe", "day": "2026-01-15", "at": "2026-01-15T11:00:00+01:00", '
            '"list": [1, null, 3], "tags": {"x": 1}, "deep": {"a": 7, "b": [{"c": "end"}]}}'
        ],
    )
    db.execute(create_source(cluster, source, topic, columns))
    view = create_view(db, f"SELECT * FROM {source}")
    caught_up(db)
    [row] = db.sql(f"SELECT * FROM {view}").rows()
    assert (row["flag"], row["tiny"], row["small"], row["i"]) == (True, -128, 32767, -1)
    assert (row["big"], row["f"], row["d"], str(row["money"])) == (
        9007199254740993,
        0.5,
        0.001,
        "1234567890.12",
    )
    assert (row["word"], row["day"].isoformat()) == ("größe", "2026-01-15")
    assert utc([(row["at"],)]) == [(START,)]
    assert (row["list"], row["tags"], row["deep"]) == (
        [1, None, 3],
        [("x", 1)],
        {"a": 7, "b": [{"c": "end"}]},
    )
    assert dict(rows(db, f"DESCRIBE VIEW {view}"))["money"] == "DECIMAL(12,2)"
    db.execute(f"DROP SOURCE {source} CASCADE")
