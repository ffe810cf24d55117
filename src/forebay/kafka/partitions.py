"""One partition of one topic, as everybody here names it; the client library's own class also carries an offset."""

from __future__ import annotations

from confluent_kafka import TopicPartition as PartitionOffset

__all__ = ["PartitionOffset", "TopicPartition"]

TopicPartition = tuple[str, int]
"""The topic's name and the partition's number."""
