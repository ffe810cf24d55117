"""A Kafka source in a group that it shares: its member, and what there is to say of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from forebay.connectors.contract import GroupShare, Offsets, PartitionOffsets
from forebay.kafka.admin import Cluster, partitions_of
from forebay.kafka.beginning import Beginning
from forebay.kafka.member import GroupFacts, GroupMember
from forebay.kafka.offsets import KafkaPosition, Range, Span
from forebay.kafka.partitions import TopicPartition
from forebay.kafka.share import Assignment, ShareFolder, past
from forebay.options import Options


class Membership(GroupShare):
    """Of one source, wherever it is used: only on the driver is it a member of the group."""

    def __init__(self, options: Options, cluster: Cluster, beginning: Beginning) -> None:
        self._options = options
        self._cluster = cluster
        self._beginning = beginning
        self._before = 0  # rebalances of members that have left
        self._partitions: set[TopicPartition] | None = None  # those that there were when it joined
        self._member: GroupMember | None = None
        self.folder: ShareFolder | None = None
        self.assignment = Assignment()  # as the process that plans has seen it

    def follow(self, folder: Path) -> None:
        self.folder = ShareFolder(folder)

    def join(
        self,
        folder: Path,
        position: Callable[[], Offsets | None],
        reads: Callable[[], bool],
        added: Callable[[PartitionOffsets], PartitionOffsets] = lambda at: at,
    ) -> None:
        if self._member is not None:
            if self._member.alive:
                return
            self._member.close()
            self._before = self.rebalances
        self.follow(folder)
        assert self.folder is not None
        self._partitions = self._partitions or set(self._all_partitions())

        def stands() -> KafkaPosition | None:
            found = position()
            return None if found is None else KafkaPosition.from_json(found)

        self._member = GroupMember(
            self._options,
            self.folder,
            self._topics(),
            self._begin,
            stands,
            reads,
            lambda what: self.on_rebalance(what),
            added,
        )

    def look(self) -> bool:
        if self.folder is None:
            return False
        found = self.folder.assignment()
        if found.number == self.assignment.number:
            return False
        self.assignment = found
        self.folder.mark_seen(found.number)
        return True

    def elsewhere(self) -> Mapping[TopicPartition, Sequence[Span]]:
        """What this home has left to others."""
        return {} if self.folder is None else self.folder.elsewhere()

    def _topics(self) -> list[str]:
        if (pattern := self._options["topic.pattern"]) is not None:
            return [f"^({pattern})$"]
        return self._cluster.matching()

    def _begin(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions begin that the group has no offset of: one that came later has nothing to be left out."""
        now, known = self._all_partitions(), self._partitions or set()
        late = [key for key in keys if key not in known]
        early = [key for key in keys if key in known]
        everything = self._options["startup.mode"] == "specific-offsets"
        begins = self._beginning.of(now if everything else early) if early else {}
        return {key: begins[key] for key in early} | self._cluster.earliest(late)

    def _all_partitions(self) -> list[TopicPartition]:
        return partitions_of(self._cluster.describe(self._cluster.matching()))

    # -- on the driver -------------------------------------------------------------------------------

    @property
    def rebalances(self) -> int:
        return self._before + (0 if self._member is None else self._member.facts.rebalances)

    def await_assignment(self, timeout_s: float) -> None:
        if self._member is not None:
            self._member.await_assignment(timeout_s)

    def confirm(self, start: Offsets, end: Offsets) -> None:
        assert self._member is not None
        assert self.folder is not None
        there = KafkaPosition.from_json(end)
        self._member.confirm(KafkaPosition.from_json(start), there)
        self.folder.add_elsewhere(there.elsewhere)  # on the disk, before the batch is in a table

    def commit(self, wanted: KafkaPosition) -> dict[TopicPartition, int]:
        """What is ours of a position. CommitError if the group did not take it."""
        return self._member.commit(wanted) if self._member is not None and self._member.alive else {}

    def leave(self, *, wait: bool = True) -> None:
        if self._member is not None:
            self._member.leave()
            if wait:
                self._member.close()

    def narrowed(self, target: Offsets) -> Offsets:
        if self._member is None:
            return target
        position, ours = KafkaPosition.from_json(target), self._member.partitions()
        return KafkaPosition(
            {key: at for key, at in position.next.items() if key in ours}, position.ids
        ).to_json()

    def topic_ids(self, position: Offsets) -> Mapping[str, str]:
        return KafkaPosition.from_json(position).ids

    def going_on(
        self,
        position: Offsets,
        end: Offsets,
        planned: Iterable[tuple[str, int, int, int]],
        taken: Iterable[tuple[str, int, int, int]],
    ) -> Offsets:
        assert self.folder is not None
        ranges, found = [Range(*each) for each in planned], [Range(*each) for each in taken]
        here, ids = KafkaPosition.from_json(position), KafkaPosition.from_json(end).ids
        following, beyond = past(replace(here, ids={**here.ids, **ids}), ranges, found)
        for item in beyond:
            self.folder.add_elsewhere({(item.topic, item.partition): (item.start, item.end)})
        return following.to_json()

    def metrics(self) -> dict[str, float]:
        return {
            "rebalances_total": float(self.rebalances),
            "assigned_partitions": float(len(self._facts().partitions)),
        }

    def lines(self) -> list[str]:
        """For DESCRIBE EXTENDED."""
        facts = self._facts()
        assigned = ", ".join(f"{topic}-{number}" for topic, number in facts.partitions) or "none"
        lines = [
            f"Group {self._options['group.id']}, shared by {self._options['partition.assignment.strategy']}:",
            f"  member: {facts.member or 'not in the group'}",
            f"  generation: {facts.generation}",
            f"  assigned: {assigned}",
            f"  rebalances: {self.rebalances}",
        ]
        if facts.last_rebalance_ms is not None:
            ago = max(0.0, time.time() - facts.last_rebalance_ms / 1000)
            lines.append(f"  last rebalance: {facts.last_rebalance} ({ago:.0f} s ago)")
        if facts.error:
            lines.append(f"  trouble: {facts.error}")
        return lines

    def _facts(self) -> GroupFacts:
        member = self._member
        return member.facts if member is not None and member.alive else GroupFacts()
