"""What agents do, counted: rate, errors and durations, for each agent and partition. And what a blackboard refuses."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields

from forebay.errors import ForebayError
from forebay.tables import html_table

log = logging.getLogger("forebay.blackboard")

REMEMBERED = 10_000  # places of refused records: one that is met again is not counted again
WORDS = 500  # of a reason


@dataclass(repr=False)
class AgentStats:
    """One agent's work on one partition, or on all of them."""

    handled: int = 0
    errors: int = 0
    retries: int = 0
    dead: int = 0
    duplicates: int = 0  # artifacts that the agent was done with before
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"<{self._line()}>"

    def _line(self) -> str:
        more = {
            "failed": self.errors,
            "retried": self.retries,
            "dead-lettered": self.dead,
            "duplicates": self.duplicates,
        }
        parts = [f"{self.handled:,} handled in {self.seconds:,.1f} s"]
        return ", ".join([*parts, *(f"{count:,} {what}" for what, count in more.items() if count)])

    def done(self, seconds: float) -> None:
        self.handled += 1
        self.seconds += seconds

    def failed(self, seconds: float) -> None:
        self.errors += 1
        self.seconds += seconds


@dataclass(repr=False)
class OrchestratorStats:
    """What the agents of one orchestrator have done since its start."""

    agents: dict[tuple[str, int], AgentStats] = field(default_factory=dict)
    refused: int = 0  # records that are no artifacts

    def __repr__(self) -> str:
        agents = (
            "; ".join(f"{name}: {self.total(name)._line()}" for name in self._names())
            or "no agent has worked yet"
        )
        return f"<agents: {agents}{f'; {self.refused:,} records refused' if self.refused else ''}>"

    def _repr_html_(self) -> str:
        columns = [each.name for each in fields(AgentStats)]
        rows = [
            (name, partition, *(getattr(each, column) for column in columns))
            for (name, partition), each in sorted(self.agents.items())
        ]
        return html_table(("agent", "partition", *columns), rows)

    def _names(self) -> list[str]:
        return sorted({name for name, _ in self.agents})

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


class Refusals:
    """Records that do not belong on a blackboard: each is left out, counted, and named in the log. Of any thread."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._places: set[tuple[str, int, int]] = set()
        self._lock = threading.Lock()

    def add(self, place: tuple[str, int, int], error: Exception) -> None:
        """`place`: topic, partition and offset."""
        with self._lock:
            if place in self._places:
                return
            if len(self._places) < REMEMBERED:
                self._places.add(place)
            self._counts[place[0]] = self._counts.get(place[0], 0) + 1
        reason = error.message if isinstance(error, ForebayError) else f"{type(error).__name__}: {error}"
        log.warning(
            "%s-%d at offset %d is nothing that a blackboard holds, and is left out: %s",
            *place,
            reason[:WORDS],
        )

    def forget(self, topics: Collection[str]) -> None:
        """Their records are read again, or are others at the same places."""
        with self._lock:
            self._places = {place for place in self._places if place[0] not in topics}

    @property
    def by_topic(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counts)

    @property
    def total(self) -> int:
        return sum(self.by_topic.values())


@dataclass(frozen=True, repr=False)
class BoardStats:
    """How a store fares at one moment, as `KafkaBlackboardStore.stats()` gives it."""

    fed: int  # records that the index has taken since the start
    refused: Mapping[str, int]  # records that were left out, by topic
    trouble: str | None  # why the index does not follow the log at present
    replaced: int = (
        0  # how often the log was found to be another one: its topics were made anew, or cut short
    )

    def __repr__(self) -> str:
        refused = "".join(f", {count:,} refused in {topic}" for topic, count in sorted(self.refused.items()))
        trouble = f"; the index does not follow: {self.trouble}" if self.trouble else ""
        return f"<blackboard: {self.fed:,} records in the index{refused}{trouble}>"
