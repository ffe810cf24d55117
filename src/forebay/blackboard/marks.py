"""Who is done with what: marks in a compacted topic, looked up in the local index.

The index may lag behind the topic. So a partition that was another process's is begun with only after the index
has every mark that was there when it came; and this process's own marks count at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from itertools import islice
from typing import Any

from forebay.blackboard.index import Index
from forebay.blackboard.index_feed import IndexFeed
from forebay.blackboard.records import processed_key
from forebay.blackboard.retries import RecordPlace
from forebay.kafka.producer import OutgoingRecord

PRUNE = 10_000  # own marks kept in memory before those that the index has are let go
STEP = 50  # that are looked at then: the event loop waits meanwhile


class BoardMarks:
    """For one event loop."""

    def __init__(self, topic: str, index: Index, feed: IndexFeed, timeout_s: float) -> None:
        self._topic = topic
        self._index = index
        self._feed = feed
        self._timeout_s = timeout_s
        self._fresh: dict[bytes, Any] = {}  # own marks, by the assignment that they were made under
        self._caught_up: dict[tuple[str, int], tuple[Any, asyncio.Task[None]]] = {}

    async def has(self, artifact_id: str, agent: str, replay: str, lease: Any) -> bool:
        await self._catch_up(lease)
        key = processed_key(artifact_id, agent, replay)
        fresh = self._fresh.get(key)
        # Under an earlier assignment it may have been rolled back with its transaction.
        return (fresh is not None and fresh is lease) or key in self._index.processed([key])

    def mark(
        self, artifact_id: str, agent: str, replay: str, place: RecordPlace, result: dict[str, Any]
    ) -> OutgoingRecord:
        """The record that says so."""
        topic, partition, offset = place
        about = {
            "at_ms": int(time.time() * 1000),
            "topic": topic,
            "partition": partition,
            "offset": offset,
            **result,
        }
        return OutgoingRecord(
            self._topic, processed_key(artifact_id, agent, replay), json.dumps(about).encode()
        )

    def made(self, artifact_id: str, agent: str, replay: str, lease: Any) -> None:
        """It is on its way, with whatever else this assignment commits."""
        self._fresh[processed_key(artifact_id, agent, replay)] = lease
        if len(self._fresh) > PRUNE:
            oldest = list(islice(self._fresh, STEP))
            known = self._index.processed(oldest)
            for key in oldest:
                lease = self._fresh.pop(key)
                if key not in known:
                    self._fresh[key] = lease  # at the end: the next time it is the turn of others

    def forget(self, artifact_id: str, agent: str, replay: str) -> None:
        """It was not written after all."""
        self._fresh.pop(processed_key(artifact_id, agent, replay), None)

    async def _catch_up(self, lease: Any) -> None:
        """Once an assignment of a partition, and while the index is made anew."""
        if not self._feed.has({}):
            await asyncio.to_thread(self._feed.wait_for, {}, self._timeout_s)
        if lease is None:
            return
        place = (lease.topic, lease.partition)
        known = self._caught_up.get(place)
        if known is None or known[0] is not lease:
            task = asyncio.get_running_loop().create_task(asyncio.to_thread(self._wait))
            known = self._caught_up[place] = (lease, task)
        try:
            await asyncio.shield(known[1])
        except BaseException:
            self._caught_up.pop(place, None)
            raise

    def _wait(self) -> None:
        ends = {key: end for key, end in self._feed.ends().items() if key[0] == self._topic}
        self._feed.wait_for(ends, self._timeout_s)
