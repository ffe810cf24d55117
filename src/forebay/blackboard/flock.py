"""Flock on a Kafka blackboard (`pip install forebay[flock]`, Python 3.12+).

    from flock import Flock
    from forebay.blackboard.flock import KafkaBlackboardStore, KafkaSchedulingComponent

    flock = Flock(store=KafkaBlackboardStore(bootstrap_servers="localhost:9092"))
    flock.add_component(KafkaSchedulingComponent())     # agents of several processes share the work

The store alone keeps what a Flock program does, and shows it to others. With the component, agents run for what the
log brings, whoever has published it: start the same program as often as you like.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Unpack

from flock.components.orchestrator import DeduplicationComponent, OrchestratorComponent, ScheduleDecision
from flock.core.artifacts import Artifact
from flock.core.store import AgentSnapshotRecord, ArtifactEnvelope, BlackboardStore, ConsumptionRecord
from flock.registry import RegistryError, type_registry
from pydantic import Field, PrivateAttr

from forebay.blackboard.artifact import Document, decode
from forebay.blackboard.keywords import BlackboardKeywords
from forebay.blackboard.marks import BoardMarks
from forebay.blackboard.store import KafkaBlackboardStore as PlainStore
from forebay.errors import BadRecordError, BlackboardError
from forebay.pool import Pool, Record


class FlockCodec:
    """Flock's classes, and its registry for the names of types."""

    consumption = ConsumptionRecord
    envelope = ArtifactEnvelope
    snapshot = AgentSnapshotRecord

    def document(self, artifact: Artifact) -> Document:
        document: Document = artifact.model_dump(mode="json")
        document["tags"] = sorted(document["tags"])
        try:
            full = type_registry.resolve_name(artifact.type)
        except RegistryError:  # unknown here, or several of that name
            full = artifact.type
        if full != artifact.type:
            document["canonical_type"] = full
        return document

    def artifact(self, document: Document) -> Artifact:
        return Artifact(**{name: value for name, value in document.items() if name != "canonical_type"})

    def resolve(self, name: str) -> str:
        return str(type_registry.resolve_name(name))

    def payload(self, cls: type[Any], document: Document) -> Any:
        return cls(**document["payload"])


class KafkaBlackboardStore(PlainStore, BlackboardStore):
    """Forebay's store, with Flock's artifacts. Options by keyword, as there."""

    def __init__(self, bootstrap_servers: str | None = None, **options: Unpack[BlackboardKeywords]) -> None:
        super().__init__(bootstrap_servers, codec=FlockCodec(), **options)
        self._arriving: dict[str, Document] = {}

    async def publish(self, artifact: Artifact) -> None:
        # What the log has just brought is in the log; a change of it is a new version, and is written.
        arrived = self._arriving.get(str(artifact.id)) if self._arriving else None
        if arrived is None or arrived != self._codec.document(artifact):
            await super().publish(artifact)

    @contextmanager
    def arriving(self, artifact: Artifact) -> Iterator[None]:
        """While Flock is handed an artifact that comes from the log: it publishes whatever it schedules."""
        self._arriving[str(artifact.id)] = self._codec.document(artifact)
        try:
            yield
        finally:
            del self._arriving[str(artifact.id)]


def _store_of(orchestrator: Any) -> KafkaBlackboardStore:
    if not isinstance(orchestrator.store, KafkaBlackboardStore):
        raise BlackboardError(
            f"the store is a {type(orchestrator.store).__name__}",
            remedy="Flock(store=KafkaBlackboardStore(…))",
        )
    return orchestrator.store


class DurableDeduplicationComponent(OrchestratorComponent):
    """An agent that is done with an artifact is not run for it again, though the program was restarted.

    For programs that schedule by themselves. Flock's own component forgets with its process.
    """

    priority: int = 15  # between the circuit breaker (10) and Flock's own deduplication (20)
    name: str = "durable-deduplication"
    _marks: BoardMarks = PrivateAttr()
    _marking: set[asyncio.Task[None]] = PrivateAttr(default_factory=set)

    async def on_initialize(self, orchestrator: Any) -> None:
        store = _store_of(orchestrator)
        await store.start()
        self._marks = store.marks()

    async def on_before_schedule(
        self, orchestrator: Any, artifact: Artifact, agent: Any, subscription: Any
    ) -> ScheduleDecision:
        done = await self._marks.has(str(artifact.id), agent.name, "", None)
        return ScheduleDecision.SKIP if done else ScheduleDecision.CONTINUE

    async def on_agent_scheduled(
        self, orchestrator: Any, agent: Any, artifacts: list[Artifact], task: asyncio.Task[Any]
    ) -> None:
        marking = asyncio.ensure_future(self._mark(orchestrator, agent.name, artifacts, task))
        self._marking.add(marking)
        marking.add_done_callback(self._marking.discard)

    async def on_orchestrator_idle(self, orchestrator: Any) -> None:
        await asyncio.gather(*self._marking)

    async def _mark(
        self, orchestrator: Any, agent: str, artifacts: list[Artifact], task: asyncio.Task[Any]
    ) -> None:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            result = {"result": "done"}
            await _store_of(orchestrator)._write(
                [self._marks.mark(str(each.id), agent, "", ("", -1, -1), result) for each in artifacts]
            )


class KafkaSchedulingComponent(OrchestratorComponent):
    """Agents run for what the log of artifacts brings, and for nothing else.

    What this program publishes goes to the log; the process of the group that reads that partition runs the agents.
    An artifact is done when its agents are, and only then its offset is committed; an agent that was done with it
    before is not run again. An agent that waits for several artifacts (joins, batches) collects them in the memory of
    one process: let what belongs together have one correlation id, so that one process gets all of it.
    """

    priority: int = 5  # before everything that counts or filters what is scheduled
    name: str = "kafka-scheduling"
    group_id: str = "flock.orchestrator"
    workers: int = 100
    pool: dict[str, Any] = Field(default_factory=dict)
    _pool: Pool | None = PrivateAttr(default=None)
    _marks: BoardMarks = PrivateAttr()
    _tasks: dict[str, dict[str, asyncio.Task[Any]]] = PrivateAttr(default_factory=dict)
    _leases: dict[str, Any] = PrivateAttr(default_factory=dict)

    async def on_initialize(self, orchestrator: Any) -> None:
        store = _store_of(orchestrator)
        await store.start()
        self._marks = store.marks()
        options = store.options
        pool = Pool(
            bootstrap_servers=options["bootstrap.servers"],
            topics=[store.topics.artifacts],
            group_id=self.group_id,
            isolation_level=options["isolation.level"],
            order="key",
            workers=self.workers,
            # Tried for minutes, which a broker that is away needs; then it is somebody else's turn.
            max_attempts=20,
            dead_letter_topic=store.topics.dlq(self.name),
            kafka=options.passed_through(),
            **self.pool,
        )

        async def handle(record: Record) -> None:
            await self._handle(orchestrator, store, record)

        await pool.start(handle)
        self._pool = pool

    async def on_shutdown(self, orchestrator: Any) -> None:
        if self._pool is not None:
            await self._pool.stop()

    async def on_artifact_published(self, orchestrator: Any, artifact: Artifact) -> Artifact | None:
        """What comes from the log is scheduled; what is published here will come from there."""
        return artifact if str(artifact.id) in self._tasks else None

    async def on_before_schedule(
        self, orchestrator: Any, artifact: Artifact, agent: Any, subscription: Any
    ) -> ScheduleDecision:
        id = str(artifact.id)
        done = await self._marks.has(id, agent.name, "", self._leases.get(id))
        return ScheduleDecision.SKIP if done else ScheduleDecision.CONTINUE

    async def on_agent_scheduled(
        self, orchestrator: Any, agent: Any, artifacts: list[Artifact], task: asyncio.Task[Any]
    ) -> None:
        for artifact in artifacts:
            if str(artifact.id) in self._tasks:
                self._tasks[str(artifact.id)][agent.name] = task

    async def _handle(self, orchestrator: Any, store: KafkaBlackboardStore, record: Record) -> None:
        try:
            artifact = store._codec.artifact(decode(record.raw))
        except Exception as error:  # whatever Flock's classes raise
            store.refusals.add(record.place, error)
            # The pool makes a dead letter of it, at once.
            raise BadRecordError(f"no artifact of Flock's: {error}", kind="NoArtifact") from None
        id = str(artifact.id)
        tasks: dict[str, asyncio.Task[Any]] = {}
        self._tasks[id], self._leases[id] = tasks, record._lease
        try:
            with store.arriving(artifact):
                await orchestrator.publish(artifact)
            if tasks:
                await asyncio.wait(tasks.values())
            done = [name for name, task in tasks.items() if not task.cancelled() and task.exception() is None]
            if done:
                await store._write(
                    [self._marks.mark(id, name, "", record.place, {"result": "done"}) for name in done]
                )
                for name in done:
                    self._marks.made(id, name, "", record._lease)
            for name, task in tasks.items():
                if name not in done:
                    _forget(orchestrator, id, name)
                    task.result()  # raises; the pool tries again
        finally:
            del self._tasks[id], self._leases[id]


def _forget(orchestrator: Any, artifact_id: str, agent: str) -> None:
    """Flock takes what it has begun for done: an agent that broke off could not be run again."""
    for component in orchestrator._components:
        if isinstance(component, DeduplicationComponent):
            component._processed.discard((artifact_id, agent))
