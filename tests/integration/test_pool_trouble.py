"""The pool when members come and go, records are stuck, offsets have gaps: the faults that others have had.

Numbers in brackets are issues of the Parallel Consumer.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter

import pytest
from confluent_kafka import TopicPartition
from pools import committed, ends, pool_on, run_until
from support import Cluster, unique
from waiting import eventually, until

from forebay.devstack import DevStack
from forebay.pool import Pool, Record
from forebay.pool.completed import encode


def commit_with_metadata(cluster: Cluster, group: str, topic: str, offset: int, metadata: str) -> None:
    consumer = cluster.consumer(group)
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)
    finally:
        consumer.close()


class Handled:
    """Counts the offsets that it was given; the handler of most tests here."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self.offsets: Counter[tuple[int, int]] = Counter()
        self._wait_s = wait_s

    async def __call__(self, record: Record) -> None:
        if self._wait_s:
            await asyncio.sleep(self._wait_s)
        self.offsets[record.partition, record.offset] += 1


# -- restart -----------------------------------------------------------------------------------------


def test_a_restart_goes_on_at_exactly_the_committed_offset(cluster: Cluster) -> None:
    """(62) Neither the last record again nor the next one left out."""
    topic, group = cluster.make_topic(1), unique("group")
    for round in range(3):
        cluster.produce(topic, [b"x"] * 5)
        handled = Handled()
        pool = pool_on(cluster, topic, group_id=group)
        asyncio.run(run_until(pool, handled, lambda h=handled: len(h.offsets) == 5))
        assert sorted(handled.offsets) == [(0, 5 * round + n) for n in range(5)]
        assert set(handled.offsets.values()) == {1}


def test_metadata_that_is_damaged_or_of_somebody_else_is_not_used(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"x"] * 10)
    for metadata in ("something of another tool", encode(3, [4, 5])[0]):
        group = unique("group")
        commit_with_metadata(cluster, group, topic, 2, metadata)
        handled = Handled()
        asyncio.run(
            run_until(pool_on(cluster, topic, group_id=group), handled, lambda h=handled: len(h.offsets) == 8)
        )
        assert "is not used" in caplog.text
        caplog.clear()


def test_metadata_that_the_broker_finds_too_large_is_cut_and_the_offset_is_committed(
    cluster: Cluster,
) -> None:
    """(35) The broker takes 4096 bytes; this pool believes that it takes more."""
    topic = cluster.make_topic(1)
    count = 34_000
    cluster.produce(topic, (b"x" for _ in range(count)))
    release = asyncio.Event()
    noise = random.Random(7).getrandbits(count) & ~1  # does not compress

    async def handle(record: Record) -> None:
        if not noise >> record.offset & 1:
            await release.wait()

    pool = pool_on(
        cluster, topic, workers=count, queue_size=count, max_uncommitted=2 * count, metadata_max_bytes=100_000,
        shutdown_timeout_ms=0,
    )  # fmt: skip

    def is_committed() -> bool:
        written = len(cluster.committed_metadata(pool.options["group.id"], topic)[0])
        return pool.stats().commit_failures > 0 and 1000 < written <= 4096

    asyncio.run(run_until(pool, handle, lambda: asyncio.to_thread(is_committed)))
    assert committed(cluster, pool, topic) == {0: 0}


# -- offsets that the broker skips -------------------------------------------------------------------


def test_markers_of_transactions_and_aborted_records_are_no_gaps(cluster: Cluster) -> None:
    """(329) The committed offset goes past the last marker, so that lag becomes 0."""
    topic = cluster.make_topic(1)
    producer = cluster.transactional_producer()
    for end in ("commit", "abort", "commit", "abort"):
        producer.begin_transaction()
        for n in range(3):
            producer.produce(topic, b"%s %d" % (end.encode(), n), partition=0)
        producer.flush()
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)()
    seen = []

    async def handle(record: Record) -> None:
        seen.append(record.value)

    pool = pool_on(cluster, topic, order="partition")
    end = ends(cluster, topic)
    asyncio.run(
        run_until(pool, handle, lambda: len(seen) == 6 and pool.stats().partitions[0].committed == end[0])
    )
    assert seen == [b"commit 0", b"commit 1", b"commit 2"] * 2
    assert committed(cluster, pool, topic) == end == {0: 16}


def test_an_idle_pool_commits_nothing_and_does_not_move_the_group(cluster: Cluster) -> None:
    """(894)"""
    topic, group = cluster.make_topic(1), unique("group")
    cluster.produce(topic, [b"x"] * 10)
    cluster.commit(group, topic, {0: 10})
    pool = pool_on(cluster, topic, group_id=group)

    async def main() -> None:
        await pool.start(Handled())
        await until(lambda: pool.stats().partitions, "the partition is assigned")
        # Five commit intervals in which nothing must happen: there is no event to wait for.
        await asyncio.sleep(1)
        assert pool.stats().commits == 0
        await pool.stop()

    asyncio.run(main())
    assert committed(cluster, pool, topic) == {0: 10}


def test_an_offset_that_is_out_of_range_is_replaced_by_what_is_there(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """(409, 875, 909) The group's offset and what was done beyond it are of records that are no more."""
    topic, group = cluster.make_topic(1), unique("group")
    cluster.produce(topic, [b"x"] * 20)
    commit_with_metadata(cluster, group, topic, 1000, encode(1000, [1001, 1002])[0])
    handled = Handled()
    pool = pool_on(cluster, topic, group_id=group)
    asyncio.run(run_until(pool, handled, lambda: len(handled.offsets) == 20))
    assert set(handled.offsets.values()) == {1}
    assert committed(cluster, pool, topic) == {0: 20}
    assert "goes on at offset 0" in caplog.text


# -- slow and stuck handlers -------------------------------------------------------------------------


def test_one_stuck_record_holds_up_neither_its_partition_nor_the_others(cluster: Cluster) -> None:
    topic = cluster.make_topic(2)
    cluster.produce(topic, (b"x" for _ in range(4000)))
    release = asyncio.Event()
    done: Counter[int] = Counter()

    async def handle(record: Record) -> None:
        if (record.partition, record.offset) == (0, 5):
            await release.wait()
        done[record.partition] += 1

    pool = pool_on(cluster, topic, workers=4, queue_size=100, max_uncommitted=500)

    async def main() -> None:
        await pool.start(handle)
        await until(lambda: done[1] == 2000, "the other partition is done")
        await until(lambda: pool.stats().partitions[0].paused, "its own is paused when enough is beyond it")
        await until(lambda: done[0] >= 400, "what was read before that is done")
        before = done[0]
        stats = pool.stats().partitions[0]
        assert stats.frontier == 5
        release.set()
        await until(lambda: done[0] == 2000, "it goes on when the record is done")
        assert before < 2000
        await pool.stop()

    asyncio.run(main())
    assert committed(cluster, pool, topic) == {0: 2000, 1: 2000}


def test_a_handler_slower_than_max_poll_interval_does_not_lose_the_partition(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"x"] * 30)
    handled = Handled()

    async def handle(record: Record) -> None:
        if record.offset == 0:
            await asyncio.sleep(8)  # longer than `max.poll.interval.ms`, which brokers take from 6 s on
        await handled(record)

    pool = pool_on(
        cluster,
        topic,
        workers=1,
        queue_size=5,
        max_uncommitted=10,
        max_poll_interval_ms=6000,
        session_timeout_ms=6000,
    )
    asyncio.run(run_until(pool, handle, lambda: len(handled.offsets) == 30))
    assert set(handled.offsets.values()) == {1}
    assert pool.stats().rebalances == 1
    assert committed(cluster, pool, topic) == {0: 30}


# -- members come and go -----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_partitions_that_move_are_drained_and_committed_and_nothing_is_handled_twice(
    cluster: Cluster, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "forebay.pool")  # if it fails: who had which partitions, and when
    topic, group = cluster.make_topic(4), unique("group")
    cluster.produce(topic, (b"x" for _ in range(4000)))
    handled = Handled(0.02)
    settings = {"group_id": group, "partition_assignment_strategy": strategy, "workers": 10}

    async def main() -> None:
        first, second = (pool_on(cluster, topic, **settings) for _ in range(2))
        await first.start(handled)
        await until(lambda: len(handled.offsets) > 300, "the first is at work")
        await second.start(handled)
        await until(lambda: len(second.stats().partitions) == 2, "the second has its share")
        await until(lambda: second.stats().completed > 100, "and works on it")
        await first.stop()
        await until(lambda: len(second.stats().partitions) == 4, "the second has all")
        await until(lambda: len(handled.offsets) == 4000, "all is handled")
        await second.stop()

    asyncio.run(main())
    assert cluster.committed(group, topic) == ends(cluster, topic)
    assert {place: times for place, times in handled.offsets.items() if times > 1} == {}


def test_a_handler_that_outlives_its_partition_neither_blocks_the_group_nor_commits(cluster: Cluster) -> None:
    """(541, 857) The revocation waits for a bounded time; the late result is the old owner's own."""
    topic, group = cluster.make_topic(2), unique("group")
    cluster.produce(topic, [b"x"] * 20)
    release = asyncio.Event()
    begun: Counter[tuple[int, int]] = Counter()

    async def stuck(record: Record) -> None:
        begun[record.partition, record.offset] += 1
        if record.offset >= 5:
            await release.wait()

    async def main() -> None:
        settings = {"group_id": group, "drain_timeout_ms": 300, "shutdown_timeout_ms": 0}
        first, second = pool_on(cluster, topic, **settings), pool_on(cluster, topic, **settings)
        handled = Handled()
        await first.start(stuck)
        await until(lambda: len(begun) == 20, "all are begun")
        await second.start(handled)
        await until(lambda: len(handled.offsets) == 5, "the second handles what was not done", 20)
        moved = second.stats().partitions[0].partition
        assert sorted(handled.offsets) == [(moved, n) for n in range(5, 10)]
        await until(lambda: second.stats().partitions[0].committed == 10, "and commits it")
        release.set()
        await until(lambda: first.stats().completed == 20, "the late results come")
        await asyncio.gather(first.stop(), second.stop())
        assert cluster.committed(group, topic)[moved] == 10

    asyncio.run(main())


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
@pytest.mark.parametrize("goes", ["with", "without"])
def test_a_member_that_is_stopped_is_out_of_its_group_at_once_with_or_without_partitions(
    cluster: Cluster, strategy: str, goes: str
) -> None:
    """librdkafka closes a cooperative member without partitions silently: the next rebalance would wait for it until
    its session is over."""
    topic, group = cluster.make_topic(1), unique("group")

    def members() -> int:
        return len(cluster.admin.describe_consumer_groups([group])[group].result(10).members)

    async def main() -> None:
        settings = {
            "group_id": group, "partition_assignment_strategy": strategy, "session_timeout_ms": 45_000,
            "heartbeat_interval_ms": 200,
        }  # fmt: skip
        pools = [pool_on(cluster, topic, **settings) for _ in range(2)]
        handled = Handled()
        for pool in pools:
            await pool.start(handled)
        await until(lambda: all(pool.stats().rebalances for pool in pools) and members() == 2, "both are in")
        await until(lambda: sum(len(pool.stats().partitions) for pool in pools) == 1, "the group is at rest")
        pools.sort(key=lambda pool: len(pool.stats().partitions), reverse=goes == "with")
        await pools[0].stop()
        assert members() == 1
        cluster.produce(topic, [b"x"])
        await until(lambda: handled.offsets, "the other has the partition", 20)
        await pools[1].stop()
        assert members() == 0

    asyncio.run(main())


# -- the broker --------------------------------------------------------------------------------------


def at_rest(pool: Pool) -> bool:
    stats = pool.stats()
    return stats.queued == stats.workers == 0


def test_a_broker_that_is_killed_or_frozen_costs_no_record_and_no_restart(mortal_broker: DevStack) -> None:
    cluster = Cluster(mortal_broker)
    topic = cluster.make_topic(2)
    cluster.produce(topic, (b"x" for _ in range(6000)))
    handled = Handled(0.01)
    pool = pool_on(
        cluster, topic, workers=20, queue_size=200, session_timeout_ms=6000, shutdown_timeout_ms=10_000
    )

    async def main() -> None:
        await pool.start(handled)
        await until(lambda: len(handled.offsets) > 300, "it is at work")
        process = mortal_broker.broker.process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(1)  # five commit intervals: that it lasts is what is tested
            await until(lambda: at_rest(pool), "what is queued is handled meanwhile")
        finally:
            os.kill(process.pid, signal.SIGCONT)
        commits = pool.stats().commits
        await until(lambda: pool.stats().commits > commits, "it goes on after the freeze")
        await asyncio.to_thread(mortal_broker.kill_broker)
        await asyncio.to_thread(mortal_broker.start_broker)
        await until(lambda: len(handled.offsets) == 6000, "all is handled", 60)
        await until(
            lambda: all(p.committed == 3000 for p in pool.stats().partitions) and pool.stats().partitions,
            "all is committed", 60,
        )  # fmt: skip
        await pool.stop()

    asyncio.run(main())
    assert eventually(lambda: cluster.committed(pool.options["group.id"], topic), "the group") == {
        0: 3000,
        1: 3000,
    }


def test_a_pool_stops_in_time_while_the_broker_is_frozen(
    caplog: pytest.LogCaptureFixture, mortal_broker: DevStack
) -> None:
    cluster = Cluster(mortal_broker)
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"x"] * 10)
    handled = Handled()
    pool: Pool = pool_on(cluster, topic, commit_interval_ms=60_000, shutdown_timeout_ms=1000)

    async def main() -> None:
        await pool.start(handled)
        await until(lambda: len(handled.offsets) == 10, "all is handled")
        process = mortal_broker.broker.process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            await pool.stop()
            assert time.monotonic() - began < 5
        finally:
            os.kill(process.pid, signal.SIGCONT)

    asyncio.run(main())
    assert "not committed in time" in caplog.text
