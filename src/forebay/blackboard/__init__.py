"""A blackboard for agents on Kafka: artifacts that are published, found, consumed once and replayed."""

from forebay.blackboard.artifact import (
    AgentSnapshotRecord,
    Artifact,
    ArtifactEnvelope,
    ConsumptionRecord,
    FilterConfig,
)
from forebay.blackboard.lag import LagMonitor
from forebay.blackboard.orchestrator import Orchestrator
from forebay.blackboard.replay import BoardReplay, replay
from forebay.blackboard.retries import RetryPolicy
from forebay.blackboard.store import KafkaBlackboardStore

__all__ = [
    "AgentSnapshotRecord",
    "Artifact",
    "ArtifactEnvelope",
    "BoardReplay",
    "ConsumptionRecord",
    "FilterConfig",
    "KafkaBlackboardStore",
    "LagMonitor",
    "Orchestrator",
    "RetryPolicy",
    "replay",
]
