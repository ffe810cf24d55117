"""Pools that are killed, and groups whose members come and go all the time: no record is lost, none waits for ever.

FOREBAY_CHAOS_POOL_KILLS (8) and FOREBAY_CHAOS_POOL_RECORDS (20,000) set the length of the first, FOREBAY_CHAOS_POOL_STORM_S (20) and
FOREBAY_CHAOS_POOL_MEMBERS (4) that of the second, FOREBAY_CHAOS_SEED which random moments.
"""

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
from pools import ends, pool_on
from support import Cluster, unique
from waiting import eventually, until

from forebay.pool import Pool, Record

KILLS = int(os.environ.get("FOREBAY_CHAOS_POOL_KILLS", "4"))
RECORDS = int(os.environ.get("FOREBAY_CHAOS_POOL_RECORDS", "20000"))
STORM_S = float(os.environ.get("FOREBAY_CHAOS_POOL_STORM_S", "10"))
MEMBERS = int(os.environ.get("FOREBAY_CHAOS_POOL_MEMBERS", "4"))
SEED = int(os.environ.get("FOREBAY_CHAOS_SEED", str(random.randrange(1_000_000))))

WORKERS, QUEUE, UNCOMMITTED = 50, 200, 500
WINDOW = WORKERS + QUEUE + UNCOMMITTED
"""The most records that a kill may make come again: those at work, and those done that are not committed."""

MEMBER = f"""
import asyncio, os, random, sys
from forebay.pool import Pool
servers, topic, group, file = sys.argv[1:]
out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
async def handle(record):
    await asyncio.sleep(random.random() / 100)
    os.write(out, b"%d %d\\n" % (record.partition, record.offset))
pool = Pool(bootstrap_servers=servers, topics=[topic], group_id=group, workers={WORKERS}, queue_size={QUEUE},
            max_uncommitted={UNCOMMITTED}, commit_batch=200, commit_interval_ms=100, order="key",
            session_timeout_ms=6000, heartbeat_interval_ms=500, kafka={{"group.instance.id": "one"}})
asyncio.run(pool.run(handle))
"""


def test_sigkill_at_random_moments_loses_no_record_and_repeats_no_more_than_what_was_in_flight(
    cluster: Cluster, tmp_path: Path
) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    topic, group, file = cluster.make_topic(3), unique("group"), tmp_path / "handled.txt"
    producer = cluster.producer(linger_ms=20)
    for number in range(RECORDS):
        producer.produce(topic, b"x" * 100, key=b"k%d" % chance.randrange(2000))
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    file.touch()

    def handled() -> int:
        return file.read_bytes().count(b"\n")

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", MEMBER, cluster.bootstrap_servers, topic, group, str(file)]
        )

    share = RECORDS // (KILLS + 1)
    for _ in range(KILLS):
        # After a share of the records, not after a time: each kill hits a pool at work, and the last has some left.
        wanted = min(RECORDS, handled() + chance.randrange(1, share))
        member = start()
        eventually(lambda wanted=wanted: handled() >= wanted, f"{wanted} records are handled", 60)  # type: ignore[misc]
        os.kill(member.pid, signal.SIGKILL)
        member.wait()
    member = start()
    try:
        end = ends(cluster, topic)
        eventually(lambda: cluster.committed(group, topic) == end, "everything is committed", 120)
    finally:
        member.terminate()
        assert member.wait(30) == 0
    counts = Counter(tuple(map(int, line.split())) for line in file.read_text().splitlines())
    assert set(counts) == {(partition, offset) for partition, end in end.items() for offset in range(end)}
    repeats = counts.total() - len(counts)
    print(f"{KILLS} kills, {RECORDS:,} records, {repeats} handled again")
    assert repeats <= KILLS * WINDOW


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_members_that_come_and_go_lose_no_record_and_never_stall(cluster: Cluster, strategy: str) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    topic, group = cluster.make_topic(8), unique("group")
    handled: Counter[tuple[int, int]] = Counter()
    producer = cluster.producer()
    produced = 0

    async def handle(record: Record) -> None:
        await asyncio.sleep(chance.random() / 50)
        handled[record.partition, record.offset] += 1

    def member() -> Pool:
        return pool_on(
            cluster, topic, group_id=group, order="key", workers=20, partition_assignment_strategy=strategy,
            # Whoever left without a word would keep the group waiting for all of its session.
            session_timeout_ms=45_000, heartbeat_interval_ms=300, drain_timeout_ms=1000,
        )  # fmt: skip

    async def produce(ended: asyncio.Event) -> None:
        nonlocal produced
        while not ended.is_set():
            for _ in range(20):
                producer.produce(topic, b"x", key=b"k%d" % chance.randrange(500))
                produced += 1
            producer.poll(0)
            await asyncio.sleep(0.05)

    async def come_and_go(ended: asyncio.Event) -> None:
        while not ended.is_set():
            pool = member()
            await pool.start(handle)
            await asyncio.sleep(chance.uniform(1, 5))  # the moment is what is random here
            await pool.stop()
            await pool.wait()

    async def watch(ended: asyncio.Event) -> float:
        """The longest time in which nothing was handled."""
        longest, last, count = 0.0, time.monotonic(), 0
        while not ended.is_set():
            await asyncio.sleep(0.05)
            if handled.total() != count:
                longest, last, count = (
                    max(longest, time.monotonic() - last),
                    time.monotonic(),
                    handled.total(),
                )
        return max(longest, time.monotonic() - last)

    async def main() -> None:
        ended, stayed = asyncio.Event(), member()
        await stayed.start(handle)
        jobs = [produce(ended), *(come_and_go(ended) for _ in range(MEMBERS - 1))]
        tasks = [asyncio.ensure_future(job) for job in jobs]
        watching = asyncio.ensure_future(watch(ended))
        await asyncio.sleep(STORM_S / 2)  # how long it goes on is what is chosen
        ended.set()
        await asyncio.gather(*tasks)
        longest = await watching
        assert producer.flush(30) == 0
        await until(lambda: len(handled) == produced, "every record is handled", 60)
        await stayed.stop()
        rebalances = stayed.stats().rebalances
        print(f"{strategy}: {produced:,} records, {rebalances} rebalances, longest silence {longest:.1f} s, "
              f"{handled.total() - len(handled)} handled again")  # fmt: skip
        assert rebalances > 2
        assert longest < 10

    asyncio.run(main())
    assert cluster.committed(group, topic) == ends(cluster, topic)
