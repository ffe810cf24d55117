"""What is on a blackboard: artifacts, who consumed them, which agents there are. No Flock needed.

Inside, an artifact is its document: a dict that is the same in the log, in the index and on the wire. Where a
program knows a type by a short name, `canonical_type` in it is the full one, which the index goes by. A `Codec` is how programs see documents; Forebay's own is here, Flock's in `forebay.blackboard.flock`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Protocol
from uuid import UUID, uuid4

from forebay.blackboard.shapes import (
    DocumentShape,
    mapping,
    moment,
    parse,
    parse_quickly,
    text,
    text_or_none,
    texts,
    uuid,
    whole,
)
from forebay.errors import ArtifactError

Document = dict[str, Any]

PUBLIC: Mapping[str, Any] = {"kind": "Public"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Artifact:
    """One thing that an agent has put on the blackboard. The same id again is its next version."""

    type: str
    payload: Mapping[str, Any]
    produced_by: str
    id: UUID = field(default_factory=uuid4)
    correlation_id: str | None = None
    partition_key: str | None = None
    tags: frozenset[str] = frozenset()
    visibility: Mapping[str, Any] = field(default_factory=lambda: dict(PUBLIC))
    created_at: datetime = field(default_factory=_now)
    version: int = 1


@dataclass(slots=True)
class ConsumptionRecord:
    """Which agent consumed an artifact, and when."""

    artifact_id: UUID
    consumer: str
    run_id: str | None = None
    correlation_id: str | None = None
    consumed_at: datetime = field(default_factory=_now)


@dataclass(slots=True)
class FilterConfig:
    """Which artifacts are meant; what is None or empty does not narrow. `tags` must all be there."""

    type_names: set[str] | None = None
    produced_by: set[str] | None = None
    correlation_id: str | None = None
    tags: set[str] | None = None
    visibility: set[str] | None = None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(slots=True)
class ArtifactEnvelope:
    """An artifact with those who consumed it."""

    artifact: Any
    consumptions: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class AgentSnapshotRecord:
    """What is known of an agent, kept with the artifacts."""

    agent_name: str
    description: str
    subscriptions: list[str]
    output_types: list[str]
    labels: list[str]
    first_seen: datetime
    last_seen: datetime
    signature: str


class Codec(Protocol):
    """How a program sees documents: which classes it gets, and what its type names mean."""

    consumption: type[Any]
    envelope: type[Any]
    snapshot: type[Any]

    def document(self, artifact: Any) -> Document: ...

    def artifact(self, document: Document) -> Any: ...

    def resolve(self, name: str) -> str:
        """The full name of a type, which a program may have shortened."""
        ...

    def payload(self, cls: type[Any], document: Document) -> Any: ...


class PlainCodec:
    """Forebay's own classes; type names mean what they say."""

    consumption = ConsumptionRecord
    envelope = ArtifactEnvelope
    snapshot = AgentSnapshotRecord

    def document(self, artifact: Artifact) -> Document:
        return {
            "id": str(artifact.id),
            "type": artifact.type,
            "payload": dict(artifact.payload),
            "produced_by": artifact.produced_by,
            "correlation_id": artifact.correlation_id,
            "partition_key": artifact.partition_key,
            "tags": sorted(artifact.tags),
            "visibility": dict(artifact.visibility),
            "created_at": iso(artifact.created_at),
            "version": artifact.version,
        }

    def artifact(self, document: Document) -> Artifact:
        fields = {name: value for name, value in document.items() if name != "canonical_type"}
        fields["id"] = UUID(fields["id"])
        fields["tags"] = frozenset(fields["tags"])
        fields["created_at"] = datetime.fromisoformat(fields["created_at"])
        return Artifact(**fields)

    def resolve(self, name: str) -> str:
        return name

    def payload(self, cls: type[Any], document: Document) -> Any:
        return cls(**document["payload"])


def encode(document: Mapping[str, Any]) -> bytes:
    """JSON, strict: a value that would come back as another one, or that nobody would take, is refused, not bent."""
    try:
        data = _ENCODER.encode(document).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ArtifactError(
            f"artifact {document.get('id')} of type '{document.get('type')}' cannot be written as JSON: {error}",
            remedy="payloads hold text, numbers, booleans, None, dates, UUIDs, enums, lists, sets and mappings",
        ) from None
    try:
        decode_fields(data)
    except ArtifactError as error:
        raise ArtifactError(
            f"artifact {document.get('id')} cannot be published, because nobody could read it: {error.message}"
        ) from None
    return data


def decode(data: bytes | None) -> Document:
    """Exact: an integer of any size is what it was. ArtifactError for whatever is no artifact."""
    return ARTIFACT.checked(parse(data or b""))


def decode_fields(data: bytes | None) -> Document:
    """Quickly, for whoever does not look at the payload: numbers in it may have lost digits."""
    return ARTIFACT.checked(parse_quickly(data or b""))


def _visibility(value: Any) -> bool:
    return mapping(value) and text(value.get("kind", ""))


ARTIFACT = DocumentShape(
    "artifact",
    {
        "id": uuid,
        "type": text,
        "payload": mapping,
        "produced_by": text,
        "correlation_id": text_or_none,
        "partition_key": text_or_none,
        "tags": texts,
        "visibility": _visibility,
        "created_at": moment,
        "version": whole,
    },
    defaults={
        "correlation_id": None,
        "partition_key": None,
        "tags": [],
        "visibility": PUBLIC,
        "version": 1,
    },
    optional={"canonical_type": text},
)


def _plain(value: Any) -> Any:
    """What JSON has no word for, in the words that everybody uses."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID | Decimal):
        return str(value)
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form")


def iso(moment: datetime) -> str:
    """In UTC; a time without a zone is taken for UTC."""
    return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)).isoformat()


def micros(moment: datetime | str) -> int:
    """Since 1970, for ordering: texts with and without fractions do not sort as times do."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


# Not as ASCII: so half of a surrogate pair, which is no text, does not pass.
_ENCODER = json.JSONEncoder(default=_plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
