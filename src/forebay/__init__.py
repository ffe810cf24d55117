"""Forebay: Kafka in front of Spark, in SQL. Nothing lost, nothing silently dropped."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay import errors
    from forebay.blackboard import (
        Artifact,
        BoardReplay,
        FilterConfig,
        KafkaBlackboardStore,
        Orchestrator,
        RetryPolicy,
    )
    from forebay.connectors.contract import HealthStatus
    from forebay.deadletter.letter import Letter
    from forebay.deadletter.letters import DeadLetters
    from forebay.deadletter.recovery import RecoveryReport
    from forebay.deadletter.replay import ReplayReport
    from forebay.devstack import DevStack
    from forebay.errors import ForebayError
    from forebay.pool import PartitionStats, Pool, PoolStats, Record
    from forebay.runtime.results import Result
    from forebay.runtime.session import Session, connect
    from forebay.runtime.source_metrics import SourceMetrics
    from forebay.runtime.spark import register
    from forebay.runtime.status import QueryStatus, SourceLag, SourceStatus
    from forebay.views.changes import Subscription

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "BoardReplay",
    "DeadLetters",
    "DevStack",
    "FilterConfig",
    "ForebayError",
    "HealthStatus",
    "KafkaBlackboardStore",
    "Letter",
    "Orchestrator",
    "PartitionStats",
    "Pool",
    "PoolStats",
    "QueryStatus",
    "Record",
    "RecoveryReport",
    "ReplayReport",
    "Result",
    "RetryPolicy",
    "Session",
    "SourceLag",
    "SourceMetrics",
    "SourceStatus",
    "Subscription",
    "connect",
    "errors",
    "register",
]

# Loaded when first asked for: every Python worker of Spark imports this package, and needs none of it.
_HOMES = {
    "Artifact": "forebay.blackboard",
    "BoardReplay": "forebay.blackboard",
    "DeadLetters": "forebay.deadletter.letters",
    "DevStack": "forebay.devstack",
    "FilterConfig": "forebay.blackboard",
    "ForebayError": "forebay.errors",
    "HealthStatus": "forebay.connectors.contract",
    "KafkaBlackboardStore": "forebay.blackboard",
    "Letter": "forebay.deadletter.letter",
    "Orchestrator": "forebay.blackboard",
    "PartitionStats": "forebay.pool",
    "Pool": "forebay.pool",
    "PoolStats": "forebay.pool",
    "register": "forebay.runtime.spark",
    "QueryStatus": "forebay.runtime.status",
    "Record": "forebay.pool",
    "RecoveryReport": "forebay.deadletter.recovery",
    "ReplayReport": "forebay.deadletter.replay",
    "Result": "forebay.runtime.results",
    "RetryPolicy": "forebay.blackboard",
    "Session": "forebay.runtime.session",
    "SourceLag": "forebay.runtime.status",
    "SourceMetrics": "forebay.runtime.source_metrics",
    "SourceStatus": "forebay.runtime.status",
    "Subscription": "forebay.views.changes",
    "connect": "forebay.runtime.session",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("forebay.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'forebay' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext forebay`: the `%%forebay` cell magic."""
    import_module("forebay.notebook").load(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
