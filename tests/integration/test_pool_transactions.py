"""A transactional pool: what handlers send is there exactly once, however they fail and die."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pools import committed, ends, pool_on, run_until
from support import Cluster, unique
from waiting import eventually, until

from forebay.errors import ConnectorStateError, OptionConflictError, PoolStateError, TransactionError
from forebay.pool import Pool, Record

MEMBER = """
import asyncio, sys
from forebay.pool import Pool, Record
servers, topic, group, out, id = sys.argv[1:]
async def handle(record: Record) -> None:
    await asyncio.sleep(record.offset % 7 / 1000)
    record.send(out, record.value, key=record.key)
pool = Pool(bootstrap_servers=servers, topics=[topic], group_id=group, workers=50, queue_size=500,
            session_timeout_ms=6000, heartbeat_interval_ms=500)
asyncio.run(pool.transactional(id, interval_ms=50).run(handle))
"""


def test_what_is_sent_is_written_once_with_its_offset_and_nothing_of_failed_attempts(
    cluster: Cluster,
) -> None:
    topic, out = cluster.make_topic(3), cluster.make_topic(2)
    cluster.produce(topic, (b"%d" % n for n in range(600)))

    async def handle(record: Record) -> None:
        record.send(out, b"%s on attempt %d" % (record.value, record.attempt), key=record.value)
        await asyncio.sleep(random.random() / 100)
        if int(record.value) % 10 == 0 and record.attempt == 1:
            raise ConnectionError("not now")

    pool = pool_on(cluster, topic, workers=50).transactional(unique("tx"), interval_ms=50)
    asyncio.run(run_until(pool, handle, lambda: pool.stats().completed == 600))
    expected = {b"%d on attempt %d" % (n, 1 if n % 10 else 2) for n in range(600)}
    found = cluster.values(out)
    assert len(found) == 600
    assert set(found) == expected
    assert committed(cluster, pool, topic) == ends(cluster, topic)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
def test_what_is_sent_carries_the_span_of_its_handler(
    cluster: Cluster, spans: InMemorySpanExporter, plain: bool
) -> None:
    topic, out = cluster.make_topic(1), cluster.make_topic(1)
    cluster.produce(topic, [b"x"])
    own = ("traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")

    def handle(record: Record) -> None:
        record.send(out, b"linked", headers=[("h", b"1")])
        record.send(out, b"by hand", headers=[own])

    async def handle_async(record: Record) -> None:
        handle(record)

    pool = pool_on(cluster, topic).transactional(unique("tx"), interval_ms=50)
    asyncio.run(run_until(pool, handle if plain else handle_async, lambda: pool.stats().completed == 1))
    [span] = spans.get_finished_spans()
    found = {message.value(): message.headers() for message in cluster.records(out)}
    traceparent = (
        f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"
    )
    assert found == {b"linked": [("h", b"1"), ("traceparent", traceparent.encode())], b"by hand": [own]}


def test_what_is_beyond_an_unfinished_record_is_written_with_metadata_and_not_again(cluster: Cluster) -> None:
    topic, out, group = cluster.make_topic(1), cluster.make_topic(1), unique("group")
    cluster.produce(topic, (b"%d" % n for n in range(50)))
    handled: Counter[bytes] = Counter()

    async def stuck(record: Record) -> None:
        handled[record.value] += 1
        record.send(out, record.value)
        if record.offset == 7:
            await asyncio.sleep(3600)

    pool = pool_on(cluster, topic, group_id=group, shutdown_timeout_ms=0).transactional(unique("tx"))
    asyncio.run(run_until(pool, stuck, lambda: pool.stats().completed == 49))
    assert committed(cluster, pool, topic) == {0: 7}
    assert len(cluster.values(out)) == 49

    async def free(record: Record) -> None:
        handled[record.value] += 1
        record.send(out, record.value)

    again = pool_on(cluster, topic, group_id=group).transactional(unique("tx"))
    asyncio.run(run_until(again, free, lambda: again.stats().completed == 1))
    found = cluster.values(out)
    assert sorted(found, key=int) == [b"%d" % n for n in range(50)]
    assert handled.pop(b"7") == 2
    assert set(handled.values()) == {1}


def test_what_does_not_fit_into_the_metadata_waits_for_its_transaction(cluster: Cluster) -> None:
    """Nothing may be written that a restart would write again."""
    topic, out = cluster.make_topic(1), cluster.make_topic(1)
    cluster.produce(topic, (b"%d" % n for n in range(100)))
    release = asyncio.Event()

    async def handle(record: Record) -> None:
        record.send(out, record.value)
        if record.offset == 0:
            await release.wait()

    pool = pool_on(cluster, topic, metadata_max_bytes=0).transactional(unique("tx"), interval_ms=20)

    async def main() -> None:
        await pool.start(handle)
        await until(lambda: pool.stats().completed == 99, "all but the first are done")
        assert await asyncio.to_thread(cluster.values, out) == []
        release.set()
        await until(lambda: pool.stats().partitions[0].committed == 100, "all is committed")
        await pool.stop()

    asyncio.run(main())
    assert sorted(cluster.values(out), key=int) == [b"%d" % n for n in range(100)]


def test_partitions_that_move_between_transactional_pools_are_written_once(cluster: Cluster) -> None:
    """(541) No deadlock on revoke."""
    topic, out, group = cluster.make_topic(4), cluster.make_topic(1), unique("group")
    cluster.produce(topic, (b"%d" % n for n in range(3000)))

    async def handle(record: Record) -> None:
        await asyncio.sleep(0.02)
        record.send(out, record.value)

    async def main() -> None:
        first, second = (
            pool_on(cluster, topic, group_id=group, workers=10).transactional(unique("tx"), interval_ms=50)
            for _ in "ab"
        )
        await first.start(handle)
        await until(lambda: first.stats().completed > 200, "the first is at work")
        await second.start(handle)
        await until(lambda: second.stats().completed > 100, "the second is at work")
        await first.stop()
        await until(lambda: first.stats().completed + second.stats().completed >= 3000, "all is done")
        await second.stop()

    asyncio.run(main())
    assert sorted(cluster.values(out), key=int) == [b"%d" % n for n in range(3000)]
    assert cluster.committed(group, topic) == ends(cluster, topic)


def test_sigkill_at_random_moments_leaves_each_output_exactly_once(cluster: Cluster, tmp_path: Path) -> None:
    topic, out, group = cluster.make_topic(2), cluster.make_topic(2), unique("group")
    count = 6000
    cluster.produce(topic, (b"%d" % n for n in range(count)))
    random.seed(3)

    def committed_so_far() -> int:
        return sum(max(0, offset) for offset in cluster.committed(group, topic).values())

    for kill in range(4):
        member = subprocess.Popen(
            [sys.executable, "-c", MEMBER, cluster.bootstrap_servers, topic, group, out, group]
        )
        if kill == 3:
            break
        before = committed_so_far()
        eventually(lambda seen=before: committed_so_far() > seen, "it commits")  # type: ignore[misc]
        time.sleep(random.random() * 0.3)  # the moment is what is random here
        os.kill(member.pid, signal.SIGKILL)
        member.wait()
    try:
        eventually(lambda: committed_so_far() >= count or member.poll() is not None, "all is committed", 60)
        assert member.poll() is None
    finally:
        member.terminate()
        member.wait(20)
    assert sorted(cluster.values(out), key=int) == [b"%d" % n for n in range(count)]


def test_a_second_pool_with_the_same_id_ends_the_first(cluster: Cluster) -> None:
    topic, out, id = cluster.make_topic(1), cluster.make_topic(1), unique("tx")

    async def handle(record: Record) -> None:
        record.send(out, record.value)

    async def main() -> None:
        first = pool_on(cluster, topic).transactional(id)
        await first.start(handle)
        await until(lambda: first.stats().partitions, "the first has its partition")
        second = pool_on(cluster, topic).transactional(id)
        await second.start(handle)
        await asyncio.to_thread(cluster.produce, topic, [b"x"])
        with pytest.raises(TransactionError, match=id):
            await first.wait()
        await asyncio.gather(first.stop(), second.stop(), return_exceptions=True)

    asyncio.run(main())


def test_send_needs_a_transaction_and_transactions_need_a_new_pool() -> None:
    base = {"bootstrap_servers": "localhost:1", "topic": "t", "group_id": "g"}
    record = Record(None, None)
    with pytest.raises(ConnectorStateError, match="needs a transaction"):
        record.send("t", b"v")
    with pytest.raises(OptionConflictError, match="processes"):
        Pool(**base, processes=2).transactional("x")
    pool = Pool(**base)
    pool.state = type(pool.state).RUNNING
    with pytest.raises(PoolStateError):
        pool.transactional("x")
