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
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    DescribeClusterResult,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from forebay import patience
from forebay.errors import (
    AuthError,
    CommitError,
    ForebayError,
    MissingAclError,
    UnknownTopicError,
    UnreachableError,
)
from forebay.kafka import causes, missing_acls
from forebay.kafka.consumers import commit_offsets, committed_offsets
from forebay.kafka.missing_acls import DESCRIBE_CONFIGS, READ, TOPIC, Acl, on_group, on_topics
from forebay.kafka.partitions import PartitionOffset, TopicPartition
from forebay.kafka.probe import LIMIT_S, Probe
from forebay.kafka.settings import (
    AWAY,
    CLIENT_LOG,
    address,
    connection_settings,
    consumer_settings,
    is_refusal,
    named,
    patience_s,
    translate,
)
from forebay.options import Options

T = TypeVar("T")
REQUEST_TIMEOUT_S = 10.0  # long enough for a broker in a long GC pause, short enough to try again soon
DOWN_S = 1.0  # brokers that refuse connections for this long are away; a name may have a second address
REFRESH_S = 0.5  # for a look at the cluster's brokers
GROUPS_TOPIC = "__consumer_offsets"  # every cluster has it
GLANCE_S = 0.05  # how often a request that waits looks whether the connection was refused


@dataclass(frozen=True)
class Topic:
    """A topic as the cluster describes it now; `id` changes when it is deleted and made again."""

    name: str
    id: str
    partitions: int


def partitions_of(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """Every partition of these topics."""
    return [(topic.name, number) for topic in topics.values() for number in range(topic.partitions)]


class Cluster:
    """A connection to the brokers of one source. Cheap to make; connects on the first call.

    `operation` is what its owner wants with the topics: who may read or write one may also look at it.
    """

    def __init__(self, options: Options, operation: str = READ) -> None:
        self._options = options
        self._operation = operation
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
        if is_refusal(error):
            self._refused = error.str()
        elif error.code() in (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._ALL_BROKERS_DOWN):
            self._heard.note(error.str())

    def _call(self, doing: str, request: Callable[[], T], *acls: Acl) -> T:
        try:
            return request()
        except KafkaException as error:
            raise self._failed(error.args[0], doing, *acls) from None

    def _failed(self, error: KafkaError, doing: str, *acls: Acl) -> ForebayError:
        """What a request has failed with, as one of our errors, with its cause. `acls` are what it needs."""
        self.admin.poll(0)
        self._raise_if_refused(doing)
        found = translate(error, self._options, doing, *acls)
        if not isinstance(found, UnreachableError) or error.code() not in AWAY:
            return found
        if error.code() == KafkaError._TIMED_OUT:
            self._look_at_brokers()
        return self._away(doing, named(error))

    def _look_at_brokers(self) -> None:
        """A broker that was frozen names no controller at first. The library would believe that for minutes, and ask nobody."""
        with suppress(KafkaException):
            self.admin.list_topics(GROUPS_TOPIC, timeout=REFRESH_S)

    def _answer(self, doing: str, future: Future[T], *acls: Acl) -> T:
        """Wait for an answer; what the broker refuses is one of our errors."""
        return self._call(doing, lambda: self._wait(doing, future), *acls)

    def _topic(self, name: str) -> tuple[Acl, ...]:
        return on_topics(self._operation, [name])

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
        found = {}
        for name, description in self._descriptions(list(names)).items():
            if description is None:
                raise self._unknown(name)
            found[name] = Topic(name, str(description.topic_id), len(description.partitions))
        return found

    def existing(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of them that there are."""
        return {
            name: Topic(name, str(found.topic_id), len(found.partitions))
            for name, found in self._descriptions(list(names)).items()
            if found is not None
        }

    def absent(self, names: Iterable[str]) -> list[str]:
        """Those of which there is no topic; MissingAclError where we may not know."""
        return [name for name, found in self._descriptions(list(names)).items() if found is None]

    def _descriptions(self, names: list[str]) -> dict[str, TopicDescription | None]:
        """None of a topic that does not exist. One error for all that we may not see."""
        if not names:
            return {}
        futures = self._call(
            "describing topics",
            lambda: self.admin.describe_topics(TopicCollection(names), request_timeout=self._timeout_s),
        )
        found: dict[str, TopicDescription | None] = {}
        hidden = []
        for name, future in futures.items():
            try:
                found[name] = self._answer(f"describing topic '{name}'", future, *self._topic(name))
            except UnknownTopicError:
                found[name] = None
            except MissingAclError as error:
                hidden.append(error)
        if len(hidden) > 1:
            acls = on_topics(self._operation, [name for name in names if name not in found])
            refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
            raise translate(refusal, self._options, "describing topics", *acls)
        if hidden:
            raise hidden[0]
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
            acl = Acl(DESCRIBE_CONFIGS, TOPIC, topic)
            return str(self._answer(doing, futures[resource], acl)["cleanup.policy"].value)
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

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(partitions, OffsetSpec.earliest())

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each partition ends for a reader of this isolation level (the last stable offset)."""
        return self._offsets(partitions, OffsetSpec.latest())

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each partition's log ends, open transactions included (the high watermark)."""
        return self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def at_timestamp(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """The first offset at or after a time; the partition's end where there is none."""
        wanted = list(partitions)
        found = self._offsets(wanted, OffsetSpec.for_timestamp(timestamp_ms))
        if any(offset < 0 for offset in found.values()):
            ends = self.latest(wanted)
            found = {key: ends[key] if offset < 0 else offset for key, offset in found.items()}
        return found

    def _offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel | None = None,
    ) -> dict[TopicPartition, int]:
        wanted = {PartitionOffset(topic, number): spec for topic, number in partitions}
        if not wanted:
            return {}
        committed = self._options["isolation.level"] == "read_committed"
        level = isolation or (IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED)
        doing = "asking for offsets"
        futures = self._call(
            doing,
            lambda: self.admin.list_offsets(wanted, isolation_level=level, request_timeout=self._timeout_s),
        )
        found = {}
        for tp, future in futures.items():
            try:
                offset = self._answer(doing, future, *self._topic(tp.topic)).offset
            except UnknownTopicError:
                raise self._unknown(tp.topic) from None
            if offset == OFFSET_INVALID:
                # librdkafka's answer, without an error, where the broker gave none in time (seen on a silent link).
                where = f"{tp.topic}-{tp.partition} at {address(self._options)}"
                raise UnreachableError(f"no answer while {doing} of {where}")
            found[tp.topic, tp.partition] = offset
        return found

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's offsets; partitions without one are left out."""
        wanted = [PartitionOffset(topic, number) for topic, number in partitions]
        if not wanted:
            return {}
        # Not the admin client's list_consumer_group_offsets: while the coordinator is still loading, that
        # one crashes the process (librdkafka 2.16.1 looks for a consumer group in an admin client).
        doing = f"asking for the offsets of group '{self._options['group.id']}'"
        acls = self._group_acls({tp.topic for tp in wanted})
        answer = self._call(doing, lambda: committed_offsets(self._group, wanted, self._timeout_s), *acls)
        for tp in answer:
            if tp.error is not None:
                raise self._failed(tp.error, doing, *acls)
        return {(tp.topic, tp.partition): tp.offset for tp in answer if tp.offset >= 0}

    def _group_acls(self, topics: Iterable[str]) -> tuple[Acl, ...]:
        return (*on_topics(READ, sorted(topics)), on_group(self._options["group.id"]))

    def members(self, group: str) -> list[tuple[str, str]]:
        """The client id and the host of each member of a group; none of a group that is not there."""
        doing = f"asking who is in group '{group}'"
        futures = self._call(
            doing, lambda: self.admin.describe_consumer_groups([group], request_timeout=self._timeout_s)
        )
        found = self._answer(doing, futures[group])
        return sorted((str(each.client_id), str(each.host)) for each in found.members)

    @property
    def _group(self) -> Consumer:
        """A consumer that never joins its group, for reading and writing the group's offsets."""
        if self._consumer is None:
            # It has no session; but this is how long a commit waits for a coordinator that is away.
            patience = {"session.timeout.ms": 10_000, "max.poll.interval.ms": 300_000}
            self._consumer = Consumer(consumer_settings(self._options, **patience), logger=CLIENT_LOG)
        return self._consumer

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the group's offsets; a consumer that never joins may, as long as nobody else has joined."""
        positions = [PartitionOffset(topic, number, offset) for (topic, number), offset in offsets.items()]
        group = self._options["group.id"]
        failed = commit_offsets(self._group, positions)
        if failed is not None:
            place, error = failed
            where = f" for {place}" if place else ""
            acls = self._group_acls({topic for topic, _ in offsets})
            doing = f"committing the offsets of group '{group}'"
            if (refused := missing_acls.missing(error, self._settings, acls, doing)) is not None:
                raise refused
            raise CommitError(
                f"the offsets of group '{group}' were not committed{where}: {error.str()}",
                not_a_member=error.code() == KafkaError.UNKNOWN_MEMBER_ID,
            )
