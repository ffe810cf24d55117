"""`KafkaBlackboardStore`: artifacts published to a log, found through a local index of it.

    store = KafkaBlackboardStore(bootstrap_servers="localhost:9092")
    await store.publish(Artifact(type="Order", payload={"n": 1}, produced_by="shop", correlation_id="c-1"))
    await store.get(artifact_id)

It connects on first use (or `await store.start()`): topics are made, and the index is read from the compacted
topics. Everything that is written goes to Kafka first and comes into the index from there, in every process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from builtins import list as List
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Unpack
from uuid import UUID

from forebay.blackboard import telemetry
from forebay.blackboard.artifact import Codec, Document, PlainCodec, encode, iso
from forebay.blackboard.board_topics import BoardTopics, ensure_retry_topics, ensure_topics
from forebay.blackboard.board_writer import HEADROOM, Placed, TransactionalWriter, Writer, most_bytes
from forebay.blackboard.index import Index
from forebay.blackboard.index_feed import IndexFeed
from forebay.blackboard.keywords import BlackboardKeywords
from forebay.blackboard.lag import Throttle
from forebay.blackboard.marks import BoardMarks
from forebay.blackboard.metrics import BoardCollector
from forebay.blackboard.options import BLACKBOARD, bind, node_name
from forebay.blackboard.queries import Queries
from forebay.blackboard.records import AGENT, CONSUMPTION, cloud_event, consumption_key, partition_key
from forebay.blackboard.stats import BoardStats, Refusals
from forebay.errors import ArtifactError, StoreClosedError
from forebay.kafka.producer import OutgoingRecord
from forebay.keywords import shown

Consistency = Literal["own", "latest", "local"]


class KafkaBlackboardStore:
    """A blackboard on Kafka: artifacts that agents publish, find, consume once and replay.

        async with forebay.KafkaBlackboardStore("localhost:9092") as store:
            await store.publish(Artifact(type="Order", payload={"n": 1}, produced_by="shop"))
            await store.query_artifacts(FilterConfig(type_names={"Order"}))

    `list()` and `list_by_type()` are views of the newest `index_window` artifacts, and no more: a log has no
    end. `get()` knows the newest version of every artifact, and `query_artifacts()` searches all of them.

    Making a store connects to nothing and does not block. An option that is unknown or wrong raises an `OptionError`
    here. The first use connects, makes the topics and reads the index: an `UnreachableError` where no broker answers
    within `connect_timeout_ms`. A read waits for what `consistency` says, up to `read_timeout_ms`, and then raises an
    `IndexBehindError`. A closed store raises a `StoreClosedError`. docs/blackboard.md says more.
    """

    @shown(
        BLACKBOARD,
        bootstrap_servers="Kafka broker addresses, host:port, separated by commas; default 'localhost:9092'; "
        "from KAFKA_BOOTSTRAP_SERVERS if not given",
        codec="how a program's own artifacts become documents and back; `Artifact` needs none",
    )
    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        codec: Codec | None = None,
        **options: Unpack[BlackboardKeywords],
    ) -> None:
        self.options = bind({"bootstrap.servers": bootstrap_servers, **options})
        self.topics = BoardTopics.of(self.options)
        self.node = node_name(self.options)
        self._most_bytes = most_bytes(self.options)
        self._codec: Codec = codec or PlainCodec()
        self.refusals = Refusals()
        self._starting = threading.Lock()
        self._written: Placed = {}
        self._log_of_written = 0
        self._closed = False
        self._ready = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "ready" if self._ready else "not started"
        return (
            f"<forebay.KafkaBlackboardStore {self.topics.artifacts} at {self.options['bootstrap.servers']}, "
            f"node {self.node}, {state}>"
        )

    @property
    def transaction(self) -> str | None:
        """What transactions are called here, if there are any."""
        return self.node if self.options["transactions"] else None

    # -- life ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, make topics, and read the index: until it has all that the topics have now.

        `UnreachableError` where no broker answers within `connect_timeout_ms`, `UnknownTopicError` where a topic is missing
        and `create_topics` is false, `BlackboardTopicError` where one is kept in a way that would lose artifacts.
        """
        if not self._ready:
            await asyncio.to_thread(self._start)

    def _start(self) -> None:
        with self._starting:
            if self._closed:
                raise StoreClosedError("the blackboard store is closed")
            if self._ready:
                return
            ensure_topics(self.options, self.topics)
            path = self.options["index.path"]
            with contextlib.ExitStack() as undo:
                kept_ms = self.options["marks.retention.ms"]
                self._index = Index(self.topics, Path(path) if path else None, self.refusals, kept_ms)
                undo.callback(self._index.close)
                self._feed = IndexFeed(self.options, self.topics, self._index)
                undo.callback(self._feed.close)
                self._feed.start()
                self._throttle = Throttle(self.options, self.topics.artifacts)
                undo.callback(self._throttle.close)
                self._writer: Writer | TransactionalWriter = (
                    TransactionalWriter(self.options, f"{self.node}.publish")
                    if self.options["transactions"]
                    else Writer(self.options)
                )
                undo.pop_all()
            self._queries = Queries(self._index, self._codec, self.topics.by_id, self.refusals)
            self._ready = True

    async def close(self) -> None:
        """Disconnect. What was published is durable before; a kept index can be gone on with. Closing twice is harmless."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._starting:
            ready, self._ready, self._closed = self._ready, False, True
            if ready:
                self._writer.close()
                self._throttle.close()
                self._feed.close()
                self._index.close()

    def stats(self) -> BoardStats:
        """How the store fares: what it has read and refused, and whether its index follows the log."""
        if not self._ready:
            return BoardStats(0, self.refusals.by_topic, None)
        trouble = self._feed.trouble or self._feed.away
        return BoardStats(
            self._feed.taken,
            self.refusals.by_topic,
            None if trouble is None else trouble.message,
            self._feed.log_number,
        )

    def collector(self) -> BoardCollector:
        """For a Prometheus registry. An orchestrator's has the same, and more."""
        return BoardCollector(self.stats)

    async def __aenter__(self) -> KafkaBlackboardStore:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- writing -------------------------------------------------------------------------------------

    async def publish(self, artifact: Any) -> None:
        """Returns when the log has it. Publishing it again is safe: it is the same artifact by its id.

        Waits while `lag_group` is too far behind. `ArtifactError` for what a blackboard cannot hold, or too large;
        `FencedError` where another program has this one's `transactional_id`.
        """
        await self.start()
        await self._throttle.wait()
        document = self._codec.document(artifact)
        with telemetry.publishing(self.topics.artifacts, document) as span:
            placed = await self._write(self.records_of(document, span))
            telemetry.published(span, self.topics.artifacts, placed, self.transaction)

    def records_of(self, document: Document, span: Any = None) -> List[OutgoingRecord]:
        """An artifact as what is written for it: the event, and the newest version by id."""
        value = encode(document)
        if len(value) > self._most_bytes:
            raise ArtifactError(
                f"artifact {document['id']} of type '{document['type']}' has {len(value):,} bytes, and the most is "
                f"{self._most_bytes:,}",
                remedy="publish a reference to where it is, or raise 'kafka.message.max.bytes' here and max.message.bytes "
                "of the topics",
            )
        headers = cloud_event(document) + telemetry.context(span)
        return [
            OutgoingRecord(self.topics.artifacts, partition_key(document), value, headers),
            OutgoingRecord(self.topics.by_id, document["id"].encode(), value),
        ]

    async def record_consumptions(self, records: Iterable[Any]) -> None:
        """Write down who consumed what; returns when the log has it. The same one again counts once."""
        await self.start()
        outgoing = [self.consumption(record) for record in records]
        if outgoing:
            await self._write(outgoing)

    def consumption(self, record: Any) -> OutgoingRecord:
        """A consumption as what is written for it; written twice, it is one."""
        form = {
            "artifact_id": str(record.artifact_id),
            "consumer": record.consumer,
            "run_id": record.run_id,
            "correlation_id": record.correlation_id,
            "consumed_at": iso(record.consumed_at),
        }
        form = CONSUMPTION.checked(form)
        return OutgoingRecord(self.topics.consumptions, consumption_key(form), _json(form))

    def ensure_retry_topics(self, attempts: int) -> List[str]:
        """Make the topics that this many retries wait in, and return their names. Blocks until they are there."""
        return ensure_retry_topics(self.options, self.topics, attempts, self._most_bytes + HEADROOM)

    def marks(self) -> BoardMarks:
        """Who is done with what, as this process knows it."""
        timeout_s = self.options["read.timeout.ms"] / 1000
        return BoardMarks(self.topics.processed, self._index, self._feed, timeout_s)

    async def upsert_agent_snapshot(self, snapshot: Any) -> None:
        """Keep what is known of an agent, in place of what was; returns when the log has it."""
        await self.start()
        form = AGENT.checked(
            {
                **asdict(snapshot),
                "first_seen": iso(snapshot.first_seen),
                "last_seen": iso(snapshot.last_seen),
            }
        )
        await self._write([OutgoingRecord(self.topics.agents, snapshot.agent_name.encode(), _json(form))])

    async def clear_agent_snapshots(self) -> None:
        """Forget what is known of all agents."""
        known = await self._read("latest", lambda: self._queries.agents())
        if known:
            await self._write(
                [OutgoingRecord(self.topics.agents, each.agent_name.encode(), None) for each in known]
            )

    async def _write(self, records: List[OutgoingRecord]) -> Placed:
        placed = await self._writer.write(records)
        self.note_written(placed)
        return placed

    def note_written(self, placed: Placed) -> None:
        """What reads of consistency `own` wait for."""
        written = self._own()
        for key, offset in placed.items():
            if key[0] in self.topics.indexed and offset > written.get(key, 0):
                written[key] = offset

    def _own(self) -> Placed:
        """How far this store has written, in the log that there is: one that was truncated or recreated is another."""
        if self._log_of_written != self._feed.log_number:
            self._log_of_written = self._feed.log_number
            self._written = {}
        return self._written

    # -- reading -------------------------------------------------------------------------------------

    async def get(self, artifact_id: UUID, *, consistency: Consistency | None = None) -> Any | None:
        """The newest version of an artifact, None if there is none. Waits for what `consistency` says, as all reads do:
        `IndexBehindError` where that takes longer than `read_timeout_ms`."""
        await self._reach(consistency)
        # A look at one row takes less time than handing it to a thread, and waits for no other question.
        return self._queries.one(str(artifact_id))

    async def list(self, *, consistency: Consistency | None = None) -> List[Any]:
        """The newest `index_window` artifacts, the oldest of them first."""
        window = self.options["index.window"]
        return await self._read(consistency, lambda: self._queries.recent(window))  # type: ignore[no-any-return]

    async def list_by_type(self, type_name: str, *, consistency: Consistency | None = None) -> List[Any]:
        """The newest `index_window` artifacts of a type, the oldest of them first."""
        window, name = self.options["index.window"], self._codec.resolve(type_name)
        return await self._read(consistency, lambda: self._queries.recent(window, name))  # type: ignore[no-any-return]

    async def get_by_type(
        self,
        artifact_type: type[Any],
        *,
        correlation_id: str | None = None,
        consistency: Consistency | None = None,
    ) -> List[Any]:
        """The payloads, as objects of that class."""
        window, name = self.options["index.window"], self._codec.resolve(artifact_type.__name__)
        return await self._read(  # type: ignore[no-any-return]
            consistency, lambda: self._queries.recent(window, name, correlation_id, artifact_type)
        )

    async def query_artifacts(
        self,
        filters: Any = None,
        *,
        limit: int = 50,
        offset: int = 0,
        embed_meta: bool = False,
        consistency: Consistency | None = None,
    ) -> tuple[List[Any], int]:
        """A page of what is meant, ordered by creation and id, and how many there are in all."""

        def ask() -> tuple[List[Any], int]:
            page, total = self._queries.page(filters, limit, offset)
            if not embed_meta:
                return [found.artifact for found in page], total
            consumed = self._queries.consumptions([found.document["id"] for found in page])
            return [
                self._codec.envelope(
                    artifact=found.artifact, consumptions=self._consumptions(found.document, consumed)
                )
                for found in page
            ], total

        return await self._read(consistency, ask)  # type: ignore[no-any-return]

    async def fetch_graph_artifacts(
        self,
        filters: Any = None,
        *,
        limit: int = 500,
        offset: int = 0,
        consistency: Consistency | None = None,
    ) -> tuple[List[Any], int]:
        """`query_artifacts()` with those who consumed each artifact."""
        return await self.query_artifacts(
            filters, limit=limit, offset=offset, embed_meta=True, consistency=consistency
        )

    async def summarize_artifacts(
        self, filters: Any = None, *, consistency: Consistency | None = None
    ) -> dict[str, Any]:
        """How many artifacts are meant, by type, producer, visibility and tag, and when the first and last were made."""
        return await self._read(consistency, lambda: self._queries.summary(filters))  # type: ignore[no-any-return]

    async def agent_history_summary(
        self, agent_id: str, filters: Any = None, *, consistency: Consistency | None = None
    ) -> dict[str, Any]:
        """What an agent has produced and consumed, counted by type."""
        return await self._read(  # type: ignore[no-any-return]
            consistency, lambda: self._queries.history(agent_id, filters)
        )

    async def load_agent_snapshots(self, *, consistency: Consistency | None = None) -> List[Any]:
        """What is known of all agents."""
        return await self._read(consistency, lambda: self._queries.agents())  # type: ignore[no-any-return]

    async def _read(self, consistency: Consistency | None, question: Any) -> Any:
        await self._reach(consistency)
        return await asyncio.to_thread(question)

    async def _reach(self, consistency: Consistency | None) -> None:
        """Until the index has what this reader is to see."""
        await self.start()
        wanted = consistency or self.options["consistency"]
        timeout_s = self.options["read.timeout.ms"] / 1000
        if wanted == "latest":
            await asyncio.to_thread(self._wait_for_latest, timeout_s)
        elif wanted == "own" and not self._feed.has(self._own()):
            await asyncio.to_thread(self._feed.wait_for, dict(self._own()), timeout_s)

    def _wait_for_latest(self, timeout_s: float) -> None:
        """Its own writes are part of it: the broker may say where the log ends before it shows a commit to readers."""
        ends, own = self._feed.ends(), self._own()
        self._feed.wait_for({key: max(end, own.get(key, 0)) for key, end in ends.items()}, timeout_s)

    def _consumptions(self, document: Document, consumed: dict[str, List[tuple[Any, ...]]]) -> List[Any]:
        return [
            self._codec.consumption(
                artifact_id=UUID(document["id"]),
                consumer=consumer,
                run_id=run,
                correlation_id=correlation,
                consumed_at=datetime.fromisoformat(at),
            )
            for consumer, run, correlation, at in consumed.get(document["id"], ())
        ]


def _json(form: dict[str, Any]) -> bytes:
    try:
        return json.dumps(form, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ArtifactError("a text has half of a surrogate pair, which is no text") from None
