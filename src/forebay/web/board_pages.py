"""A blackboard: artifacts by type, what became of one, the timeline of a correlation, and how the agents fare."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from forebay.blackboard.artifact import PlainCodec
from forebay.deadletter.groups import pattern_of
from forebay.errors import BadRequestError, ForebayError
from forebay.kafka.admin import Cluster
from forebay.kafka.offsets import Range
from forebay.kafka.options import KAFKA
from forebay.kafka.reader import read_ranges
from forebay.kafka.settings import consumer_settings
from forebay.options import Options
from forebay.web import board_timeline
from forebay.web.board_timeline import AgentFailure, concerning, letter_of, retry_of
from forebay.web.model import AgentRow, ArtifactRow, BoardPage
from forebay.web.shown import inert

MOST = 500
SCANNED = 20_000  # records of the log that are looked at for the history of an artifact
RETRIES_SCANNED = 5_000
LETTERS_SCANNED = 1_000  # of each agent
KEPT_S = 5.0


class Board:
    """Reads a blackboard. Its store is started when it is first looked at, and follows the log from then on."""

    def __init__(self, options: Mapping[str, Any], *, hide_payloads: bool) -> None:
        """`options` are keywords of `KafkaBlackboardStore`; nothing is created by it."""
        from forebay.blackboard import KafkaBlackboardStore

        self._store = KafkaBlackboardStore(**options)
        self._codec = PlainCodec()
        self._hide = hide_payloads
        self._lock = threading.Lock()
        self._agents: tuple[float, list[AgentRow]] | None = None
        self._failed: tuple[float, list[AgentFailure]] | None = None

    @property
    def reached(self) -> dict[str, str]:
        """How its brokers are reached, as options of a Kafka source."""
        given = self._store.options.given
        return {
            key: text for key, text in given.items() if key == "bootstrap.servers" or key.startswith("kafka.")
        }

    def letter_topics(self) -> list[str]:
        """The topics with letters of its agents that are there now."""
        prefix = self._store.topics.dlq_prefix
        cluster = Cluster(self._options("-"))
        try:
            return [name for name in cluster.topics() if name.startswith(prefix)]
        finally:
            cluster.close()

    def _options(self, topic: str) -> Options:
        more = {"topic": topic, "group.id": "forebay-ui", "connect.timeout.ms": "5000"}
        return KAFKA.bind({**self.reached, **more})

    def close(self) -> None:
        with self._lock:
            asyncio.run(self._store.close())

    def page(self, type: str | None, correlation: str | None, artifact: str | None, limit: int) -> BoardPage:
        where = str(self._store.options["bootstrap.servers"])
        prefix = str(self._store.options["topic.prefix"])
        with self._lock:
            try:
                return asyncio.run(
                    self._page(type, correlation, artifact, max(1, min(limit, MOST)), prefix, where)
                )
            except BadRequestError:
                raise
            except ForebayError as error:
                return BoardPage(prefix, where, {}, (), (), error=inert(error.message))

    async def _page(
        self,
        type: str | None,
        correlation: str | None,
        artifact: str | None,
        limit: int,
        prefix: str,
        where: str,
    ) -> BoardPage:
        from forebay.blackboard import FilterConfig

        store = self._store
        summary = await store.summarize_artifacts(consistency="local")
        timeline: list[Mapping[str, Any]] = []
        if artifact is not None:
            wanted = _uuid(artifact)
            shown = await asyncio.to_thread(self._versions, wanted)
            envelopes = await self._envelope(wanted)
            troubles = await asyncio.to_thread(self._failures)
            timeline = board_timeline.of_artifact(
                shown, envelopes, concerning(troubles, {str(wanted)}, None, self._words)
            )
        else:
            filters = FilterConfig({type} if type else set(), None, correlation)
            _, total = await store.query_artifacts(filters, limit=1, consistency="local")
            found, _ = await store.query_artifacts(
                filters, limit=limit, offset=max(0, total - limit), embed_meta=correlation is not None,
                consistency="local",
            )  # fmt: skip
            if correlation is not None:
                troubles = await asyncio.to_thread(self._failures)
                ids = {str(each.artifact.id) for each in found}
                timeline = board_timeline.of_correlation(
                    found, concerning(troubles, ids, correlation, self._words)
                )
                found = [each.artifact for each in found]
            shown = [self._row(each) for each in reversed(found)]
        agents = await self._agent_rows(summary)
        return BoardPage(
            prefix,
            where,
            {inert(str(kind)): count for kind, count in summary["by_type"].items()},
            shown,
            agents,
            timeline,
        )

    async def _envelope(self, wanted: UUID) -> list[Any]:
        """An artifact with those who consumed it. The index finds it by what it is and when it was made."""
        from forebay.blackboard import FilterConfig

        found = await self._store.get(wanted, consistency="local")
        if found is None:
            return []
        alike = FilterConfig(
            {found.type}, {found.produced_by}, None, start=found.created_at, end=found.created_at
        )
        page, _ = await self._store.query_artifacts(alike, limit=MOST, embed_meta=True, consistency="local")
        return [each for each in page if each.artifact.id == wanted]

    def _words(self, message: str) -> str:
        return pattern_of(message) if self._hide else message

    def _failures(self) -> list[AgentFailure]:
        """What the newest records of the retry topics and of the agents' letters say, at most some seconds old."""
        if self._failed is not None and time.monotonic() - self._failed[0] < KEPT_S:
            return self._failed[1]
        cluster = Cluster(self._options("-"))
        try:
            names = list(cluster.topics())
        finally:
            cluster.close()
        names_of = self._store.topics
        found: list[AgentFailure | None] = []
        for name in names:
            if name.startswith(names_of.retry_prefix):
                found += map(retry_of, self._newest(name, RETRIES_SCANNED))
            elif name.startswith(names_of.dlq_prefix):
                found += map(letter_of, self._newest(name, LETTERS_SCANNED))
        self._failed = time.monotonic(), [each for each in found if each is not None]
        return self._failed[1]

    def _row(self, artifact: Any) -> ArtifactRow:
        return ArtifactRow(
            str(artifact.id),
            inert(artifact.type),
            inert(artifact.produced_by),
            None if artifact.correlation_id is None else inert(str(artifact.correlation_id)),
            artifact.version,
            int(artifact.created_at.timestamp() * 1000),
            sorted(inert(tag) for tag in artifact.tags),
            None if self._hide else inert(json.dumps(artifact.payload, default=str, ensure_ascii=False)),
        )

    def _versions(self, wanted: UUID) -> list[ArtifactRow]:
        """Every version of an artifact that the newest part of the log has, the newest first."""
        rows = []
        for message in self._newest(self._store.topics.artifacts, SCANNED):
            value = message.value()
            if value is None or str(wanted).encode() not in value:
                continue
            try:
                made = self._codec.artifact(json.loads(value))
            except Exception:  # noqa: S112 - nothing that the blackboard holds: its index says so
                continue
            if made.id == wanted:
                rows.append(self._row(made))
        return rows[::-1]

    def _newest(self, topic: str, most: int) -> list[Any]:
        options = self._options(topic)
        cluster = Cluster(options)
        try:
            if cluster.absent([topic]):
                return []
            count = cluster.describe([topic])[topic].partitions
            keys = [(topic, number) for number in range(count)]
            low, high = cluster.earliest(keys), cluster.latest(keys)
        finally:
            cluster.close()
        each = max(1, most // max(1, count))
        ranges = [Range(*key, max(low[key], high[key] - each), high[key]) for key in keys]
        chunks = read_ranges(ranges, options, consumer_settings(options), lambda gone: None, chunk=1000)
        return sorted((m for chunk in chunks for m in chunk), key=lambda m: m.timestamp()[1])

    async def _agent_rows(self, summary: Mapping[str, Any]) -> list[AgentRow]:
        if self._agents is not None and time.monotonic() - self._agents[0] < KEPT_S:
            return self._agents[1]
        names = {each.agent_name for each in await self._store.load_agent_snapshots(consistency="local")}
        retries, letters = await asyncio.to_thread(self._troubles)
        lag = await asyncio.to_thread(self._lag)
        rows = []
        for name in sorted(names | set(retries) | set(letters) | set(summary["by_producer"])):
            history = await self._store.agent_history_summary(name, consistency="local")
            rows.append(
                AgentRow(
                    inert(name), history["consumed"]["total"], history["produced"]["total"],
                    retries.get(name, 0), letters.get(name, 0), lag,
                )
            )  # fmt: skip
        self._agents = time.monotonic(), rows
        return rows

    def _lag(self) -> int | None:
        """How many artifacts the group of the agents has not passed: they share one. None where it has no offsets, which is so
        where agents were given a group of another name."""
        from forebay.kafka.lag import lag_of

        topic = self._store.topics.artifacts
        group = f"{self._store.options['topic.prefix']}orchestrator"
        cluster = Cluster(KAFKA.bind({**self._options(topic).given, "group.id": group}))
        try:
            rows = lag_of(cluster, cluster.describe([topic]))
        finally:
            cluster.close()
        return sum(each.lag for each in rows) if any(each.committed is not None for each in rows) else None

    def _troubles(self) -> tuple[dict[str, int], dict[str, int]]:
        """By agent: records of the retry topics, and letters."""
        from forebay.blackboard.retries import agent_of

        prefix = self._store.topics.dlq_prefix
        cluster = Cluster(self._options("-"))
        try:
            topics = cluster.topics()
            keys = [
                (name, number)
                for name, count in topics.items()
                if name.startswith(prefix)
                for number in range(count)
            ]
            low, high = cluster.earliest(keys), cluster.latest(keys)
        finally:
            cluster.close()
        letters: dict[str, int] = {}
        for key in keys:
            agent = key[0].removeprefix(prefix)
            letters[agent] = letters.get(agent, 0) + high[key] - low[key]
        retries: dict[str, int] = {}
        for name in topics:
            if name.startswith(self._store.topics.retry_prefix):
                for message in self._newest(name, RETRIES_SCANNED):
                    agent = agent_of(message.headers() or ()) or "?"
                    retries[agent] = retries.get(agent, 0) + 1
        return retries, letters


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise BadRequestError(f"'{inert(text)}' is no id of an artifact", remedy="ids are UUIDs") from None
