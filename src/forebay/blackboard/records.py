"""Kafka records of the blackboard: an artifact's key and headers (CloudEvents, Kafka binding), and what marks,
consumptions and agents look like.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import quote

from forebay.blackboard.artifact import Document
from forebay.blackboard.shapes import DocumentShape, moment, text, text_or_none, texts, uuid, whole

MARK = DocumentShape(
    "mark",
    {"at_ms": whole, "topic": text, "partition": whole, "offset": whole, "result": text},
    optional={"outputs": texts},
)
CONSUMPTION = DocumentShape(
    "consumption",
    {
        "artifact_id": uuid,
        "consumer": text,
        "run_id": text_or_none,
        "correlation_id": text_or_none,
        "consumed_at": moment,
    },
)
AGENT = DocumentShape(
    "agent",
    {
        "agent_name": text,
        "description": text_or_none,
        "subscriptions": texts,
        "output_types": texts,
        "labels": texts,
        "first_seen": moment,
        "last_seen": moment,
        "signature": text,
    },
)

Headers = list[tuple[str, bytes]]


def partition_key(document: Mapping[str, object]) -> bytes:
    """`partition_key`, else `correlation_id`, else a hash of type and id: what belongs together stays together."""
    for name in ("partition_key", "correlation_id"):
        if document[name]:
            return str(document[name]).encode()
    text = f"{document['type']}{document['id']}".encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode()


def cloud_event(document: Document) -> Headers:
    """The headers of CloudEvents 1.0 in binary mode; the value is the whole artifact."""
    headers = [
        ("ce_specversion", "1.0"),
        ("ce_id", document["id"]),
        ("ce_type", document["type"]),
        ("ce_source", "/agents/" + quote(document["produced_by"], safe="")),
        ("ce_time", document["created_at"]),
        ("content-type", "application/json"),
    ]
    if document["correlation_id"]:
        headers.append(("ce_correlationid", document["correlation_id"]))
    if document["partition_key"]:
        headers.append(("ce_partitionkey", document["partition_key"]))
    return [(name, value.encode()) for name, value in headers]


def processed_key(artifact_id: str, agent: str, replay: str = "") -> bytes:
    """Of the mark that an agent is done with an artifact; a replay is a new job, with a mark of its own."""
    return f"{artifact_id}:{agent}{'#' + replay if replay else ''}".encode()


def consumption_key(form: Mapping[str, object]) -> bytes:
    """Written twice, a consumption is one."""
    return f"{form['artifact_id']}:{form['consumer']}:{form['run_id'] or ''}".encode()
