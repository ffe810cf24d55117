"""Replay: artifacts of the log handed to an agent once more, by time, correlation or type.

They go to the agent's retries, due at once, under the name of this replay: the agent's earlier marks do not count,
and a crash in the middle repeats nothing that the replay has done.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import Message

from forebay.blackboard.artifact import decode, micros
from forebay.blackboard.retries import Job, headers_of
from forebay.blackboard.store import KafkaBlackboardStore
from forebay.deadletter.letter import REPLAY_ID
from forebay.errors import ArtifactError
from forebay.kafka.admin import Cluster, partitions_of
from forebay.kafka.offsets import Range
from forebay.kafka.producer import OutgoingRecord
from forebay.kafka.reader import read_ranges
from forebay.kafka.settings import reader_settings
from forebay.options import Options
from forebay.tables import counted

CHUNK = 500
GROUP = "forebay-board-replay"  # never joined


@dataclass(frozen=True, repr=False)
class BoardReplay:
    """What `replay()` has handed to an agent, or would hand over: `count` artifacts of the `read` ones."""

    id: str
    agent: str
    count: int
    read: int

    def __repr__(self) -> str:
        return f"<replay {self.id[:8]} for agent {self.agent}: {counted(self.count, 'artifact')} of {self.read:,} read>"


async def replay(
    store: KafkaBlackboardStore,
    agent: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    correlation_id: str | None = None,
    types: Collection[str] = (),
    dry_run: bool = False,
) -> BoardReplay:
    """Hand artifacts of the log to an agent once more, by time, correlation or type.

    Reads the log between `since` and `until` in threads, and returns when all that matches is written to the agent's
    retries. Times are those of the records in the log: when they were published, and not when they say they were made.
    A dry run only counts. `UnreachableError` where no broker answers, `ReadStalledError` where the log stops coming.
    """
    await store.start()
    name = uuid.uuid4().hex
    if not dry_run:
        await asyncio.to_thread(store.ensure_retry_topics, 1)
    count = read = 0
    messages = _log(store.options, store.topics.artifacts, since, until)
    while chunk := await asyncio.to_thread(_take, messages):
        read += len(chunk)
        outgoing = []
        for message in chunk:
            place = (message.topic(), message.partition(), message.offset())
            try:
                document = decode(message.value())
            except ArtifactError as error:
                store.refusals.add(place, error)
                continue
            if correlation_id is not None and document["correlation_id"] != correlation_id:
                continue
            if types and document["type"] not in types:
                continue
            job = Job(agent, 0, int(time.time() * 1000), name, place)
            own = [pair for pair in message.headers() or () if pair[0] != REPLAY_ID]
            headers = [*headers_of(job, own), (REPLAY_ID, name.encode())]
            outgoing.append(OutgoingRecord(store.topics.retry(1), message.key(), message.value(), headers))
        count += len(outgoing)
        if outgoing and not dry_run:
            await store._write(outgoing)
    return BoardReplay(name, agent, count, read)


def _take(messages: Iterator[Message]) -> list[Message]:
    return [message for message, _ in zip(messages, range(CHUNK), strict=False)]


def _log(options: Options, topic: str, since: datetime | None, until: datetime | None) -> Iterator[Message]:
    """The log between two moments, up to where it ends now; each partition in order."""
    cluster = Cluster(options)
    try:
        keys = partitions_of(cluster.describe([topic]))
        starts = cluster.earliest(keys)
        if since is not None:
            found = cluster.at_timestamp(keys, micros(since) // 1000)
            starts = {key: max(starts[key], found[key]) for key in keys}
        ends = cluster.latest(keys)
        if until is not None:
            found = cluster.at_timestamp(keys, micros(until) // 1000)
            ends = {key: min(ends[key], found[key]) for key in keys}
    finally:
        cluster.close()
    ranges = [Range(*key, starts[key], ends[key]) for key in keys if starts[key] < ends[key]]
    for messages in read_ranges(ranges, options, reader_settings(options, GROUP), chunk=CHUNK):
        yield from messages
