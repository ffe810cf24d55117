"""Who else is in a source's group: a source that reads alone cannot commit while somebody is."""

from __future__ import annotations

from collections.abc import Mapping

from forebay.errors import CommitError, ForebayError, GroupInUseError
from forebay.kafka.admin import Cluster
from forebay.kafka.partitions import TopicPartition

SHOWN = 3


def refused(cluster: Cluster, group: str, error: CommitError) -> CommitError:
    """Why the brokers do not take the offsets of a source that is not a member."""
    try:
        found = members(cluster, group)
    except ForebayError:
        return error
    if not found:
        return error
    return CommitError(
        f"the offsets of group '{group}' are not committed: it has {found}, and the brokers take offsets of members only",
        remedy=GroupInUseError.default_remedy,
    )


def moved_by_others(
    group: str, ours: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]
) -> str:
    """What there is to say where the group's offsets are not those that this source committed last; empty if they are."""
    moved = [key for key in sorted(found) if key in ours and found[key] != ours[key]]
    if not moved:
        return ""
    topic, number = moved[0]
    return (
        f"somebody else commits to group '{group}': this source left {topic}-{number} at {ours[moved[0]]}, and it is at "
        f"{found[moved[0]]} now; {GroupInUseError.default_remedy}"
    )


def members(cluster: Cluster, group: str) -> str:
    """Who they are, for people; empty if there are none."""
    found = cluster.members(group)
    if not found:
        return ""
    listed = "; ".join(f"'{client}' on {host.lstrip('/')}" for client, host in found[:SHOWN])
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{'an active member' if len(found) == 1 else f'{len(found)} active members'} ({listed}{more})"
