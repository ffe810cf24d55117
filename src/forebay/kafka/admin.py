"""What a cluster holds: topics, partitions, first and last offsets, the group's offsets.

One `Cluster` serves one source. Its calls are single requests; `forebay.backoff` is how a caller waits
for a broker that is away.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    DescribeClusterResult,
    OffsetSpec,
    ResourceType,
)

from forebay import patience
from forebay.errors import AuthError, CommitError, ForebayError, UnknownTopicError, UnreachableError
from forebay.kafka import causes
from forebay.kafka.offsets import Partition
from forebay.kafka.probe import LIMIT_S, Probe
from forebay.kafka.settings import (
    AWAY,
    CLIENT_LOG,
    REFUSALS,
    address,
    connection_settings,
    consumer_settings,
    named,
    patience_s,
    translate,
)
from forebay.options import Options

T = TypeVar("T")
REQUEST_TIMEOUT_S = 10.0  # long enough for a broker in a long GC pause, short enough to try again soon
DOWN_S = 1.0  # brokers that refuse connections for this long are away; a name may have a second address
GLANCE_S = 0.05  # how often a request that waits looks whether the connection was refused


@dataclass(frozen=True)
class Topic:
    """A topic as the cluster describes it now; `id` changes when it is deleted and made again."""

    name: str
    id: str
    partitions: int


def partitions_of(topics: Mapping[str, Topic]) -> list[Partition]:
    """Every partition of these topics."""
    return [(topic.name, number) for topic in topics.values() for number in range(topic.partitions)]


class Cluster:
    """A connection to the brokers of one source. Cheap to make; connects on the first call."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._refused = ""
        self._heard = causes.Heard()
        self._probe: Probe | None = None
        self._settings = connection_settings(options) | {"error_cb": self._on_error}
        self._admin: AdminClient | None = None
        self._consumer: Consumer | None = None

    @property
    def _timeout_s(self) -> float:
        # A start that may take a second must not wait ten for its first answer.
        return max(1.0, min(REQUEST_TIMEOUT_S, patience_s(self._options)))

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._settings, logger=CLIENT_LOG)
        return self._admin

    def close(self) -> None:
        # Closing waits for other threads' requests; whoever comes meanwhile must not be given what is being closed.
        consumer, self._consumer, self._admin = self._consumer, None, None
        if consumer is not None:
            consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        # Failed authentication reaches requests only as a time-out; its reason comes here.
        if error.code() in REFUSALS:
            self._refused = error.str()
        elif error.code() in (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._ALL_BROKERS_DOWN):
            self._heard.note(error.str())

    def _call(self, doing: str, request: Callable[[], T]) -> T:
        try:
            return request()
        except KafkaException as error:
            raise self._failed(error.args[0], doing) from None

    def _failed(self, error: KafkaError, doing: str) -> ForebayError:
        """What a request has failed with, as one of our errors, with its cause."""
        self.admin.poll(0)
        self._raise_if_refused(doing)
        found = translate(error, self._options, doing)
        if not isinstance(found, UnreachableError) or error.code() not in AWAY:
            return found
        return self._away(doing, named(error))

    def _answer(self, doing: str, future: Future[T]) -> T:
        """Wait for an answer; what the broker refuses is one of our errors."""
        return self._call(doing, lambda: self._wait(doing, future))

    def _wait(self, doing: str, future: Future[T]) -> T:
        """Wait for an answer, but not for one that cannot come: the library itself would try on and on."""
        admin = self._admin  # held until the answer is there: with the client go its requests, unanswered
        began, self._probe = time.monotonic(), None
        self._heard.clear()
        with patience.waiting():
            while True:
                try:
                    return future.result(GLANCE_S)
                except TimeoutError:
                    closed = admin is not self._admin
                    if admin is None or closed:
                        raise UnreachableError(
                            f"the connection to Kafka at {address(self._options)} was closed while {doing}"
                        ) from None
                    admin.poll(0)
                    self._raise_if_refused(doing)
                    self._look_around(doing, time.monotonic() - began)

    def _look_around(self, doing: str, waited_s: float) -> None:
        """Raise if the answer cannot come: brokers that are away, or who answers there is none of ours."""
        patience.say(f"reaching brokers at {address(self._options)}")
        if waited_s <= DOWN_S:
            return
        if self._probe is None:
            self._probe = causes.probe(self._options, self._settings, self._heard)
        if self._probe.done and (error := self._mismatch(doing)) is not None:
            raise error
        if self._heard.down:
            raise self._away(doing, "no answer")

    def _mismatch(self, doing: str) -> ForebayError | None:
        assert self._probe is not None
        return causes.certain(self._probe.found(), self._settings, address(self._options), doing)

    def _away(self, doing: str, otherwise: str) -> ForebayError:
        """Why nobody answers. The addresses themselves are asked, which takes a moment unless nobody is there."""
        if self._probe is None:
            self._probe = causes.probe(self._options, self._settings, self._heard)
        found = self._probe.found(LIMIT_S)
        if (error := self._mismatch(doing)) is not None:
            return error
        return causes.unreachable(found, self._heard, self._options, doing, otherwise)

    def _raise_if_refused(self, doing: str) -> None:
        if self._refused:
            reason, self._refused = self._refused, ""
            found = causes.probe(self._options, self._settings, causes.Heard()).found(LIMIT_S)
            where = address(self._options)
            raise (
                causes.certain(found, self._settings, where, doing)
                or causes.refused(found, reason, where, doing)
            ) from None

    def topics(self) -> dict[str, int]:
        """All topics with their number of partitions, the cluster's own left out."""
        self.brokers()  # listing blocks for its whole time-out, even when the connection is refused
        metadata = self._call("listing topics", lambda: self.admin.list_topics(timeout=self._timeout_s))
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if not name.startswith("__") and topic.error is None
        }

    def brokers(self) -> int:
        return len(self._described().nodes)

    def id(self) -> str:
        """What tells it from every other cluster."""
        return str(self._described().cluster_id)

    def _described(self) -> DescribeClusterResult:
        doing = "asking for metadata"
        future = self._call(doing, lambda: self.admin.describe_cluster(request_timeout=self._timeout_s))
        return self._answer(doing, future)

    def matching(self) -> list[str]:
        """The names of the topics that the source reads, as of now."""
        if self._options["topic"] is not None:
            return [str(self._options["topic"])]
        if self._options["topics"] is not None:
            return list(dict.fromkeys(self._options["topics"]))
        pattern = re.compile(self._options["topic.pattern"])
        return sorted(name for name in self.topics() if pattern.fullmatch(name))

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics of these names; one that does not exist is an error that lists near names."""
        wanted = list(names)
        if not wanted:
            return {}
        futures = self._call(
            "describing topics",
            lambda: self.admin.describe_topics(TopicCollection(wanted), request_timeout=self._timeout_s),
        )
        found = {}
        for name, future in futures.items():
            try:
                description = self._answer(f"describing topic '{name}'", future)
            except UnknownTopicError:
                raise self._unknown(name) from None
            found[name] = Topic(name, str(description.topic_id), len(description.partitions))
        return found

    def cleanup_policy(self, topic: str) -> str:
        """As the topic has it; "compact,delete", which says the least, where the broker does not let us ask."""
        doing, resource = (
            f"asking for the settings of topic '{topic}'",
            ConfigResource(ResourceType.TOPIC, topic),
        )
        futures = self._call(
            doing, lambda: self.admin.describe_configs([resource], request_timeout=self._timeout_s)
        )
        try:
            return str(self._answer(doing, futures[resource])["cleanup.policy"].value)
        except AuthError:
            return "compact,delete"

    def _unknown(self, name: str) -> UnknownTopicError:
        known, where = list(self.topics()), address(self._options)
        near = difflib.get_close_matches(name, known, 3, 0.5)
        if near:
            remedy = "did you mean " + " or ".join(f"'{topic}'" for topic in near) + "?"
        else:
            remedy = f"topics there: {', '.join(sorted(known)[:10]) or 'none at all'}"
        remedy += f"; to make it: forebay topic create {name} --brokers {where}"
        return UnknownTopicError(f"there is no topic '{name}' on {where}", remedy=remedy)

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self._offsets(partitions, OffsetSpec.earliest())

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Where each partition ends for a reader of this isolation level (the last stable offset)."""
        return self._offsets(partitions, OffsetSpec.latest())

    def at_timestamp(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """The first offset at or after a time; the partition's end where there is none."""
        wanted = list(partitions)
        found = self._offsets(wanted, OffsetSpec.for_timestamp(timestamp_ms))
        if any(offset < 0 for offset in found.values()):
            ends = self.latest(wanted)
            found = {key: ends[key] if offset < 0 else offset for key, offset in found.items()}
        return found

    def _offsets(self, partitions: Iterable[Partition], spec: OffsetSpec) -> dict[Partition, int]:
        wanted = {TopicPartition(topic, number): spec for topic, number in partitions}
        if not wanted:
            return {}
        committed = self._options["isolation.level"] == "read_committed"
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        doing = "asking for offsets"
        futures = self._call(
            doing,
            lambda: self.admin.list_offsets(wanted, isolation_level=level, request_timeout=self._timeout_s),
        )
        found = {}
        for tp, future in futures.items():
            try:
                found[tp.topic, tp.partition] = self._answer(doing, future).offset
            except UnknownTopicError:
                raise self._unknown(tp.topic) from None
        return found

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The group's offsets; partitions without one are left out."""
        wanted = [TopicPartition(topic, number) for topic, number in partitions]
        if not wanted:
            return {}
        # Not the admin client's list_consumer_group_offsets: while the coordinator is still loading, that
        # one crashes the process (librdkafka 2.16.1 looks for a consumer group in an admin client).
        doing = f"asking for the offsets of group '{self._options['group.id']}'"
        answer = self._call(doing, lambda: self._group.committed(wanted, timeout=self._timeout_s))
        for tp in answer:
            if tp.error is not None:
                raise self._failed(tp.error, doing)
        return {(tp.topic, tp.partition): tp.offset for tp in answer if tp.offset >= 0}

    @property
    def _group(self) -> Consumer:
        """A consumer that never joins its group, for reading and writing the group's offsets."""
        if self._consumer is None:
            # It has no session; but this is how long a commit waits for a coordinator that is away.
            patience = {"session.timeout.ms": 10_000, "max.poll.interval.ms": 300_000}
            self._consumer = Consumer(consumer_settings(self._options, **patience), logger=CLIENT_LOG)
        return self._consumer

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Write the group's offsets; a consumer that never joins may, as long as nobody else has joined."""
        positions = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        group = self._options["group.id"]
        try:
            answer = self._group.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            raise CommitError(
                f"the offsets of group '{group}' were not committed: {error.args[0].str()}"
            ) from None
        failed = [tp for tp in answer or () if tp.error is not None]
        if failed:
            raise CommitError(
                f"the offsets of group '{group}' were not committed for {failed[0].topic}-{failed[0].partition}:"
                f" {failed[0].error.str()}"
            )
