"""The dead-letter topic: made when the clause that names it is, if it is not there, and never a trap."""

from __future__ import annotations

import contextlib
import logging
import re
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from forebay.deadletter.policy import ErrorPolicy
from forebay.errors import OptionConflictError, OptionValueError, UnreachableError
from forebay.kafka.settings import CLIENT_LOG, address, connection_settings, translate
from forebay.options import Options

log = logging.getLogger("forebay.deadletter")
T = TypeVar("T")

TIMEOUT_S = 15.0
HEADROOM = 1 << 20  # for a letter's headers, over what the value may take
REPLICAS = -1  # as the cluster's default has it


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
    """Make the topic, with so many partitions, if it is not there. True if it was made."""
    assert policy.topic is not None
    settings = connection_settings(options)
    if policy.brokers:
        settings["bootstrap.servers"] = policy.brokers
    admin = AdminClient(settings, logger=CLIENT_LOG)
    where = settings["bootstrap.servers"]
    try:
        known = admin.list_topics(timeout=TIMEOUT_S).topics
        if policy.topic in known:
            _check_kept(admin, policy.topic)
            return False
        config = {
            "cleanup.policy": "delete",  # compaction would keep one letter of each key
            "retention.ms": "-1",  # a letter waits for a person
            "max.message.bytes": str(policy.max_raw_bytes + HEADROOM),
        }
        made = admin.create_topics(
            [NewTopic(policy.topic, max(1, partitions), REPLICAS, config=config)], request_timeout=TIMEOUT_S
        )
        made[policy.topic].result(TIMEOUT_S)
    except KafkaException as error:
        reason = error.args[0]
        if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if reason.code() in (KafkaError.TOPIC_EXCEPTION, KafkaError._INVALID_ARG):
            raise OptionValueError(
                f"'dead_letter_topic' cannot be '{policy.topic}': {reason.str()}", option="dead_letter_topic"
            ) from None
        found = translate(reason, options, f"making the dead-letter topic '{policy.topic}'")
        found.message = found.message.replace(address(options), where)
        raise found from None
    except TimeoutError:
        raise UnreachableError(
            f"Kafka at {where} did not answer while making the dead-letter topic '{policy.topic}'"
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
