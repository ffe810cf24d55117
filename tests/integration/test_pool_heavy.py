"""A partition that is far behind does not keep the workers from the others."""

from __future__ import annotations

import asyncio

from pools import pool_on
from support import Cluster
from waiting import until

from forebay.pool import Record


def test_a_heavy_partition_leaves_workers_to_the_others(cluster: Cluster) -> None:
    topic = cluster.make_topic(2)
    cluster.produce(topic, [b"flood"] * 60, partition=0)
    pool = pool_on(cluster, topic, workers=8, heavy_lag=20, heavy_workers=2)
    light, at_work = 0, 0

    async def main() -> None:
        go_on = asyncio.Semaphore(0)

        async def handle(record: Record) -> None:
            nonlocal at_work, light
            if record.partition == 1:
                light += 1
                return
            at_work += 1
            await go_on.acquire()
            at_work -= 1

        await pool.start(handle)
        try:
            await until(lambda: at_work == 8, "the flood has all workers")
            await until(lambda: any(one.heavy for one in pool.stats().partitions), "its partition is heavy")
            for _ in range(8):
                go_on.release()
            await until(lambda: pool.stats().completed == 8, "those that were at work are done")
            await until(lambda: at_work == 2, "no more than two go on")
            # Nothing of the flood is let go, and all of this is handled.
            await asyncio.to_thread(cluster.produce, topic, [b"x"] * 10, partition=1)
            await until(lambda: light == 10, "the others have workers")
            assert at_work == 2
            for _ in range(60):
                go_on.release()
            await until(lambda: pool.stats().completed == 70, "all is done")
            await until(lambda: not any(one.heavy for one in pool.stats().partitions), "nothing is heavy")
        finally:
            await pool.stop()

    asyncio.run(main())
