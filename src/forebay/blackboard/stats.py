"""What agents do, counted: rate, errors and durations, for each agent and partition."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class AgentStats:
    """One agent's work on one partition."""

    handled: int = 0
    errors: int = 0
    retries: int = 0
    dead: int = 0
    duplicates: int = 0  # artifacts that the agent was done with before
    seconds: float = 0.0

    def done(self, seconds: float) -> None:
        self.handled += 1
        self.seconds += seconds

    def failed(self, seconds: float) -> None:
        self.errors += 1
        self.seconds += seconds


@dataclass
class Stats:
    """Of one orchestrator, since its start."""

    agents: dict[tuple[str, int], AgentStats] = field(default_factory=dict)
    refused: int = 0  # records that are no artifacts

    def of(self, agent: str, partition: int) -> AgentStats:
        return self.agents.setdefault((agent, partition), AgentStats())

    def total(self, agent: str) -> AgentStats:
        """Over all partitions."""
        found = AgentStats()
        for (name, _), each in self.agents.items():
            if name == agent:
                for counter in vars(each):
                    setattr(found, counter, getattr(found, counter) + getattr(each, counter))
        return found
