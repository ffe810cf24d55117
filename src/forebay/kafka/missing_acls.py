"""What a broker does not let a client do, and the `kafka-acls` line that allows it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError

from forebay.errors import MissingAclError

READ, WRITE, CREATE, DESCRIBE = "Read", "Write", "Create", "Describe"
DELETE, DESCRIBE_CONFIGS = "Delete", "DescribeConfigs"
TOPIC, GROUP, TRANSACTIONAL_ID, CLUSTER = "topic", "group", "transactional-id", "cluster"
KINDS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: GROUP,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TRANSACTIONAL_ID,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: CLUSTER,
}
"""Of which kind of resource a broker's refusal speaks."""

SEVERAL = 3  # names in a message; the line has all of them


@dataclass(frozen=True)
class Acl:
    """What somebody must be allowed: an operation on a resource. The cluster has no name.

    A `prefixed` one is for all names that begin so: of resources whose names are made anew each time.
    """

    operation: str
    resource: str
    name: str = ""
    prefixed: bool = False


def on_topics(operation: str, names: Iterable[str]) -> tuple[Acl, ...]:
    """The same operation on several topics. Who may read or write a topic may also describe it."""
    return tuple(Acl(operation, TOPIC, name) for name in dict.fromkeys(names))


def on_group(name: str) -> Acl:
    """To join a group, and to read and commit its offsets."""
    return Acl(READ, GROUP, name)


def on_transactions(id: str, *, prefixed: bool = False) -> Acl:
    """To write in transactions of this id."""
    return Acl(WRITE, TRANSACTIONAL_ID, id, prefixed)


def missing(
    error: KafkaError, settings: Mapping[str, Any], acls: Sequence[Acl], doing: str
) -> MissingAclError | None:
    """The error that names what is missing; None where the broker speaks of something else.

    `acls` are all that what was done needs. The broker says of which kind the missing one is.
    """
    kind = KINDS.get(error.code())
    if kind is None:
        return None
    found = [acl for acl in acls if acl.resource == kind]
    old = ""
    if kind == CLUSTER and not found:
        # To write without duplicates, a client must be allowed to write to a topic, whichever; brokers before 2.8 ask
        # for an operation of its own.
        found = [acl for acl in acls if acl.resource == TOPIC and acl.operation == WRITE]
        old = f" (brokers before 2.8 ask for this, too: {line(settings, [Acl('IdempotentWrite', CLUSTER)])})"
    who, where = principal(settings), settings["bootstrap.servers"]
    said = f"{error.name()} ({error.code()}): {error.str()}"
    if not found:
        return MissingAclError(
            f"{who} is not allowed this on {where}, while {doing}: {said}",
            remedy=f"allow {who} what is missing, with kafka-acls",
        )
    return MissingAclError(
        f"{who} may not {_words(found)} on {where}, while {doing}: {said}",
        remedy=f"an administrator allows it: {' && '.join(lines(settings, found))}{old}",
    )


def lines(settings: Mapping[str, Any], acls: Iterable[Acl]) -> list[str]:
    """One for each kind of resource and operation, with all names."""
    grouped: dict[tuple[str, str, bool], list[Acl]] = {}
    for acl in acls:
        grouped.setdefault((acl.operation, acl.resource, acl.prefixed), []).append(acl)
    return [line(settings, some) for some in grouped.values()]


def line(settings: Mapping[str, Any], acls: Sequence[Acl]) -> str:
    """The `kafka-acls` line that allows an operation on some resources of one kind."""
    words = ["kafka-acls", "--bootstrap-server", str(settings["bootstrap.servers"]), "--add"]
    words += ["--allow-principal", principal(settings), "--operation", acls[0].operation]
    for acl in acls:
        words += [f"--{acl.resource}", *([acl.name] if acl.name else ())]
    if acls[0].prefixed:
        words += ["--resource-pattern-type", "prefixed"]
    return shlex.join(words)


def principal(settings: Mapping[str, Any]) -> str:
    """Who the broker takes a client for: its user name, or the name in its certificate."""
    protocol = str(settings.get("security.protocol", "PLAINTEXT")).upper()
    if "SASL" in protocol:
        # Kerberos: the part before the first slash or at sign.
        name = settings.get("sasl.username") or str(settings.get("sasl.kerberos.principal", ""))
        short = name if settings.get("sasl.username") else name.partition("@")[0].partition("/")[0]
        return f"User:{short or '<who you log in as>'}"
    if protocol == "SSL" and (subject := _subject(settings)):
        return f"User:{subject}"
    return "User:ANONYMOUS"


def _subject(settings: Mapping[str, Any]) -> str:
    """The name in the client's certificate, as Kafka writes it."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        if location := settings.get("ssl.keystore.location"):
            password = str(settings.get("ssl.keystore.password", "")).encode() or None
            held = pkcs12.load_pkcs12(Path(location).read_bytes(), password).cert
            return held.certificate.subject.rfc4514_string() if held else ""
        location, pem = settings.get("ssl.certificate.location"), settings.get("ssl.certificate.pem")
        if not location and not pem:
            return ""
        data = Path(location).read_bytes() if location else str(pem).encode()
        return x509.load_pem_x509_certificate(data).subject.rfc4514_string()
    except (OSError, ValueError):
        return "<the name in your certificate>"


_VERBS = {READ: "read", WRITE: "write to", CREATE: "create", DESCRIBE: "describe", DELETE: "delete"}
_NAMES = {TOPIC: "topic", GROUP: "group", TRANSACTIONAL_ID: "transactional id", CLUSTER: "the cluster"}


def _words(acls: Sequence[Acl]) -> str:
    operation, resource = acls[0].operation, acls[0].resource
    verb = "use" if resource in (GROUP, TRANSACTIONAL_ID) else _VERBS.get(operation, operation)
    names = [f"'{acl.name}'" for acl in acls if acl.operation == operation and acl.name]
    more = f" and {len(names) - SEVERAL} more" if len(names) > SEVERAL else ""
    return " ".join([verb, _NAMES[resource], ", ".join(names[:SEVERAL]) + more]).rstrip()
