"""Prometheus metrics of agents: rate, errors, durations, for each agent and partition, and the group's lag.

Nothing is counted twice: they are read off the orchestrator and its pools when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from forebay.blackboard.stats import Stats
from forebay.pool import Pool

_COUNTERS = {
    "handled": ("forebay_agent_artifacts", "Artifacts that an agent is done with."),
    "errors": ("forebay_agent_errors", "Runs of an agent that failed."),
    "retries": ("forebay_agent_retries", "Artifacts that were put off to be tried again."),
    "dead": ("forebay_agent_dead_letters", "Artifacts that an agent was given up on."),
    "duplicates": ("forebay_agent_duplicates", "Artifacts that came again and were not run again."),
    "seconds": ("forebay_agent_seconds", "Time that an agent has spent on artifacts."),
}


class AgentCollector(Collector):
    """`prometheus_client.REGISTRY.register(orchestrator.collector())`."""

    def __init__(self, stats: Stats, pools: Sequence[Pool]) -> None:
        self._stats = stats
        self._pools = pools

    def collect(self) -> Iterator[Metric]:
        for field, (name, text) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=["agent", "partition"])
            for (agent, partition), each in sorted(self._stats.agents.items()):
                counter.add_metric([agent, str(partition)], getattr(each, field))
            yield counter
        refused = CounterMetricFamily("forebay_board_refused_records", "Records that are no artifacts.")
        refused.add_metric([], self._stats.refused)
        yield refused
        # Of several pools each has the same metrics, under its own name: one family for all of them.
        families: dict[str, Metric] = {}
        for pool in self._pools:
            for family in pool.collector().collect():
                if family.name in families:
                    families[family.name].samples.extend(family.samples)
                else:
                    families[family.name] = family
        yield from families.values()
