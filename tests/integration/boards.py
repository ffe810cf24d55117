"""What the tests of the blackboard share: a board of its own topics, and running a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

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
