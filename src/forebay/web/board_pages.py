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
from forebay.errors import BadRequestError, ForebayError
from forebay.kafka.admin import Cluster
from forebay.kafka.offsets import Range
from forebay.kafka.options import KAFKA
from forebay.kafka.reader import read_ranges
from forebay.kafka.settings import consumer_settings
from forebay.options import Options
from forebay.web.model import AgentRow, ArtifactRow, BoardPage
from forebay.web.shown import inert

MOST = 500
SCANNED = 20_000  # records of the log that are looked at for the history of an artifact
RETRIES_SCANNED = 5_000
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
            shown = await asyncio.to_thread(self._versions, _uuid(artifact))
        else:
            filters = FilterConfig({type} if type else set(), None, correlation)
            _, total = await store.query_artifacts(filters, limit=1, consistency="local")
            found, _ = await store.query_artifacts(
                filters, limit=limit, offset=max(0, total - limit), embed_meta=correlation is not None,
                consistency="local",
            )  # fmt: skip
            if correlation is not None:
                timeline = _timeline(found)
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
        rows = []
        for name in sorted(names | set(retries) | set(letters) | set(summary["by_producer"])):
            history = await self._store.agent_history_summary(name, consistency="local")
            rows.append(
                AgentRow(
                    inert(name), history["consumed"]["total"], history["produced"]["total"],
                    retries.get(name, 0), letters.get(name, 0),
                )
            )  # fmt: skip
        self._agents = time.monotonic(), rows
        return rows

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


def _timeline(found: Any) -> list[Mapping[str, Any]]:
    """What happened in a correlation, in order: published by whom, consumed by whom."""
    rows: list[Mapping[str, Any]] = []
    for each in found:
        artifact = each.artifact
        about = {"artifact": str(artifact.id), "type": inert(artifact.type)}
        at = int(artifact.created_at.timestamp() * 1000)
        rows.append({"at_ms": at, "what": "published", "who": inert(artifact.produced_by), **about})
        for used in each.consumptions:
            at = int(used.consumed_at.timestamp() * 1000)
            rows.append({"at_ms": at, "what": "consumed", "who": inert(used.consumer), **about})
    return sorted(rows, key=lambda row: row["at_ms"])


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise BadRequestError(f"'{inert(text)}' is no id of an artifact", remedy="ids are UUIDs") from None
