"""How far a source's group is behind, as the brokers see it."""

from __future__ import annotations

from collections.abc import Mapping

from forebay.connectors.contract import PartitionLag
from forebay.kafka.admin import Cluster, Topic, partitions_of


def lag_of(cluster: Cluster, topics: Mapping[str, Topic]) -> list[PartitionLag]:
    """A partition a row. Where the group has no offset, all that the partition holds is ahead of it."""
    partitions = partitions_of(topics)
    ends, committed = cluster.latest(partitions), cluster.committed(partitions)
    starts = cluster.earliest([key for key in partitions if key not in committed])
    return [
        PartitionLag(*key, committed.get(key), ends[key], ends[key] - committed.get(key, starts.get(key, 0)))
        for key in sorted(partitions)
    ]
