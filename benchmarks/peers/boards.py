"""One store, measured in a process of its own: publish many at a time, publish one by one, get."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from flock.core.artifacts import Artifact
from flock.core.store import InMemoryBlackboardStore, SQLiteBlackboardStore

ALONE = 1_000
GETS = 5_000
WARM_UP = 500


def artifact(number: int) -> Artifact:
    return Artifact(
        type="bench.Order",
        payload={"n": number, "text": "x" * 150, "price": number / 7},
        produced_by=f"agent{number % 5}",
        correlation_id=f"c{number % 1_000}",
        tags={"bench"},
    )


def make(store: str, servers: str, partitions: int, folder: str) -> Any:
    if store == "memory":
        return InMemoryBlackboardStore()
    if store == "sqlite":
        return SQLiteBlackboardStore(str(Path(folder) / "board.db"))
    from forebay.blackboard.flock import KafkaBlackboardStore

    return KafkaBlackboardStore(
        servers, topic_prefix=f"bench-{uuid4().hex}.", partitions=partitions, transactions=store == "kafka-tx"
    )


def p95_ms(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)] * 1000


async def publish_all(board: Any, artifacts: list[Artifact], publishers: int) -> list[float]:
    times: list[float] = []
    left = iter(artifacts)

    async def publisher() -> None:
        for each in left:
            began = time.perf_counter()
            await board.publish(each)
            times.append(time.perf_counter() - began)

    await asyncio.gather(*(publisher() for _ in range(publishers)))
    return times


async def measure(
    store: str, servers: str, count: int, publishers: int, partitions: int, folder: str
) -> dict[str, float]:
    board = make(store, servers, partitions, folder)
    await publish_all(board, [artifact(n) for n in range(WARM_UP)], publishers)
    artifacts = [artifact(n) for n in range(count)]
    began = time.perf_counter()
    many = await publish_all(board, artifacts, publishers)
    assert await board.get(artifacts[-1].id) is not None
    makespan = time.perf_counter() - began
    _, total = await board.query_artifacts(limit=1)
    assert total == count + WARM_UP, f"{total} of {count + WARM_UP} artifacts"
    alone = await publish_all(board, [artifact(n) for n in range(ALONE)], 1)
    await board.get(artifacts[0].id)
    gets = []
    for each in random.Random(1).sample(artifacts, min(GETS, count)):
        began = time.perf_counter()
        found = await board.get(each.id)
        gets.append(time.perf_counter() - began)
        assert found is not None
        assert found.payload == each.payload
    if hasattr(board, "close"):
        await board.close()
    return {
        "makespan_s": makespan,
        "publish_p95_ms": p95_ms(many),
        "alone_p95_ms": p95_ms(alone),
        "get_p95_ms": p95_ms(gets),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    store, servers, *numbers = sys.argv[1:]
    count, publishers, partitions = (int(text) for text in numbers)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(store, servers, count, publishers, partitions, folder))))


if __name__ == "__main__":
    main()
