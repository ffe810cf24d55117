"""What the tests of the blackboard share: a board of its own topics, and running a coroutine."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from confluent_kafka import Message, TopicPartition
from support import Cluster, unique

from forebay.blackboard import Artifact, KafkaBlackboardStore

T = TypeVar("T")


def board(cluster: Cluster, prefix: str = "", **options: Any) -> KafkaBlackboardStore:
    """A store on topics of this prefix, or on its own."""
    return KafkaBlackboardStore(
        cluster.bootstrap_servers,
        topic_prefix=prefix or unique("board") + ".",
        **{"partitions": 2, **options},
    )


def artifact(number: int = 0, **more: Any) -> Artifact:
    return Artifact(**{"type": "Order", "payload": {"n": number}, "produced_by": "shop", **more})


def run(work: Coroutine[Any, Any, T], timeout: float = 60) -> T:
    return asyncio.run(asyncio.wait_for(work, timeout))


async def until(condition: Callable[[], Any], what: str, timeout: float = 40) -> Any:
    """Wait until a condition, plain or to be awaited, is truthy; returns what it returned."""
    deadline = time.monotonic() + timeout
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        await asyncio.sleep(0.02)


def records(cluster: Cluster, topic: str) -> list[Message]:
    """All that is committed in a topic."""
    level = {"isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = cluster.consumer(unique("reading"), **level)
    found, open_partitions = [], set(cluster.watermarks(topic))
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in open_partitions])
        while open_partitions:
            message = consumer.poll(10)
            assert message is not None
            if message.error():
                open_partitions.discard(message.partition())
            else:
                found.append(message)
    finally:
        consumer.close()
    return found
