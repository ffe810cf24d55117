"""From a source's options to the settings of the Kafka client library."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from forebay import backoff, patience
from forebay.errors import (
    AuthError,
    ConnectorError,
    ForebayError,
    OptionValueError,
    UnknownTopicError,
    UnreachableError,
)
from forebay.kafka import missing_acls
from forebay.kafka.callbacks import called_back
from forebay.kafka.missing_acls import Acl
from forebay.options import Options

if TYPE_CHECKING:
    from forebay_native import BrokerError

# The library logs to stderr by itself unless it is given a logger; a person should see our words, once.
_client_log = logging.getLogger("forebay.kafka.client")
_client_log.addHandler(logging.NullHandler())
_client_log.propagate = False


class ClientLog:
    """As much of a logger as the library calls."""

    log = staticmethod(called_back(_client_log.log))


CLIENT_LOG = ClientLog()

_AUTH_CODES = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
REFUSALS = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)
# Who wants a certificate of ours says so after the connection is made: to the library that is a connection that broke.
_ALERT = re.compile(
    r"alert (bad certificate|certificate (required|unknown|expired|revoked)|unknown ca|access denied)"
)


def is_refusal(error: KafkaError) -> bool:
    """A connection that is refused and not only away: to whoever waits for records that is silence, and no event."""
    return error.code() in REFUSALS or (
        error.code() == KafkaError._TRANSPORT and _ALERT.search(error.str()) is not None
    )


AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
}
"""No broker answers, and nothing says why: the others are a broker's own words."""

_UNREACHABLE_CODES = AWAY | {
    KafkaError._NOENT,  # "no leaders found": what a request for offsets says while the broker is away
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,  # a topic that was just made, or whose leader has just changed
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}

TRANSIENT = _UNREACHABLE_CODES | {
    KafkaError.UNKNOWN,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
}
"""What a reader waits for, as long as it waits for anything."""


def connection_settings(options: Options) -> dict[str, Any]:
    """What every client of this source shares: addresses, security, backoff."""
    settings: dict[str, Any] = {
        "bootstrap.servers": options["bootstrap.servers"],
        "client.id": "forebay",
        "reconnect.backoff.ms": backoff.MIN_MS,
        "reconnect.backoff.max.ms": backoff.MAX_MS,
    }
    return settings | options.passed_through()


def reader_settings(options: Options, group: str) -> dict[str, Any]:
    """For a consumer that is assigned what it reads: the library wants a group, which is neither joined nor moved."""
    settings = connection_settings(options) | {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # an offset that is gone must surface, never be jumped over
        "isolation.level": options["isolation.level"],
        "enable.partition.eof": True,  # the only word on how far a partition goes past its last record
    }
    # The default of 1000 stalls a reader that has caught up with its queue.
    settings.setdefault("fetch.queue.backoff.ms", 5)
    return settings


def consumer_settings(options: Options, **more: Any) -> dict[str, Any]:
    """For a consumer that is assigned what to read: it never joins the group and never commits by itself."""
    settings = reader_settings(options, options["group.id"])
    settings["partition.assignment.strategy"] = options["partition.assignment.strategy"]
    for key in (
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "fetch.min.bytes",
        "fetch.max.bytes",
        "fetch.wait.max.ms",
        "max.partition.fetch.bytes",
    ):
        settings.setdefault(key, options[key])
    return settings | more


def native_settings(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same, as native code takes them."""
    return sorted(
        (key, str(value).lower() if isinstance(value, bool) else str(value))
        for key, value in settings.items()
    )


def check_settings(options: Options) -> None:
    """Let the library itself refuse a wrong setting now, while the statement is at hand."""
    try:
        Consumer(consumer_settings(options), logger=CLIENT_LOG).close()
    except (KafkaException, TypeError, ValueError, AttributeError) as error:
        # The others: a setting that the Python client takes as a function, such as error_cb.
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        key = next(
            (name for name in options.given if name.startswith("kafka.") and f'"{name[6:]}"' in text), ""
        )
        raise OptionValueError(f"the Kafka client refuses its settings: {text}", option=key) from None


def address(options: Options) -> str:
    """Where the brokers are, for messages."""
    return str(options["bootstrap.servers"])


def patience_s(options: Options) -> float:
    """How long a start tries to reach the brokers: as the statement says, else no longer than a person waits."""
    seconds: float = options["connect.timeout.ms"] / 1000
    return seconds if "connect.timeout.ms" in options.given else patience.at_most(seconds)


def named(error: KafkaError) -> str:
    """Its words; those of a broker with the error's name and number, unless they are there."""
    code, text = error.code(), error.str()
    return text if code < 0 or f"({code})" in text else f"{error.name()} ({code}): {text}"


def from_native(error: BrokerError) -> KafkaError:
    """What the native client raises, as the library has it: `translate` makes the same of both."""
    return KafkaError(KafkaError._MSG_TIMED_OUT if error.may_pass else error.code, error.message)


def translate(error: KafkaError, options: Options, doing: str, *acls: Acl) -> ForebayError:
    """The library's error as one of ours, naming the address and what was going on.

    `acls` are what it takes to be allowed that; unless given, to read the topics of the options in their group.
    """
    where = address(options)
    text = f"{doing}: {named(error)}"
    if error.code() in missing_acls.KINDS:
        settings = connection_settings(options)
        refused = missing_acls.missing(error, settings, acls or reading(options), doing)
        assert refused is not None
        return refused
    if error.code() not in _AUTH_CODES and is_refusal(error):
        return AuthError(f"no secure connection to {where} while {text}")
    if error.code() in _AUTH_CODES:
        return AuthError(f"{where} refused the credentials while {text}")
    if error.code() in _UNREACHABLE_CODES:
        return UnreachableError(f"cannot reach Kafka at {where} while {text}")
    if error.code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION,  # a name that no topic can have
    ):
        return UnknownTopicError(f"{where}, {text}")
    return ConnectorError(f"Kafka at {where}, {text}")


def reading(options: Options, *topics: str) -> list[Acl]:
    """What it takes to read these topics in the group of the options; unless given, those of the options."""
    topics = topics or ((options["topic"],) if options.get("topic") else options.get("topics") or ())
    found = list(missing_acls.on_topics(missing_acls.READ, topics))
    return [*found, missing_acls.on_group(options["group.id"])] if options.get("group.id") else found
