"""The pool on a real broker: every record, in the order that was asked for, and what becomes of failures."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from typing import Any

import pytest
from pools import committed, ends, pool_on, run_until
from support import Cluster, unique
from waiting import eventually, until

from forebay.errors import (
    OptionConflictError,
    OptionValueError,
    PoolHaltedError,
    PoolStateError,
    UnknownOptionError,
    UnknownTopicError,
)
from forebay.pool import Pool, Record


@pytest.fixture(scope="module")
def keyed(cluster: Cluster) -> str:
    """3 partitions, 60 keys of 10 records each."""
    topic = cluster.make_topic(3)
    for key in range(60):
        cluster.produce(topic, [b"%d" % n for n in range(10)], key=b"k%d" % key)
    return topic


class Seen:
    """What a handler was given, and how much of it at a time."""

    def __init__(self, lane: Any = None) -> None:
        self.records: list[tuple[str, int, int]] = []
        self.lanes: dict[Any, list[int]] = defaultdict(list)
        self.at_work: Counter[Any] = Counter()
        self.most: Counter[Any] = Counter()
        self.together = 0
        self._lane = lane or (lambda record: record.key)
        self._lock = threading.Lock()

    def begin(self, record: Record) -> None:
        with self._lock:
            lane = self._lane(record)
            self.at_work[lane] += 1
            self.most[lane] = max(self.most[lane], self.at_work[lane])
            self.together = max(self.together, self.at_work.total())

    def end(self, record: Record) -> None:
        with self._lock:
            lane = self._lane(record)
            self.at_work[lane] -= 1
            self.lanes[lane].append(record.offset)
            self.records.append((record.topic, record.partition, record.offset))


@pytest.mark.parametrize("order", ["unordered", "key", "partition"])
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_every_record_is_handled_once_in_its_order_and_all_is_committed(
    cluster: Cluster, keyed: str, order: str, kind: str
) -> None:
    seen = Seen((lambda r: r.partition) if order == "partition" else None)

    async def handle(record: Record) -> None:
        seen.begin(record)
        await asyncio.sleep(0.005)
        seen.end(record)

    def handle_plainly(record: Record) -> None:
        seen.begin(record)
        time.sleep(0.005)
        seen.end(record)

    pool = pool_on(cluster, keyed, order=order, workers=20)
    handler = handle if kind == "async" else handle_plainly
    asyncio.run(run_until(pool, handler, lambda: len(seen.records) >= 600))
    assert len(seen.records) == len(set(seen.records)) == 600
    assert committed(cluster, pool, keyed) == ends(cluster, keyed)
    assert seen.together == {"unordered": 20, "key": 20, "partition": 3}[order]
    if order != "unordered":
        assert set(seen.most.values()) == {1}
        assert all(offsets == sorted(offsets) for offsets in seen.lanes.values())


def test_a_batch_handler_is_given_lists_in_the_order_of_their_keys(cluster: Cluster, keyed: str) -> None:
    values: dict[Any, list[bytes]] = defaultdict(list)
    sizes = []

    async def handle(records: list[Record]) -> None:
        sizes.append(len(records))
        await asyncio.sleep(0.002)
        for record in records:
            values[record.key].append(record.value)

    pool = pool_on(cluster, keyed, order="key", batch_size=50, workers=4)
    asyncio.run(run_until(pool, handle, lambda: pool.stats().completed >= 600))
    assert max(sizes) > 10
    assert max(sizes) <= 50
    assert all(found == [b"%d" % n for n in range(10)] for found in values.values())
    assert committed(cluster, pool, keyed) == ends(cluster, keyed)


def test_one_bad_record_of_a_batch_costs_itself_only(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"%d" % n for n in range(100)])
    good: Counter[bytes] = Counter()

    async def handle(records: list[Record]) -> None:
        for record in records:
            if record.value == b"42":
                raise ValueError("bad")
        good.update(record.value for record in records)

    pool = pool_on(cluster, topic, batch_size=20, workers=2, on_error="skip", max_attempts=2)
    asyncio.run(run_until(pool, handle, lambda: pool.stats().completed >= 100))
    assert len(good) == 99
    assert pool.skipped == 1


def test_several_topics_do_not_collide(cluster: Cluster) -> None:
    topics = [cluster.make_topic(2) for _ in range(2)]
    for topic in topics:
        cluster.produce(topic, [b"x"] * 20)
    seen = set()

    async def handle(record: Record) -> None:
        seen.add((record.topic, record.partition, record.offset))

    pool = pool_on(cluster, *topics)
    asyncio.run(run_until(pool, handle, lambda: len(seen) >= 40))
    for topic in topics:
        assert committed(cluster, pool, topic) == {0: 10, 1: 10}


def test_a_pattern_stands_for_all_topics_whose_whole_name_it_matches(cluster: Cluster) -> None:
    prefix = unique("matched")
    for name, value in ((f"{prefix}-a", b"a"), (f"{prefix}-b", b"b"), (f"{prefix}-a-not", b"no")):
        cluster.produce(cluster.make_topic(1, name=name), [value])
    seen = []

    async def handle(record: Record) -> None:
        seen.append(record.value)

    pool = pool_on(cluster, topics=None, topic_pattern=f"{prefix}-[ab]")
    asyncio.run(run_until(pool, handle, lambda: len(seen) == 2 and len(pool.stats().partitions) == 2))
    assert sorted(seen) == [b"a", b"b"]


def test_a_record_has_what_was_produced(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(
        topic, [b"v", None], key=b"k", headers=[("a", b"1"), ("a", None)], timestamp=1_700_000_000_000
    )
    seen: list[Record] = []

    async def handle(record: Record) -> None:
        seen.append(record)

    asyncio.run(run_until(pool_on(cluster, topic), handle, lambda: len(seen) == 2))
    first, second = sorted(seen, key=lambda record: record.offset)
    assert (first.topic, first.partition, first.offset, first.key, first.value) == (topic, 0, 0, b"k", b"v")
    assert first.headers == [("a", b"1"), ("a", None)]
    assert first.timestamp == 1_700_000_000_000
    assert first.attempt == 1
    assert second.value is None


# -- failures ----------------------------------------------------------------------------------------


def test_a_failing_record_is_tried_again_without_holding_up_its_neighbours(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    for key in range(20):
        cluster.produce(topic, [b"%d" % n for n in range(5)], key=b"k%d" % key)
    order: dict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
    finished = []

    async def handle(record: Record) -> None:
        order[record.key].append((record.value, record.attempt))
        if record.key == b"k3" and record.value == b"1" and record.attempt < 3:
            raise ConnectionError("not now")
        finished.append(record.key)

    pool = pool_on(cluster, topic, order="key", retry_backoff_ms=300, workers=2)
    asyncio.run(run_until(pool, handle, lambda: len(finished) == 100))
    assert order[b"k3"] == [(b"0", 1), (b"1", 1), (b"1", 2), (b"1", 3), (b"2", 1), (b"3", 1), (b"4", 1)]
    assert finished[-4:] == [b"k3"] * 4  # all others were done while it waited
    assert pool.retries == 2
    assert committed(cluster, pool, topic) == {0: 100}


def test_a_record_that_failed_for_good_is_never_committed_over_and_comes_again(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"%d" % n for n in range(100)])
    group = unique("group")
    seen: Counter[bytes] = Counter()

    async def handle(record: Record) -> None:
        seen[record.value] += 1
        if record.value == b"40":
            raise ValueError("bad")

    pool = pool_on(cluster, topic, group_id=group, max_attempts=2)
    asyncio.run(run_until(pool, handle, lambda: pool.stats().completed == 99 and pool.halted == 1))
    assert committed(cluster, pool, topic) == {0: 40}

    async def mended(record: Record) -> None:
        seen[record.value] += 1

    again = pool_on(cluster, topic, group_id=group)
    asyncio.run(run_until(again, mended, lambda: again.stats().completed == 1))
    assert committed(cluster, again, topic) == {0: 100}
    assert seen.pop(b"40") == 3
    assert set(seen.values()) == {1}  # what was done beyond the failed record is not repeated


def test_more_failed_records_than_max_errors_halt_the_pool_and_nothing_of_them_is_committed(
    cluster: Cluster,
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"%d" % n for n in range(20)])

    async def handle(record: Record) -> None:
        if int(record.value) >= 10:
            raise ValueError(f"no {record.value}")

    pool = pool_on(cluster, topic, max_attempts=1, max_errors=3)
    with pytest.raises(
        PoolHaltedError, match=r"4 records have failed, more than 'max.errors' = 3.*offset 13"
    ):
        asyncio.run(pool.run(handle))
    assert committed(cluster, pool, topic) == {0: 10}


def test_errors_say_what_is_done_at_which_exception(cluster: Cluster) -> None:
    topic, letters = cluster.make_topic(1), unique("letters")
    cluster.produce(topic, [b"key", b"value", b"os", b"good"])
    tries: Counter[bytes] = Counter()

    async def handle(record: Record) -> None:
        tries[record.value] += 1
        if record.value != b"good":
            raise {b"key": KeyError, b"value": ValueError, b"os": TimeoutError}[record.value]("so")

    pool = pool_on(
        cluster,
        topic,
        dead_letter_topic=letters,
        errors={LookupError: "skip", ValueError: "dead_letter", OSError: "retry"},
        max_attempts=4,
    )
    asyncio.run(run_until(pool, handle, lambda: pool.stats().completed == 4))
    assert tries == {b"key": 1, b"value": 1, b"os": 4, b"good": 1}
    assert (pool.skipped, pool.stats().dead_letters) == (1, 2)


def test_a_handler_that_takes_too_long_has_failed(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"slow", b"quick"])
    ended = []

    async def handle(record: Record) -> None:
        if record.value == b"slow" and record.attempt == 1:
            await asyncio.sleep(60)
        ended.append((record.value, record.attempt))

    pool = pool_on(cluster, topic, handler_timeout_ms=200)
    asyncio.run(run_until(pool, handle, lambda: len(ended) == 2))
    assert ended == [(b"quick", 1), (b"slow", 2)]


# -- its life ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["unordered", "key"])
def test_a_stopped_pool_finishes_what_it_has_begun_and_begins_nothing_more(
    cluster: Cluster, order: str
) -> None:
    topic = cluster.make_topic(1)
    for round in range(10):
        for key in range(10):
            cluster.produce(topic, [b"%d" % round], key=b"k%d" % key)
    begun, ended = [], []

    async def handle(record: Record) -> None:
        begun.append(record.offset)
        await until(lambda: pool.state == "stopping", "the pool is being stopped")
        ended.append(record.offset)

    pool = pool_on(cluster, topic, workers=10, order=order)
    asyncio.run(run_until(pool, handle, lambda: len(begun) == 10))
    assert sorted(begun) == sorted(ended) == list(range(10))
    assert committed(cluster, pool, topic) == {0: 10}
    assert pool.state == "stopped"


def test_a_handler_that_never_ends_does_not_keep_the_pool_from_stopping(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"x"] * 3)
    begun = []

    async def handle(record: Record) -> None:
        begun.append(record.offset)
        if record.offset == 1:
            await asyncio.sleep(3600)

    pool = pool_on(cluster, topic, shutdown_timeout_ms=300)
    began = time.monotonic()
    asyncio.run(run_until(pool, handle, lambda: len(begun) == 3))
    assert time.monotonic() - began < 15
    assert committed(cluster, pool, topic) == {0: 1}


def test_the_decorator_and_async_with_do_the_same_as_run(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"x"] * 10)
    pool = pool_on(cluster, topic)
    seen = []

    @pool.handler
    async def handle(record: Record) -> None:
        seen.append(record.offset)

    async def main() -> None:
        async with pool:
            await until(lambda: len(seen) == 10, "all are seen")

    asyncio.run(main())
    assert committed(cluster, pool, topic) == {0: 10}
    with pytest.raises(PoolStateError, match="the pool is stopped"):
        asyncio.run(pool.run(handle))


def test_a_topic_that_is_not_there_is_named_with_those_that_are_near(cluster: Cluster) -> None:
    topic = cluster.make_topic(1, name=unique("invoices"))

    async def handle(record: Record) -> None: ...

    with pytest.raises(UnknownTopicError, match="no topic") as error:
        asyncio.run(pool_on(cluster, topic[:-1] + "x").run(handle))
    assert topic in error.value.remedy


def test_settings_come_from_keywords_before_the_environment_before_a_file(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(
        '[pool]\ntopics = ["a", "b"]\ngroup_id = "g"\nworkers = 7\n"max.errors" = 1\n'
        'order = "key"\n[pool.kafka]\n"client.id" = "me"\n'
    )
    monkeypatch.setenv("FOREBAY_POOL_WORKERS", "8")
    monkeypatch.setenv("FOREBAY_POOL_MAX_ERRORS", "2")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    options = Pool(config=file, max_errors=3).options
    assert options["topics"] == ("a", "b")
    assert (options["workers"], options["max.errors"], options["order"]) == (8, 3, "key")
    assert options["commit.interval.ms"] == 5000
    assert options.passed_through() == {"client.id": "me"}


def test_settings_that_make_no_sense_are_refused_with_a_remedy() -> None:
    base: dict[str, Any] = {"bootstrap_servers": "localhost:9092", "topic": "t", "group_id": "g"}
    with pytest.raises(UnknownOptionError, match="worker"):
        Pool(**base, worker=3)
    with pytest.raises(OptionConflictError, match=r"dead\.letter\.topic"):
        Pool(**base, on_error="dead_letter")
    with pytest.raises(OptionValueError, match="errors"):
        Pool(**base, errors={ValueError: "ignore"})
    with pytest.raises(OptionValueError, match=r"max\.uncommitted"):
        Pool(**base, queue_size=100, max_uncommitted=150)


def test_stats_tell_how_far_each_partition_is(cluster: Cluster, keyed: str) -> None:
    pool = pool_on(cluster, keyed)

    async def handle(record: Record) -> None: ...

    async def main() -> None:
        await pool.start(handle)
        await until(lambda: pool.stats().completed == 600, "all are done")
        await until(
            lambda: sum(p.committed or 0 for p in pool.stats().partitions) == 600, "all are committed"
        )
        stats = pool.stats()
        assert [p.partition for p in stats.partitions] == [0, 1, 2]
        assert all(p.frontier == p.position == p.committed for p in stats.partitions)
        assert stats.state == "running"
        await pool.stop()

    asyncio.run(main())
    eventually(
        lambda: not [t for t in threading.enumerate() if t.name == "forebay-pool"], "its thread has ended"
    )
