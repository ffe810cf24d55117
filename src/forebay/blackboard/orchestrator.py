"""`Orchestrator`: agents that consume a blackboard, each artifact once, on the worker pool.

    orchestrator = Orchestrator(store)
    orchestrator.subscribe("writer", {"Order"}, write)      # write(artifact) → artifacts, one, or nothing
    await orchestrator.run()

An artifact is handed to every agent that wants it. When they are done, what they made, the marks that they are done,
and retries for those that failed are written, and only then does the group's offset pass. With
`transactions=True` all of that is one Kafka transaction: what is seen was done once. Without, a crash in between
repeats an agent's work at most for that artifact, and what it made is the same artifact again, by its id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal, Unpack
from uuid import UUID

from forebay.blackboard import telemetry
from forebay.blackboard.agent_keywords import AgentKeywords
from forebay.blackboard.agents import AgentHandler, AgentSubscription, output, types_of
from forebay.blackboard.artifact import ConsumptionRecord, decode
from forebay.blackboard.board_writer import HEADROOM, PARTITIONER, most_bytes
from forebay.blackboard.metrics import AgentCollector
from forebay.blackboard.options import OWN
from forebay.blackboard.retries import Job, RetryPolicy, agent_of, headers_of, job_of, letter_of
from forebay.blackboard.shapes import parse_quickly, text
from forebay.blackboard.stats import OrchestratorStats
from forebay.blackboard.store import KafkaBlackboardStore
from forebay.deadletter.letter_spans import letters_written
from forebay.deadletter.letter_topic import ensure_topic
from forebay.deadletter.policy import ErrorPolicy
from forebay.deadletter.stacktrace import logged_frames
from forebay.errors import ArtifactError, BlackboardError, OutputError
from forebay.kafka.producer import OutgoingRecord
from forebay.keywords import shown
from forebay.pool import Pool, Record
from forebay.pool.options import POOL
from forebay.telemetry import otlp

log = logging.getLogger("forebay.blackboard")

WORDS = 10_000  # of an exception: some quote all they were given
BEAR = 1_000_000_000  # failures of agents are dealt with here, and never halt the pool


class _StoppingError(Exception):
    """A retry that is not due yet is left for the next one who runs."""


class Orchestrator:
    """Hands artifacts of a blackboard to agents, each once: one consumer group over the log.

        agents = Orchestrator(store)
        agents.subscribe("pricing", {"Order"}, lambda order: Artifact("Priced", {"price": 3}, "pricing"))
        await agents.run()

    What an agent returns is published. One that raises is tried again as `retry` says; then the artifact becomes a dead
    letter of that agent. Run as many processes as there are partitions. Making it connects to nothing; `run()` and
    `start()` raise what `KafkaBlackboardStore.start()` and `forebay.Pool.start()` raise.
    """

    @shown(
        POOL,
        OWN,
        store="the blackboard",
        group_id="the consumer group that agents work in; <topic prefix>orchestrator unless given",
        workers="the most artifacts that are handled at a time",
        order="which artifacts may be handled at the same time, as for a pool",
        retry="how often an agent tries an artifact, and how long it waits in between",
    )
    def __init__(
        self,
        store: KafkaBlackboardStore,
        group_id: str | None = None,
        *,
        workers: int = 100,
        order: Literal["unordered", "key", "partition"] = "key",
        retry: RetryPolicy | None = None,
        **pool: Unpack[AgentKeywords],
    ) -> None:
        self.store = store
        self.group_id = group_id or f"{store.options['topic.prefix']}orchestrator"
        self.retry = retry or RetryPolicy()
        self.stats = OrchestratorStats()
        self._client: dict[str, Any] = dict(pool.get("kafka") or {})
        self._settings: dict[str, Any] = {"workers": workers, "order": order, **pool}
        self._settings.pop("kafka", None)
        self._subscriptions: dict[str, AgentSubscription] = {}
        self._stopping = asyncio.Event()
        self._pools: list[Pool] = []
        self._push: otlp.MetricsPush | None = None
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="forebay-agent")

    def __repr__(self) -> str:
        agents = ", ".join(self._subscriptions) or "no agents"
        state = "stopped" if self._stopping.is_set() else "running" if self._pools else "not started"
        return f"<forebay.Orchestrator {self.group_id}: {agents}, {state}>"

    def subscribe(
        self,
        agent: str,
        types: str | Collection[str],
        handler: AgentHandler,
        *,
        where: Callable[[Any], bool] | None = None,
    ) -> None:
        """An agent that handles artifacts of these types, or of all with "*", and of those the ones that `where` takes.

        What the handler returns is published: an artifact, several, or None. One subscription an agent: a
        `BlackboardError` for a second.
        """
        if agent in self._subscriptions:
            raise BlackboardError(
                f"agent '{agent}' is subscribed already", remedy="give it several types at once"
            )
        self._subscriptions[agent] = AgentSubscription(agent, types_of(types), handler, where)

    # -- life ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until `stop()`, SIGTERM, or an error that does not pass, which it raises."""
        await self.start()
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
            loop.add_signal_handler(signal.SIGTERM, ended.set)
        waiting = [
            asyncio.ensure_future(each) for each in (*(pool.wait() for pool in self._pools), ended.wait())
        ]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(signal.SIGTERM)
            for each in waiting:
                each.cancel()
            await self.stop()

    async def start(self) -> None:
        """Start the store, make topics of retries and dead letters, join the group; returns when agents are at work."""
        await self.store.start()
        topics = self.store.topics
        retries = await asyncio.to_thread(self._prepare)
        self._marks = self.store.marks()
        self._pools = [
            self._pool(self.group_id, [topics.artifacts], "agents"),
            # Retries wait for their time, and have workers of their own to do so: however many there are, that is no load.
            self._pool(f"{self.group_id}.retry", retries, "retries", heavy_lag=None),
        ]
        try:
            for pool in self._pools:
                await pool.start(self._handle)
            # The pools send what is theirs by themselves.
            self._push = otlp.push(lambda: AgentCollector(self.stats, [], self.store.collector()))
        except BaseException:
            await self.stop()  # what has begun must not go on by itself
            raise

    async def stop(self) -> None:
        """Agents that are at work finish; their results are written; then the group is left."""
        self._stopping.set()
        if self._push is not None:
            await asyncio.to_thread(self._push.close)
            self._push = None
        await asyncio.gather(*(pool.stop() for pool in self._pools))
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Those that read for the agents, for their `stats()`: first the log's, then those of retries."""
        return tuple(self._pools)

    def collector(self) -> AgentCollector:
        """For Prometheus, once it is started: agents' figures, and those of the pools, the group's lag among them."""
        return AgentCollector(self.stats, self._pools, self.store.collector())

    async def __aenter__(self) -> Orchestrator:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        """Raises why a pool has ended by itself, if one has."""
        await self.stop()
        if kind is None:
            for pool in self._pools:
                await pool.wait()

    def _prepare(self) -> list[str]:
        options, topics = self.store.options, self.store.topics
        for agent in self._subscriptions:
            policy = ErrorPolicy("dead_letter", topics.dlq(agent), max_raw_bytes=most_bytes(options))
            ensure_topic(policy, options, options["partitions"])
        return self.store.ensure_retry_topics(self.retry.topics)

    def _pool(self, group: str, topics: list[str], purpose: str, **more: Any) -> Pool:
        options = self.store.options
        client = {
            **options.passed_through(),
            # What agents make must go where `publish` would put it: one key, one partition.
            "partitioner": PARTITIONER,
            "message.max.bytes": most_bytes(options) + HEADROOM,
            **self._client,
        }
        pool = Pool(
            bootstrap_servers=options["bootstrap.servers"],
            topics=topics,
            group_id=group,
            isolation_level=options["isolation.level"],
            # What an agent does wrong is dealt with in _handle; what is left is a broker that is away.
            max_attempts=0,
            max_errors=BEAR,
            errors={_StoppingError: "halt"},
            kafka=client,
            **self._settings | more,
        )
        if not options["transactions"]:
            return pool
        return pool.transactional(
            f"{self.store.node}.{purpose}", timeout_ms=options["transaction.timeout.ms"]
        )

    # -- a record ------------------------------------------------------------------------------------

    async def _handle(self, record: Record) -> None:
        """All agents that want it, side by side; then everything that follows from that, at once."""
        try:
            document, job = decode(record.raw), job_of(record.headers, record.place)
            artifact = self.store._codec.artifact(document)
        except Exception as error:  # whatever the program's classes raise
            # What is raised below is tried again for ever: a record that is wrong must not get there.
            await self._deliver(record, self._refused(record, error))
            return
        await self._until_due(job)
        wanted = [
            each
            for each in self._subscriptions.values()
            if job.agent in (None, each.agent) and each.wants(document)
        ]
        rejected, times = getattr(record, "_rejected", (None, 0))
        if rejected is not None:
            # What they made was not written, nor that they are done; running them again would make the same.
            for each in wanted:
                self._marks.forget(document["id"], each.agent, job.replay)
            await self._fail_all(wanted, record, job, document, rejected, bare=times > 1)
            return
        results = await asyncio.gather(
            *(self._run_agent(each, record, job, document, artifact) for each in wanted)
        )
        try:
            await self._deliver(record, [one for _, records in results for one in records])
        except (ArtifactError, OutputError) as error:  # larger than a topic takes
            await self._fail_all(wanted, record, job, document, error)
            return
        for each, (done, _) in zip(wanted, results, strict=True):
            if done:
                self._marks.made(document["id"], each.agent, job.replay, record._lease)

    async def _fail_all(
        self,
        wanted: list[AgentSubscription],
        record: Record,
        job: Job,
        document: dict[str, Any],
        error: Exception,
        *,
        bare: bool = False,
    ) -> None:
        """What the agents made is refused, and whose it was is not known. Each is tried again by itself: whoever made it
        fails again. `bare`: what says so is refused as well, and letters without the artifact have to do.
        """
        failures: list[OutgoingRecord] = []
        for each in wanted:
            if not await self._marks.has(document["id"], each.agent, job.replay, record._lease):
                self.stats.of(each.agent, record.partition).errors += 1
                failures += self._failure(each.agent, record, job, error, bare=bare)
        try:
            await self._deliver(record, failures)
        except (ArtifactError, OutputError) as again:
            if bare:
                raise
            await self._fail_all(wanted, record, job, document, again, bare=True)

    def _refused(self, record: Record, error: Exception) -> list[OutgoingRecord]:
        """A record that is no artifact: counted, named, and a dead letter of each agent that it was for."""
        self.stats.refused += 1
        self.store.refusals.add(record.place, error)
        job = Job(None, 0, 0, "", record.place)
        return [self._letter(agent, record, job, error) for agent in self._addressed(record)]

    def _addressed(self, record: Record) -> list[str]:
        """The agents that would have been handed it, as far as that is known."""
        named = agent_of(record.headers)
        if named is not None:
            return [named] if named in self._subscriptions else []
        try:
            found = parse_quickly(record.raw or b"")
        except ArtifactError:
            found = None
        fields = found if isinstance(found, dict) else {}
        about = {
            name: fields[name] for name in ("type", "canonical_type", "produced_by") if text(fields.get(name))
        }
        return [each.agent for each in self._subscriptions.values() if each.wants(about)]

    async def _deliver(self, record: Record, outgoing: list[OutgoingRecord]) -> None:
        if self.store.options["transactions"]:
            record._unsend()
            for one in outgoing:
                record._send(one.topic, one.value, one.key, one.headers)
        else:
            await self._write_in_turn(outgoing)

    async def _write_in_turn(self, outgoing: list[OutgoingRecord]) -> None:
        """Marks after everything else is durable: a mark without its results would be results that are lost."""
        after = (self.store.topics.processed, self.store.topics.consumptions)
        for group in (
            [one for one in outgoing if one.topic not in after],
            [one for one in outgoing if one.topic in after],
        ):
            if group:
                await self.store._write(group)

    async def _until_due(self, job: Job) -> None:
        """Never for longer than a retry waits: the record may be anybody's."""
        wait_s = min(job.due_ms - time.time() * 1000, self.retry.backoff_max_ms) / 1000
        if wait_s > 0:
            try:
                await asyncio.wait_for(self._stopping.wait(), wait_s)
            except TimeoutError:
                return
            raise _StoppingError("the orchestrator stops")

    async def _run_agent(
        self, who: AgentSubscription, record: Record, job: Job, document: dict[str, Any], artifact: Any
    ) -> tuple[bool, list[OutgoingRecord]]:
        """Whether it is done, and what is to be written: what it made and its mark, or a retry, or a dead letter."""
        if await self._marks.has(document["id"], who.agent, job.replay, record._lease):
            self.stats.of(who.agent, record.partition).duplicates += 1
            return False, []
        counted, began = self.stats.of(who.agent, record.partition), time.monotonic()
        try:
            if not who.passes(artifact):
                return False, []
            with telemetry.handling(
                who.agent, self.group_id, record.topic, record.partition, record.offset, document, record.headers,
                self.store.transaction,
            ) as span:  # fmt: skip
                made = await who.handle(artifact, self._threads)
                outputs = [
                    output(self.store._codec.document(each), document, who.agent, number, job.replay)
                    for number, each in enumerate(made)
                ]
                written = [one for each in outputs for one in self.store.records_of(each, span)]
        except Exception as error:
            counted.failed(time.monotonic() - began)
            return False, self._failure(who.agent, record, job, error)
        counted.done(time.monotonic() - began)
        result = {"result": "done", "outputs": [each["id"] for each in outputs]}
        consumed = ConsumptionRecord(
            UUID(document["id"]), who.agent, job.replay or None, document["correlation_id"]
        )
        return True, [
            *written,
            self._marks.mark(document["id"], who.agent, job.replay, record.place, result),
            self.store.consumption(consumed),
        ]

    def _failure(
        self, agent: str, record: Record, job: Job, error: Exception, *, bare: bool = False
    ) -> list[OutgoingRecord]:
        now_ms = int(time.time() * 1000)
        value = record.raw or b""
        # What is larger than artifacts are could not be written once more; of a letter a part is enough.
        fits = not bare and len(value) <= most_bytes(self.store.options)
        if fits and job.failed + 1 < self.retry.attempts:
            again = job.next(agent, now_ms + self.retry.wait_ms(job.failed + 1))
            self.stats.of(agent, record.partition).retries += 1
            log.warning(
                "event=agent_failed agent=%s artifact=%s-%d-%d attempt=%d due_ms=%d error=%r",
                agent, *job.origin, job.failed + 1, again.due_ms, error,
            )  # fmt: skip
            headers = headers_of(again, record.headers, f"{type(error).__name__}: {error}"[:WORDS])
            return [OutgoingRecord(self.store.topics.retry(again.failed), record.key, value, headers)]
        return [self._letter(agent, record, job, error, bare=bare)]

    def _letter(
        self, agent: str, record: Record, job: Job, error: Exception, *, bare: bool = False
    ) -> OutgoingRecord:
        self.stats.of(agent, record.partition).dead += 1
        log.error(
            "event=agent_gave_up agent=%s artifact=%s-%d-%d attempts=%d topic=%s error=%r",
            agent, *job.origin, job.failed + 1, self.store.topics.dlq(agent), error,
            exc_info=logged_frames(error, log),
        )  # fmt: skip
        now_ms = int(time.time() * 1000)
        value = record.raw or b""
        letter = letter_of(job, agent, record.key, value, record.headers, error, now_ms, record.timestamp)
        most = 0 if bare else most_bytes(self.store.options)
        letter = replace(letter, message=letter.message[:WORDS]).cut(most)
        topic = self.store.topics.dlq(agent)
        letters_written(
            topic, [letter], time.time_ns()
        )  # as it is counted: one that is made again is there again
        return OutgoingRecord(topic, *letter.to_kafka())
