"""What the tests of the pool share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from support import Cluster, unique
from waiting import until

from forebay.pool import Pool


def pool_on(cluster: Cluster, *topics: str, **settings: Any) -> Pool:
    """A pool of a group of its own, unless one is given, that commits often."""
    more = {"group_id": unique("group"), "commit_interval_ms": 200, "retry_backoff_ms": 5, "topics": topics}
    return Pool(bootstrap_servers=cluster.bootstrap_servers, **more | settings)


async def run_until(pool: Pool, handler: Any, condition: Callable[[], Any], timeout: float = 30) -> None:
    """Run a pool until a condition holds, and stop it in order. Raises what ends it before."""
    await pool.start(handler)
    try:
        ended = asyncio.ensure_future(pool.wait())
        waiting = asyncio.ensure_future(until(condition, "the condition that ends the run", timeout))
        await asyncio.wait([ended, waiting], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            waiting.cancel()
            await ended
        ended.cancel()
        await waiting
    finally:
        await pool.stop()


def committed(cluster: Cluster, pool: Pool, topic: str) -> dict[int, int]:
    return cluster.committed(pool.options["group.id"], topic)


def ends(cluster: Cluster, topic: str) -> dict[int, int]:
    return {partition: high for partition, (_, high) in cluster.watermarks(topic).items()}
