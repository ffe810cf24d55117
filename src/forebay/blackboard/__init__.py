"""A blackboard for agents on Kafka: artifacts that are published, found, consumed once and replayed."""

from forebay.blackboard.artifact import (
    AgentSnapshotRecord,
    Artifact,
    ArtifactEnvelope,
    ConsumptionRecord,
    FilterConfig,
)
from forebay.blackboard.store import KafkaBlackboardStore

__all__ = [
    "AgentSnapshotRecord",
    "Artifact",
    "ArtifactEnvelope",
    "ConsumptionRecord",
    "FilterConfig",
    "KafkaBlackboardStore",
]
