"""Which partitions of a shared group are this process's, and which offsets others have read.

The driver is the member of the group (`kafka/member.py`). What it is assigned goes to the process that plans by a file
(`Assignment`), with a number that grows by every change. A batch carries the number that it was planned with, so that the
driver knows whether its partitions have been this process's ever since (`Ownership.holds`).

A partition goes on where this home has read it to, or at the group's offset if that is further: all before either is in
somebody's tables. What lies between is not read here (`elsewhere`), and is not lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forebay.files import FollowedFile, make_folder, write_whole
from forebay.kafka.offsets import KafkaPosition, Range, Span, without
from forebay.kafka.partitions import TopicPartition


@dataclass(frozen=True)
class Assignment:
    """What this process may plan. `partitions`: the group's offset of each when it was assigned."""

    number: int = 0
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)

    def elsewhere(self, position: KafkaPosition) -> dict[TopicPartition, Span]:
        """What others have read since this home read these partitions, or before it ever did."""
        return {
            key: (position.next.get(key, 0), at)
            for key, at in self.partitions.items()
            if at > position.next.get(key, 0)
        }

    def to_json(self) -> str:
        return json.dumps(
            {"number": self.number, "partitions": [[*key, at] for key, at in sorted(self.partitions.items())]}
        )

    @staticmethod
    def from_json(text: bytes) -> Assignment:
        form = json.loads(text)
        return Assignment(form["number"], {(topic, n): at for topic, n, at in form["partitions"]})


@dataclass(frozen=True)
class Ownership:
    """What a member knows of its partitions. `since`: the number of the assignment that each came with."""

    number: int = 0
    since: Mapping[TopicPartition, int] = field(default_factory=dict)
    at: Mapping[TopicPartition, int] = field(default_factory=dict)  # the group's offset; not known at first
    going: frozenset[TopicPartition] = (
        frozenset()
    )  # being revoked: theirs are batches in flight, and no new ones

    def assigned(self, keys: Iterable[TopicPartition]) -> Ownership:
        return self._next(since={**self.since, **dict.fromkeys(keys, self.number + 1)})

    def settled(self, at: Mapping[TopicPartition, int]) -> Ownership:
        """The group's offsets are known: the partitions can be planned."""
        return self._next(at={**self.at, **{key: offset for key, offset in at.items() if key in self.since}})

    def revoking(self, keys: Iterable[TopicPartition]) -> Ownership:
        return self._next(going=self.going | (frozenset(keys) & frozenset(self.since)))

    def gone(self, keys: Iterable[TopicPartition]) -> Ownership:
        """Revoked, or lost."""
        left = frozenset(keys)
        return self._next(
            since={key: number for key, number in self.since.items() if key not in left},
            at={key: offset for key, offset in self.at.items() if key not in left},
            going=self.going - left,
        )

    def _next(self, **changes: Any) -> Ownership:
        return replace(self, number=self.number + 1, **changes)

    @property
    def unsettled(self) -> list[TopicPartition]:
        return sorted(key for key in self.since if key not in self.at and key not in self.going)

    def assignment(self) -> Assignment:
        planned = {key: at for key, at in self.at.items() if key not in self.going}
        return Assignment(self.number, planned)

    def lost_of(self, keys: Iterable[TopicPartition], planned: int) -> list[TopicPartition]:
        """Those that have not been this process's ever since a batch was planned with that assignment."""
        return sorted(key for key in keys if self.since.get(key, planned + 1) > planned)


class ShareFolder:
    """The files between the driver and the process that plans."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._assignment = FollowedFile(
            root / "assignment.json", lambda path: Assignment.from_json(path.read_bytes()), Assignment()
        )
        self._elsewhere: FollowedFile[Mapping[TopicPartition, Sequence[Span]]] = FollowedFile(
            root / "elsewhere.json", lambda path: _spans_from_json(path.read_bytes()), {}
        )

    def make(self) -> None:
        make_folder(self.root, 0o700)

    def assignment(self) -> Assignment:
        return self._assignment.read()

    def write_assignment(self, assignment: Assignment) -> None:
        write_whole(self._assignment.path, assignment.to_json().encode(), durable=False)

    def elsewhere(self) -> Mapping[TopicPartition, Sequence[Span]]:
        """All that was jumped over: others have read it."""
        return self._elsewhere.read()

    def add_elsewhere(self, spans: Mapping[TopicPartition, Span]) -> None:
        """On the disk when this returns: a view that comes later must not read it."""
        known = self.elsewhere()
        if any(span not in known.get(key, ()) for key, span in spans.items()):
            merged = {key: joined([*known.get(key, ()), *_given(spans, key)]) for key in {*known, *spans}}
            form = [[*key, list(map(list, merged[key]))] for key in sorted(merged)]
            write_whole(self._elsewhere.path, json.dumps(form).encode())

    # The planner says which assignment it has seen. Spark plans a batch when the one before it is done: so all that
    # was planned with an older assignment is done by then.

    def seen(self) -> int:
        try:
            return int((self.root / "seen").read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def mark_seen(self, number: int) -> None:
        write_whole(self.root / "seen", str(number).encode(), durable=False)


def past(
    position: KafkaPosition, planned: Sequence[Range], taken: Sequence[Range]
) -> tuple[KafkaPosition, list[Range]]:
    """Where to go on without what is taken of what was planned; and what of that lies further on.

    What comes first is jumped over by the position, so that nobody else here has to leave it out.
    """
    following, beyond = dict(position.next), list[Range]()
    for key in {(item.topic, item.partition) for item in taken}:
        ours = [item for item in planned if (item.topic, item.partition) == key]
        theirs = [item for item in taken if (item.topic, item.partition) == key]
        left = [
            piece for item in ours for piece in without(item, [(each.start, each.end) for each in theirs])
        ]
        at = min((piece.start for piece in left), default=max(item.end for item in ours))
        following[key] = max(at, following.get(key, 0))
        beyond += [item for item in theirs if item.start > at]
    return replace(position, next=following), beyond


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same offsets in as few spans as possible, in order."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif end > begin:
            found.append((begin, end))
    return found


def _given(spans: Mapping[TopicPartition, Span], key: TopicPartition) -> list[Span]:
    return [spans[key]] if key in spans else []


def _spans_from_json(text: bytes) -> dict[TopicPartition, list[Span]]:
    return {(topic, n): [(begin, end) for begin, end in spans] for topic, n, spans in json.loads(text)}
