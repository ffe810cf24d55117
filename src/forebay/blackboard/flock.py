"""Flock on a Kafka blackboard (`pip install forebay[flock]`, Python 3.12+).

from flock import Flock
from forebay.blackboard.flock import KafkaBlackboardStore

flock = Flock(store=KafkaBlackboardStore(bootstrap_servers="localhost:9092"))
"""

from __future__ import annotations

from typing import Any

from flock.core.artifacts import Artifact
from flock.core.store import AgentSnapshotRecord, ArtifactEnvelope, BlackboardStore, ConsumptionRecord
from flock.registry import RegistryError, type_registry

from forebay.blackboard.artifact import Document
from forebay.blackboard.store import KafkaBlackboardStore as PlainStore


class FlockCodec:
    """Flock's classes, and its registry for the names of types."""

    consumption = ConsumptionRecord
    envelope = ArtifactEnvelope
    snapshot = AgentSnapshotRecord

    def document(self, artifact: Artifact) -> Document:
        document: Document = artifact.model_dump(mode="json")
        document["tags"] = sorted(document["tags"])
        try:
            full = type_registry.resolve_name(artifact.type)
        except RegistryError:  # unknown here, or several of that name
            full = artifact.type
        if full != artifact.type:
            document["canonical_type"] = full
        return document

    def artifact(self, document: Document) -> Artifact:
        return Artifact(**{name: value for name, value in document.items() if name != "canonical_type"})

    def resolve(self, name: str) -> str:
        return str(type_registry.resolve_name(name))

    def payload(self, cls: type[Any], document: Document) -> Any:
        return cls(**document["payload"])


class KafkaBlackboardStore(PlainStore, BlackboardStore):  # type: ignore[misc]
    """Forebay's store, with Flock's artifacts. Options by keyword, as there."""

    def __init__(self, bootstrap_servers: str | None = None, **options: Any) -> None:
        super().__init__(bootstrap_servers, codec=FlockCodec(), **options)
