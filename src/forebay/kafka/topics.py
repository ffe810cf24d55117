"""Topics made, listed, described and deleted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, ConfigSource, NewTopic, ResourceType

from forebay.errors import ForebayError, ObjectExistsError, OptionValueError, UnreachableError
from forebay.kafka.admin import Cluster
from forebay.kafka.missing_acls import CREATE, DELETE, DESCRIBE, DESCRIBE_CONFIGS, on_topics
from forebay.kafka.settings import address, named
from forebay.options import Options

LEADER_S = 10.0  # how long a new topic may take until it can be written to
_WRONG = {
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_REPLICA_ASSIGNMENT,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REQUEST,
    KafkaError.POLICY_VIOLATION,
    KafkaError._INVALID_ARG,
}
_DEFAULTS = {ConfigSource.DEFAULT_CONFIG.value, ConfigSource.STATIC_BROKER_CONFIG.value}


@dataclass(frozen=True)
class TopicSummary:
    """A topic as `forebay topic ls` shows it. `records` counts gaps in the log as records."""

    topic: str
    partitions: int
    replicas: int
    records: int


@dataclass(frozen=True)
class PartitionDetail:
    """One partition: who leads it, who has copies of it, which offsets it holds."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int
    end: int
    records: int


@dataclass(frozen=True)
class TopicDetail:
    """All about a topic; of its settings, those that are not the broker's defaults."""

    topic: str
    id: str
    partitions: Sequence[PartitionDetail]
    config: Mapping[str, str] = field(default_factory=dict)


class ClusterTopics(Cluster):
    """The topics of a cluster."""

    def __init__(self, options: Options, operation: str = DESCRIBE) -> None:
        super().__init__(options, operation)

    def create(
        self,
        name: str,
        partitions: int = 1,
        replicas: int | None = None,
        config: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        """Make a topic, and return when it can be written to. With `dry_run` the broker only checks."""
        doing = f"making topic '{name}'"
        # -1 is the broker's own default for the number of copies.
        new = NewTopic(name, partitions, replicas or -1, config=dict(config or {}))
        try:
            futures = self.admin.create_topics(
                [new],
                request_timeout=self._timeout_s,
                operation_timeout=self._timeout_s,
                validate_only=dry_run,
            )
            self._wait(doing, futures[name])
        except KafkaException as error:
            raise self._not_made(error.args[0], name, doing) from None
        if not dry_run:
            self._await_leaders(name, partitions)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics with all that they hold."""
        self.describe(names)
        doing = f"deleting {', '.join(names)}"
        futures = self._call(
            doing,
            lambda: self.admin.delete_topics(
                list(names), request_timeout=self._timeout_s, operation_timeout=self._timeout_s
            ),
        )
        for name, future in futures.items():
            self._answer(doing, future, *on_topics(DELETE, [name]))

    def summaries(self, *, internal: bool = False) -> list[TopicSummary]:
        """All topics by name; the cluster's own, which begin with `__`, only if asked for."""
        self.brokers()  # listing blocks for its whole time-out, even when the connection is refused
        found = self._call("listing topics", lambda: self.admin.list_topics(timeout=self._timeout_s)).topics
        shown = {
            name: topic
            for name, topic in sorted(found.items())
            if topic.error is None and (internal or not name.startswith("__"))
        }
        keys = [(name, number) for name, topic in shown.items() for number in topic.partitions]
        starts, ends = self.earliest(keys), self.latest(keys)
        return [
            TopicSummary(
                name,
                len(topic.partitions),
                max((len(each.replicas) for each in topic.partitions.values()), default=0),
                sum(ends[name, number] - starts[name, number] for number in topic.partitions),
            )
            for name, topic in shown.items()
        ]

    def detail(self, name: str) -> TopicDetail:
        known = self.describe([name])[name]
        doing = f"describing topic '{name}'"
        futures = self._call(
            doing,
            lambda: self.admin.describe_topics(TopicCollection([name]), request_timeout=self._timeout_s),
        )
        described = self._answer(doing, futures[name], *self._topic(name))
        keys = [(name, each.id) for each in described.partitions]
        starts, ends = self.earliest(keys), self.latest(keys)
        partitions = [
            PartitionDetail(
                each.id,
                each.leader.id if each.leader is not None else None,
                tuple(node.id for node in each.replicas),
                tuple(node.id for node in each.isr),
                starts[name, each.id],
                ends[name, each.id],
                ends[name, each.id] - starts[name, each.id],
            )
            for each in described.partitions
        ]
        return TopicDetail(name, known.id, partitions, self._config(name))

    def _config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        doing = f"asking for the settings of topic '{name}'"
        futures = self._call(
            doing, lambda: self.admin.describe_configs([resource], request_timeout=self._timeout_s)
        )
        entries = self._answer(doing, futures[resource], *on_topics(DESCRIBE_CONFIGS, [name]))
        return {
            key: entry.value
            for key, entry in sorted(entries.items())
            if entry.source not in _DEFAULTS and not entry.is_sensitive and entry.value is not None
        }

    def _not_made(self, error: KafkaError, name: str, doing: str) -> ForebayError:
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return ObjectExistsError(
                f"topic '{name}' exists already on {address(self._options)}",
                remedy=f"forebay topic describe {name} shows it; --if-not-exists leaves it as it is",
            )
        if error.code() in _WRONG:
            return OptionValueError(f"topic '{name}' cannot be made: {named(error)}", option="topic")
        return self._failed(error, doing, *on_topics(CREATE, [name]))

    def _await_leaders(self, name: str, partitions: int) -> None:
        """The broker says that a topic is made before each of its partitions has a leader."""
        deadline = time.monotonic() + LEADER_S
        while time.monotonic() < deadline:
            found = self._call(
                f"waiting for topic '{name}'", lambda: self.admin.list_topics(name, timeout=self._timeout_s)
            ).topics[name]
            if found.error is not None and found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return  # who may make a topic need not be allowed to look at it
            if len(found.partitions) == partitions and all(p.leader >= 0 for p in found.partitions.values()):
                return
            time.sleep(0.02)
        raise UnreachableError(f"topic '{name}' was made, but has no leaders after {LEADER_S:.0f} s")


def settings_of(pairs: Iterable[str], option: str) -> dict[str, str]:
    """`name=value` pairs of a command line."""
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise OptionValueError(
                f"{option} takes name=value, and not {pair!r}",
                option=option,
                remedy=f"{option} retention.ms=-1",
            )
        found[name.strip()] = value
    return found
