"""SQL as Flink, RisingWave, Materialize and ksqlDB have it, on real streams: the same answer as ours, or a way to ours."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sessions import (
    BASE_MS,
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

from forebay.errors import StatementError
from forebay.runtime.session import Session

START = datetime.fromtimestamp(BASE_MS / 1000, UTC)


def test_a_name_in_double_quotes_is_a_column_in_views_and_selects(db: Session, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(1), name("Src")
    users = ["ann", "bob", "ann", "cem", "ann"]
    records = [{"userId": user, "order": number} for number, user in enumerate(users)]
    cluster.produce(topic, [json.dumps(record) for record in records])
    db.execute(
        create_source(cluster, f'"{source}"', topic, '"userId" STRING, "order" BIGINT', group_id=source)
    )
    grouped = create_view(
        db, f'SELECT "userId", count(*) AS "N" FROM "{source}" GROUP BY "userId" EMIT CHANGES'
    )
    plain = create_view(
        db, f'SELECT s."userId" AS "User", \'"text"\' AS t FROM "{source}" AS s WHERE "order" < 2'
    )
    caught_up(db)
    assert sorted(rows(db, f'SELECT "userId", "N" FROM "{grouped}"')) == [("ann", 3), ("bob", 1), ("cem", 1)]
    assert sorted(rows(db, f"SELECT * FROM {plain}")) == [("ann", '"text"'), ("bob", '"text"')]
    [(kept,)] = rows(db, f"SHOW CREATE VIEW {grouped}")
    assert "SELECT `userId`, count(*) AS `N`" in kept
    # What was made is made again by the same words, and by what is shown.
    assert "already" in str(db.execute(kept)[0])
    for query in (f'SELECT "userId" FROM "{source}" WHERE "userId" = "ann"', f'SELECT "ann" FROM {grouped}'):
        with pytest.raises(StatementError) as caught:
            db.sql(query)
        assert "text stands in single quotes: 'ann'" in caught.value.remedy
    db.execute(f'DROP SOURCE "{source}" CASCADE')


TUMBLE = "TUMBLE(ts, INTERVAL '1' MINUTE)"
HOP = "HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE)"
SESSION = "SESSION(ts, INTERVAL '10' SECOND)"


@pytest.mark.parametrize(
    ("own", "emit", "tables"),
    [
        (TUMBLE, "CHANGES", ["TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE)", "TUMBLE({}, ts, INTERVAL '1 MINUTE')"]),
        (TUMBLE, "ON WINDOW CLOSE", ["TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTES))"]),
        (HOP, "CHANGES", ["HOP({}, ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE)"]),
        (HOP, "ON WINDOW CLOSE", ["HOP(TABLE {}, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE)"]),
        (
            SESSION,
            "ON WINDOW CLOSE",
            [
                "SESSION(TABLE {} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
                "SESSION({} PARTITION BY k, ts, INTERVAL '10 SECONDS')",
            ],
        ),
    ],
)  # fmt: skip
def test_a_table_of_windows_gives_the_same_answer_as_a_window_in_group_by(
    db: Session, feed: tuple[str, Send], own: str, emit: str, tables: list[str]
) -> None:
    source, send = feed
    select = "SELECT window_start, window_end, k, count(*) AS n, sum(v) AS total FROM"
    ours = create_view(db, f"{select} {source} GROUP BY {own}, k EMIT {emit}")
    keys = "w.window_start, window_end, k"
    theirs = [
        create_view(db, f"{select} {table.format(source)} AS w GROUP BY {keys} EMIT {emit}")
        for table in tables
    ]
    send(*events([0, 5, 12, 40, 61, 62, 75]))
    send(*events([76, 130, 131]), event(300))
    send(event(301), event(400))

    def answer(view: str) -> list[tuple[Any, ...]]:
        """Of the first three minutes, which are over whatever the window."""
        end = START + timedelta(minutes=3)
        found = utc(rows(db, f"SELECT * FROM {view} ORDER BY window_start, window_end, k"))
        return [row for row in found if row[1] <= end]

    eventually(lambda: sum(row[3] for row in answer(ours)) >= 10, "all windows are there")
    for view in theirs:
        eventually(lambda: answer(view) == answer(ours), f"{view} is as {ours}")  # noqa: B023


def test_rows_of_a_table_of_windows_carry_their_windows(db: Session, feed: tuple[str, Send]) -> None:
    source, send = feed
    tumbling = create_view(db, f"SELECT * FROM TUMBLE(TABLE {source}, DESCRIPTOR(ts), INTERVAL '1' MINUTE)")
    hopping = create_view(
        db,
        f"SELECT id, window_start AS s FROM HOP({source}, ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE) h",
    )
    send(event(0), event(70))
    minute = timedelta(minutes=1)
    assert utc(rows(db, f"SELECT id, window_start, window_end, window_time FROM {tumbling} ORDER BY id")) == [
        (0, START, START + minute, START + minute - timedelta(milliseconds=1)),
        (70, START + minute, START + 2 * minute, START + 2 * minute - timedelta(milliseconds=1)),
    ]
    assert utc(rows(db, f"SELECT * FROM {hopping} ORDER BY id, s")) == [
        (0, START - minute / 2),
        (0, START),
        (70, START + minute / 2),
        (70, START + minute),
    ]
    # The same in a query that runs once.
    query = f"SELECT window_start, count(*) FROM TUMBLE({source}, ts, INTERVAL '1 MINUTE') GROUP BY window_start ORDER BY 1"
    assert utc(rows(db, query)) == [(START, 1), (START + minute, 1)]


def test_times_without_a_zone_and_with_a_precision_are_read(db: Session, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(1), name("src")
    cluster.produce(topic, ['{"a": "2026-01-15T10:00:00.123456", "b": "2026-01-15T10:00:00.123456Z"}'])
    columns = "a TIMESTAMP(3) WITHOUT TIME ZONE, b TIMESTAMP(6)"
    db.execute(create_source(cluster, source, topic, columns))
    view = create_view(db, f"SELECT a, b, typeof(a) AS ta, typeof(b) AS tb FROM {source}")
    caught_up(db)
    [(a, b, *types)] = rows(db, f"SELECT * FROM {view}")
    assert (a.replace(tzinfo=None), b.replace(tzinfo=None)) == (datetime(2026, 1, 15, 10, 0, 0, 123456),) * 2
    assert types == ["timestamp_ntz", "timestamp"]
    db.execute(f"DROP SOURCE {source} CASCADE")


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("'properties.security.protocol' = 'SASL_SSL'", "write 'kafka.security.protocol'"),
        ("'key.fields' = 'id'", "write 'key.columns'"),
        ("'json.ignore-parse-errors' = 'true'", "write ON ERROR = 'skip'"),
        ("KAFKA_TOPIC = 'x'", "write 'topic'"),
    ],
)
def test_an_option_of_another_system_is_refused_where_it_stands(
    db: Session, option: str, remedy: str
) -> None:
    line = f"CREATE SOURCE t (a INT) WITH ('connector' = 'kafka', {option}, 'group.id' = 'g')"
    with pytest.raises(StatementError) as caught:
        db.execute(line)
    assert remedy in caught.value.remedy
    assert caught.value.position is not None
    assert caught.value.position.column == line.index(option) + 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT o.id FROM {0} o JOIN {0} r FOR SYSTEM_TIME AS OF o.ts ON o.k = r.k",
        "SELECT id FROM {0} WHERE mz_now() <= ts + INTERVAL '5' MINUTE",
    ],
)
def test_what_spark_could_only_fail_at_is_refused_at_create(
    db: Session, feed: tuple[str, Send], query: str
) -> None:
    source, _ = feed
    with pytest.raises(StatementError) as caught:
        create_view(db, query.format(source))
    assert "is not supported" in caught.value.message
    assert caught.value.remedy
    assert caught.value.position is not None
