"""Watermarks per partition on a real broker: slow, idle and empty partitions, those that come back, restarts, joins."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.registry import CollectorRegistry
from sessions import (
    BASE_MS,
    EVENTS,
    caught_up,
    connect,
    create_source,
    create_view,
    event,
    events,
    name,
    notes,
    partitions,
    rows,
    utc,
)
from support import Cluster
from waiting import eventually

from forebay.kafka.alignment import SMALL
from forebay.kafka.connector import KafkaSource
from forebay.runtime.session import Session
from forebay.runtime.source_flow import SourceFlow
from forebay.source.batch_size import Cause
from forebay.source.watermark_planning import WatermarkPlanner, WatermarkSettings
from forebay.source.watermarks import Decision, remember

START = datetime.fromtimestamp(BASE_MS / 1000, UTC)
MINUTES = "SELECT window_start AS w, count(*) AS n FROM {} WHERE v >= 0 GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) EMIT {}"


class Topic:
    """A source over a topic of its own, whose partitions are written to by number."""

    def __init__(self, db: Session, cluster: Cluster, partitions: int, idle_ms: int) -> None:
        self.db, self._cluster = db, cluster
        self.topic, self.source = cluster.make_topic(partitions), name("src")
        options = {"'watermark.idle.timeout.ms'": idle_ms}
        db.execute(create_source(cluster, self.source, self.topic, EVENTS, **options))

    def send(self, partition: int, *seconds: int) -> None:
        """Records with these event times, and wait until the views have them."""
        self._cluster.produce(self.topic, events(seconds), partition=partition)
        caught_up(self.db)

    def watermark(self) -> Decision:
        [found] = self.db._describer.watermarks(self.source).values()
        return found


@pytest.fixture
def made(db: Session, cluster: Cluster) -> Iterator[list[Topic]]:
    """Sources that are dropped with their views when the test ends."""
    found: list[Topic] = []
    yield found
    for topic in found:
        db.execute(f"DROP SOURCE {topic.source} CASCADE")


def counts(db: Session, view: str) -> list[tuple[float, int]]:
    """Rows by minute since the start."""
    found = utc(rows(db, f"SELECT * FROM {view} ORDER BY w"))
    return [((at - START) / timedelta(minutes=1), n) for at, n in found]


def late(db: Session, *views: str) -> list[int]:
    known = {query.view: query.late for query in db.queries()}
    return [known[view] for view in views]


def ms(seconds: int) -> int:
    return BASE_MS + seconds * 1000


def test_rows_of_a_slow_partition_are_not_late_and_an_empty_partition_holds_nobody_back(
    db: Session, cluster: Cluster, made: list[Topic]
) -> None:
    topic = Topic(db, cluster, partitions=3, idle_ms=60_000)
    made.append(topic)
    changes = create_view(db, MINUTES.format(topic.source, "CHANGES"))
    closed = create_view(db, MINUTES.format(topic.source, "ON WINDOW CLOSE"))
    topic.send(1, 10)
    topic.send(0, 0, 100, 400)  # the other is 390 s behind
    topic.send(0, 410)
    topic.send(1, 20, 70)
    assert counts(db, changes) == [(0, 3), (1, 2), (6, 2)]
    # The slow one is at 70 s, less 5: the first minute is over, and the view has it at once.
    assert counts(db, closed) == [(0, 3)]
    topic.send(1, 69, 190)
    assert counts(db, changes) == [(0, 3), (1, 3), (3, 1), (6, 2)]
    assert counts(db, closed) == [(0, 3), (1, 3)]
    assert late(db, changes, closed) == [0, 0]


def test_with_all_partitions_idle_windows_close_though_nothing_comes(
    db: Session, cluster: Cluster, made: list[Topic]
) -> None:
    topic = Topic(db, cluster, partitions=2, idle_ms=1_000)
    made.append(topic)
    closed = create_view(db, MINUTES.format(topic.source, "ON WINDOW CLOSE"))
    topic.send(0, 10, 62)
    topic.send(1, 3)
    assert counts(db, closed) == []
    # 62 s less 5, and then the clock goes on: the first minute is over four seconds after both are idle.
    eventually(lambda: counts(db, closed) == [(0, 2)], "the first minute closes")
    topic.send(1, 59 + 5)  # has kept pace with the clock
    assert late(db, closed) == [0]


def test_a_partition_that_was_idle_comes_back_without_late_rows(
    db: Session, cluster: Cluster, made: list[Topic]
) -> None:
    topic = Topic(db, cluster, partitions=2, idle_ms=1_000)
    made.append(topic)
    changes = create_view(db, MINUTES.format(topic.source, "CHANGES"))
    topic.send(1, 0, 30)
    topic.send(0, 0, 300)
    eventually(lambda: all(each.idle for each in topic.watermark().partitions), "both are idle")
    topic.send(0, 310)  # the other is left out: its windows are closed
    marks = topic.watermark().watermark_ms
    assert marks is not None
    assert marks >= ms(295)
    topic.send(1, 25, 40, 70)  # within the bound of its own partition
    assert counts(db, changes) == [(0, 5), (1, 1), (5, 2)]
    assert late(db, changes) == [0]
    topic.send(1, 20)  # beyond it: 50 s behind its own partition
    assert counts(db, changes) == [(0, 5), (1, 1), (5, 2)]
    assert late(db, changes) == [1]


def test_a_row_at_or_after_the_watermark_is_never_late_also_of_a_partition_that_was_idle(
    db: Session, cluster: Cluster, made: list[Topic]
) -> None:
    topic, other = (Topic(db, cluster, number, idle_ms=1_000) for number in (2, 1))
    made += [topic, other]
    windows = (
        f"SELECT window_start AS w, count(*) AS n FROM {topic.source} "
        "GROUP BY TUMBLE(ts, INTERVAL '10' MINUTE) EMIT {}"
    )
    changes, closed = (create_view(db, windows.format(emit)) for emit in ("CHANGES", "ON WINDOW CLOSE"))
    join = create_view(
        db,
        f"SELECT l.id FROM {topic.source} l JOIN {other.source} r ON l.id = r.id "
        "AND r.ts BETWEEN l.ts - INTERVAL '10' SECOND AND l.ts + INTERVAL '10' SECOND",
    )
    topic.send(1, 0, 30)
    topic.send(0, 0, 700)
    other.send(0, 700)

    def marks() -> list[Decision]:
        found = [*db._describer.watermarks(topic.source).values()]
        return [*found, *db._describer.watermarks(other.source).values()]

    # All are idle, and event time goes on with the clock: the first ten minutes are given out, and the partition is behind.
    eventually(
        lambda: all((each.watermark_ms or 0) > ms(695) for each in marks()), "the watermark is past it"
    )
    eventually(lambda: [n for _, n in counts(db, closed)] == [3], "the window is given out")
    topic.send(1, 601)  # behind the watermark, in a window that is open
    assert late(db, changes, closed) == [0, 0]
    at = max(each.watermark_ms or 0 for each in marks()) // 1000 - ms(0) // 1000 + 60
    other.send(0, at)
    topic.send(1, at)
    eventually(lambda: rows(db, f"SELECT id FROM {join} ORDER BY id") == [(700,), (at,)], "it is joined")
    assert late(db, changes, closed) == [0, 0]
    assert sum(n for _, n in counts(db, changes)) == 6
    topic.send(1, 599)  # its window was given out, and its own partition is past it, too
    assert late(db, changes, closed) == [1, 1]


def test_a_pause_longer_than_the_idle_timeout_makes_no_partition_idle_and_no_row_late(
    db: Session, cluster: Cluster, made: list[Topic]
) -> None:
    idle_s = 6
    topic = Topic(db, cluster, partitions=2, idle_ms=idle_s * 1000)
    made.append(topic)
    changes = create_view(db, MINUTES.format(topic.source, "CHANGES"))
    topic.send(0, 100)
    topic.send(1, 10)
    db.execute(f"PAUSE SOURCE {topic.source}")
    cluster.produce(topic.topic, events([400]), partition=0)
    eventually(lambda: db.queries()[-1].state == "paused", "it is paused")
    time.sleep(idle_s)  # that time passes is what is tested
    db.execute(f"RESUME SOURCE {topic.source}")
    eventually(lambda: topic.watermark().partitions[0].mark_ms == ms(395), "what came meanwhile is read")
    found = topic.watermark()
    assert not found.partitions[1].idle
    assert found.watermark_ms == ms(5)
    topic.send(1, 20, 70)  # behind what the other has, and by more than the bound
    assert counts(db, changes) == [(0, 2), (1, 2), (6, 1)]
    assert late(db, changes) == [0]


def test_a_join_waits_for_the_slowest_partition_of_both_sources(
    db: Session, cluster: Cluster, made: list[Topic]
) -> None:
    one = Topic(db, cluster, partitions=1, idle_ms=60_000)
    other = Topic(db, cluster, partitions=2, idle_ms=60_000)
    made += [one, other]
    view = create_view(
        db,
        f"SELECT l.id, r.id AS other FROM {one.source} l LEFT JOIN {other.source} r ON l.id = r.id "
        "AND r.ts BETWEEN l.ts - INTERVAL '10' SECOND AND l.ts + INTERVAL '10' SECOND",
    )
    other.send(1, 0)
    one.send(0, 1, 2, 400)
    other.send(0, 500)
    other.send(1, 1)  # far behind the other partition and the other source, and not late
    other.send(1, 450)
    # The lower of the two watermarks, 395 s, is past what could still match the second row; the last one may find its match.
    found = [(1, 1), (2, None)]
    eventually(
        lambda: rows(db, f"SELECT * FROM {view} ORDER BY id") == found, "the row without a match is there"
    )
    assert late(db, view) == [0]


def test_the_watermark_and_who_holds_it_back_are_shown_and_measured(
    db: Session, cluster: Cluster, made: list[Topic]
) -> None:
    topic = Topic(db, cluster, partitions=3, idle_ms=60_000)
    made.append(topic)
    create_view(db, MINUTES.format(topic.source, "CHANGES"))
    topic.send(0, 100)
    topic.send(1, 10)
    eventually(lambda: topic.watermark().watermark_ms == ms(5), "it is written down")
    text = "\n".join(db.execute(f"DESCRIBE EXTENDED {topic.source}")[-1].notes)
    assert f"Watermark of one read: 2026-01-15 10:00:05.000 UTC, held back by {topic.topic}-1" in text
    assert f"watermark.{topic.topic}.0: 2026-01-15 10:01:35.000 UTC\n" in text
    assert f"watermark.{topic.topic}.2: none yet (read to the end, had no event time yet)" in text
    registry = CollectorRegistry()
    registry.register(db.collector())

    def measured(metric: str, partition: int | None = None) -> float | None:
        place = {} if partition is None else {"topic": topic.topic, "partition": str(partition)}
        return registry.get_sample_value(f"forebay_{metric}", {"source": topic.source, **place})

    assert measured("source_watermark_timestamp_seconds") == ms(5) / 1000
    assert [measured("partition_watermark_timestamp_seconds", number) for number in range(3)] == [
        ms(95) / 1000, ms(5) / 1000, None,
    ]  # fmt: skip
    assert [measured("partition_idle", number) for number in range(3)] == [0, 0, 1]
    assert [measured("partition_holds_watermark", number) for number in range(3)] == [0, 1, 0]


def test_a_partition_that_is_ahead_waits_for_the_slowest_one_until_that_is_idle(
    cluster: Cluster, kafka_source: Callable[[dict[str, str]], KafkaSource], tmp_path: Path
) -> None:
    """Planned as for Spark, without it: a batch has at most 20 records, and event times are known after it."""
    topic = cluster.make_topic(2)
    cluster.produce(topic, ["{}"] * 100, partition=0)  # ten seconds each
    cluster.produce(topic, ["{}"] * 100, partition=1)  # one second each
    connector = kafka_source(cluster.kafka_options(topic))
    files = tmp_path / "event-times.json", tmp_path / "watermark.json"
    planner = WatermarkPlanner(WatermarkSettings(0, 1_500, 60_000, *map(str, files)))
    position = connector.initial_offsets()
    ahead, reads = [], 0

    def newest(offsets: dict[int, int]) -> list[int]:
        return [10 * offsets[0], offsets[1]]

    deadline = time.monotonic() + 30
    while partitions(position, topic) != {0: 100, 1: 100}:
        assert time.monotonic() < deadline
        planner.before_look(connector)
        found = connector.latest_offsets(position, 20)
        planner.look(connector, position)
        before, after = partitions(position, topic), partitions(found, topic)
        fast, slow = newest(before)
        if after[0] > before[0] and before[1] < 100:
            assert fast - slow <= 60
            ahead.append(newest(after)[0] - newest(after)[1])
        reads += after != before
        position = found
        remember(files[0], {(topic, n): at * 1_000_000 for n, at in enumerate(newest(after)) if at})
    assert max(ahead) <= 60 + 20 * 10  # one batch beyond the drift
    assert reads < 30  # never less than what a batch may have while there is something to read


def test_a_fast_partition_is_read_up_to_the_drift_and_who_is_held_back_is_shown_and_measured(
    db: Session, cluster: Cluster
) -> None:
    topic, source, count = cluster.make_topic(2), name("src"), 3000
    for partition, seconds in enumerate((20, 2000)):  # of event time; batches could have all of them
        spread = (event(n, ts=ms(0) + n * seconds * 1000 // count) for n in range(1, count + 1))
        cluster.produce(topic, spread, partition=partition)
    options = {
        "'watermark.alignment.max.drift.ms'": 30_000,
        "'watermark.idle.timeout.ms'": 600_000,
        "include_metadata": "true",
    }
    db.execute(create_source(cluster, source, topic, EVENTS, **options))
    view = create_view(db, f"SELECT id, _partition AS p FROM {source}")

    def read() -> list[int]:
        found = dict(rows(db, f"SELECT p, count(*) FROM {view} GROUP BY p"))
        return [found.get(0, 0), found.get(1, 0)]

    def held() -> bool:
        plans = SourceFlow.of(db.home, source).plans
        return read()[0] == count and [(plan.cause, plan.records) for plan in plans] == [(Cause.ALIGNED, 0)]

    eventually(held, "the slow one is read, and the fast one waits")
    step_s = 2000 / count
    assert 20 + 30 < read()[1] * step_s <= 20 + 30 + SMALL * step_s
    lines = notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
    words = f"aligned: less is read of {topic}-1, not to be too far ahead of {topic}-0"
    assert any(line.startswith("read for all views: ") and line.endswith(words) for line in lines), lines
    registry = CollectorRegistry()
    registry.register(db.collector())
    labels = {"source": source, "read": "all"}
    assert registry.get_sample_value("forebay_source_aligned_partitions", labels) == 1
    assert registry.get_sample_value("forebay_source_batch_decision", labels | {"cause": "aligned"}) == 1

    cluster.produce(topic, [event(count + 1, ts=ms(2000))], partition=0)
    caught_up(db)
    assert read() == [count + 1, count]
    assert rows(db, f"SELECT count(*) FROM (SELECT DISTINCT p, id FROM {view})") == [(2 * count + 1,)]
    eventually(
        lambda: registry.get_sample_value("forebay_source_aligned_partitions", labels) == 0, "nobody waits"
    )
    db.execute(f"DROP SOURCE {source} CASCADE")


def test_marks_survive_a_restart(tmp_path: Path, cluster: Cluster) -> None:
    home, topic, source = tmp_path / "home", cluster.make_topic(2), name("src")
    views = [
        f"CREATE MATERIALIZED VIEW {emit.split()[-1].lower()} AS {MINUTES.format(source, emit)}"
        for emit in ("CHANGES", "ON WINDOW CLOSE")
    ]
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic, EVENTS, **{"'watermark.idle.timeout.ms'": 60_000}))
        for view in views:
            db.execute(view)
        cluster.produce(topic, events([0, 400]), partition=0)
        cluster.produce(topic, events([10]), partition=1)
        caught_up(db)
    with connect(home) as db:
        for view in views:
            db.execute(view)
        # Nobody has read anything of the slow one since the restart, and it still holds the watermark back.
        cluster.produce(topic, events([500]), partition=0)
        caught_up(db)
        cluster.produce(topic, events([6, 70]), partition=1)
        caught_up(db)
        assert counts(db, "changes") == [(0, 3), (1, 1), (6, 1), (8, 1)]
        assert counts(db, "close") == [(0, 3)]
        assert late(db, "changes", "close") == [0, 0]
