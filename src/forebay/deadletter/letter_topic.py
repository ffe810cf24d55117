"""The dead-letter topic: made when the clause that names it is, if it is not there, and never a trap."""

from __future__ import annotations

import contextlib
import logging
import re
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from forebay.deadletter.policy import ErrorPolicy
from forebay.errors import ObjectExistsError, OptionConflictError, OptionValueError
from forebay.kafka.missing_acls import WRITE
from forebay.kafka.settings import address
from forebay.kafka.topics import ClusterTopics
from forebay.options import Options

log = logging.getLogger("forebay.deadletter")
T = TypeVar("T")

TIMEOUT_S = 15.0
HEADROOM = 1 << 20  # for a letter's headers, over what the value may take


def check_topic(policy: ErrorPolicy, options: Options) -> None:
    """A source that reads its own letters would never come to an end."""
    topic = policy.topic
    if topic is None or (policy.brokers and policy.brokers != address(options)):
        return
    pattern = options["topic.pattern"]
    own = topic == options["topic"] or topic in (options["topics"] or ())
    if own or (pattern and re.fullmatch(pattern, topic)):
        raise OptionConflictError(
            f"'dead_letter_topic' is '{topic}', which the source itself reads",
            option="dead_letter_topic",
            remedy="name another topic, one that the source's topics and pattern leave out",
        )


def ensure_topic(policy: ErrorPolicy, options: Options, partitions: int) -> bool:
    """Make the topic, with so many partitions, if it is not there. True if it was made.

    Blocks while it asks; UnreachableError, AuthError.
    """
    if policy.brokers:
        options = options.table.bind({**options.given, "bootstrap.servers": policy.brokers})
    topics = ClusterTopics(options, WRITE)
    try:
        return _ensure(topics, policy, partitions)
    finally:
        topics.close()


def _ensure(topics: ClusterTopics, policy: ErrorPolicy, partitions: int) -> bool:
    assert policy.topic is not None
    if not topics.absent([policy.topic]):
        _check_kept(topics.admin, policy.topic)
        return False
    config = {
        "cleanup.policy": "delete",  # compaction would keep one letter of each key
        "retention.ms": "-1",  # a letter waits for a person
        "max.message.bytes": str(policy.max_raw_bytes + HEADROOM),
    }
    try:
        topics.create(policy.topic, max(1, partitions), config=config)
    except ObjectExistsError:
        return False
    except OptionValueError as error:
        raise OptionValueError(
            f"'dead_letter_topic' cannot be '{policy.topic}': {error.message}", option="dead_letter_topic"
        ) from None
    return True


def _check_kept(admin: AdminClient, topic: str) -> None:
    """A topic that is compacted loses letters in silence."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = {}
    with contextlib.suppress(KafkaException):  # who may write letters need not be allowed to ask this
        found = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result(TIMEOUT_S)
    cleanup = found.get("cleanup.policy")
    if cleanup is not None and "compact" in cleanup.value:
        raise OptionConflictError(
            f"the dead-letter topic '{topic}' is compacted: of letters with the same key only the last would stay",
            option="dead_letter_topic",
            remedy="name another topic, or set its cleanup.policy to delete",
        )
