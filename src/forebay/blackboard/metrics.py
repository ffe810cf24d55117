"""Prometheus metrics of agents: rate, errors, durations, for each agent and partition, and the group's lag.

Nothing is counted twice: they are read off the orchestrator and its pools when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from forebay.blackboard.stats import BoardStats, OrchestratorStats
from forebay.pool import Pool

_COUNTERS = {
    "handled": ("forebay_agent_artifacts", "Artifacts that an agent is done with."),
    "errors": ("forebay_agent_errors", "Runs of an agent that failed."),
    "retries": ("forebay_agent_retries", "Artifacts that were put off to be tried again."),
    "dead": ("forebay_agent_dead_letters", "Artifacts that an agent was given up on."),
    "duplicates": ("forebay_agent_duplicates", "Artifacts that came again and were not run again."),
    "seconds": ("forebay_agent_seconds", "Time that an agent has spent on artifacts."),
}


class BoardCollector(Collector):
    """`prometheus_client.REGISTRY.register(store.collector())`."""

    def __init__(self, stats: Callable[[], BoardStats]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        refused = CounterMetricFamily(
            "forebay_board_refused_records", "Records that are nothing a blackboard holds.", labels=["topic"]
        )
        for topic, count in sorted(stats.refused.items()):
            refused.add_metric([topic], count)
        yield refused
        yield CounterMetricFamily(
            "forebay_board_index_records", "Records that the local index has taken.", stats.fed
        )
        yield GaugeMetricFamily(
            "forebay_board_index_following",
            "1 while the local index follows the log, 0 while it cannot.",
            float(stats.trouble is None),
        )


class AgentCollector(Collector):
    """`prometheus_client.REGISTRY.register(orchestrator.collector())`."""

    def __init__(self, stats: OrchestratorStats, pools: Sequence[Pool], board: Collector) -> None:
        self._stats = stats
        self._pools = pools
        self._board = board

    def collect(self) -> Iterator[Metric]:
        for field, (name, text) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=["agent", "partition"])
            for (agent, partition), each in sorted(self._stats.agents.items()):
                counter.add_metric([agent, str(partition)], getattr(each, field))
            yield counter
        yield from self._board.collect()
        # Of several pools each has the same metrics, under its own name: one family for all of them.
        families: dict[str, Metric] = {}
        for pool in self._pools:
            for family in pool.collector().collect():
                if family.name in families:
                    families[family.name].samples.extend(family.samples)
                else:
                    families[family.name] = family
        yield from families.values()
