"""What a pool is asked, and what it answers. Imports nothing that a peer's own environment may lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PoolCase:
    """Handle so many records of a topic, each handler waiting for so long."""

    topic: str
    group: str
    records: int
    wait_ms: int
    order: str  # key, unordered
    workers: int
    batch: int = 0  # hand over lists of up to so many

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> PoolCase:
        return PoolCase(**raw)


@dataclass(frozen=True)
class PoolTiming:
    """From the first record that is handled to the last one, without joining the group."""

    records: int
    wall_s: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.records / self.wall_s

    @property
    def cpu_per_million(self) -> float:
        return self.cpu_s / self.records * 1e6
