"""The topics of a blackboard: their names, and how they are made and checked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from forebay.backoff import with_backoff
from forebay.errors import BlackboardTopicError, UnknownTopicError, UnreachableError
from forebay.kafka.admin import Cluster
from forebay.kafka.missing_acls import CREATE, on_topics
from forebay.kafka.settings import address, translate
from forebay.options import Options

TIMEOUT_S = 15.0
TOMBSTONE_MS = 86_400_000  # how long a tombstone is kept for those who are away; see `index.py`

_LOG = {"cleanup.policy": "delete"}
_NEWEST = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(TOMBSTONE_MS),
    "min.cleanable.dirty.ratio": "0.1",  # a start reads all of it: the cleaner it is, the sooner
}
_BY_AGE = "compact,delete"


@dataclass(frozen=True)
class BoardTopics:
    """The names."""

    artifacts: str
    by_id: str
    processed: str
    consumptions: str
    agents: str
    dlq_prefix: str
    retry_prefix: str

    @classmethod
    def of(cls, options: Options) -> BoardTopics:
        prefix = options["topic.prefix"]
        return cls(
            options["topic.artifacts"] or prefix + "artifacts",
            options["topic.by_id"] or prefix + "by_id",
            options["topic.processed"] or prefix + "processed",
            options["topic.consumptions"] or prefix + "consumptions",
            options["topic.agents"] or prefix + "agents",
            options["topic.dlq.prefix"] or prefix + "dlq.",
            options["topic.retry.prefix"] or prefix + "retry.",
        )

    def dlq(self, agent: str) -> str:
        return self.dlq_prefix + agent

    def retry(self, number: int) -> str:
        """Counts from 1."""
        return f"{self.retry_prefix}{number}"

    @property
    def marks(self) -> tuple[str, str]:
        """Those whose keys are ever new: what is old goes, or they would only grow."""
        return self.processed, self.consumptions

    @property
    def indexed(self) -> tuple[str, ...]:
        """Those that the local index is made from."""
        return self.by_id, self.processed, self.consumptions, self.agents


def ensure_topics(options: Options, topics: BoardTopics) -> None:
    """The blackboard's topics are there and kept as they must be, or this says what is wrong."""
    settings = {topics.artifacts: {**_LOG, "retention.ms": str(options["retention.ms"])}}
    settings |= dict.fromkeys(topics.indexed, _NEWEST)
    if (kept_ms := options["marks.retention.ms"]) >= 0:
        by_age = {**_NEWEST, "cleanup.policy": _BY_AGE, "retention.ms": str(kept_ms)}
        settings |= dict.fromkeys(topics.marks, by_age)
    partitions = {topics.agents: 1}
    ensure(options, settings, partitions)


def ensure_retry_topics(options: Options, topics: BoardTopics, attempts: int, most_bytes: int) -> list[str]:
    """What waits in them must stay until it is tried, however long nobody tries."""
    names = [topics.retry(number) for number in range(1, attempts + 1)]
    config = {**_LOG, "retention.ms": "-1", "max.message.bytes": str(most_bytes)}
    ensure(options, dict.fromkeys(names, config), {})
    return names


def ensure(options: Options, wanted: Mapping[str, Mapping[str, str]], partitions: Mapping[str, int]) -> None:
    """Make those of the wanted topics that are not there; check how the others are cleaned."""
    cluster = Cluster(options)
    doing = "making the topics of the blackboard"
    try:
        with_backoff(
            lambda: _ensure(cluster, options, wanted, partitions),
            timeout_s=options["connect.timeout.ms"] / 1000,
        )
    except KafkaException as error:
        raise translate(error.args[0], options, doing) from None
    except TimeoutError:
        raise UnreachableError(f"Kafka at {address(options)} did not answer while {doing}") from None
    finally:
        cluster.close()


def _ensure(
    cluster: Cluster, options: Options, wanted: Mapping[str, Mapping[str, str]], partitions: Mapping[str, int]
) -> None:
    known = cluster.topics()
    # One that we may not see is not among them: to make it would fail for a reason that is none.
    missing = cluster.absent(name for name in wanted if name not in known)
    if missing and not options["create.topics"]:
        raise UnknownTopicError(
            f"there is no topic '{missing[0]}' on {address(options)}",
            remedy="make it, or let 'create.topics' be true",
        )
    _check(cluster.admin, options, {name: wanted[name]["cleanup.policy"] for name in wanted if name in known})
    made = (
        cluster.admin.create_topics(
            [
                NewTopic(
                    name,
                    partitions.get(name, options["partitions"]),
                    options["replication.factor"],
                    config=dict(wanted[name]),
                )
                for name in missing
            ],
            request_timeout=TIMEOUT_S,
        )
        if missing
        else {}
    )
    for future in made.values():
        try:
            future.result(TIMEOUT_S)
        except KafkaException as error:
            # Somebody else of this blackboard was quicker.
            reason = error.args[0]
            if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                doing = "making the topics of the blackboard"
                raise translate(reason, options, doing, *on_topics(CREATE, missing)) from None
    _await_known(cluster, missing)


def _await_known(cluster: Cluster, names: list[str]) -> None:
    """The broker answers before all of it knows of a new topic: for a moment it may say that there is none."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            cluster.describe(names)
            return
        except UnknownTopicError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _check(admin: AdminClient, options: Options, policies: Mapping[str, str]) -> None:
    """A log that is compacted forgets; an index that is not, forgets after a week. What may be forgotten may be kept, too."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in policies]
    if not resources:
        return
    for resource, future in admin.describe_configs(resources, request_timeout=TIMEOUT_S).items():
        with contextlib.suppress(KafkaException):  # who may read and write need not be allowed to ask this
            found = future.result(TIMEOUT_S)["cleanup.policy"].value
            wanted = policies[resource.name]
            kept_longer = (found, wanted) == ("compact", _BY_AGE)
            if set(found.split(",")) != set(wanted.split(",")) and not kept_longer:
                raise BlackboardTopicError(
                    f"topic '{resource.name}' on {address(options)} has cleanup.policy = {found}, and the blackboard "
                    f"needs {wanted}",
                    remedy=f"kafka-configs --alter --topic {resource.name} --add-config "
                    f"cleanup.policy=[{wanted}], or name another topic",
                )
