"""A partition for as long as it is ours.

Each assignment makes a new lease. What a handler finishes after its partition was taken away is marked in a lease
that nobody looks at any more: a late result cannot reach the next owner's offsets.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any

from forebay.pool.completed import BadMetadataError, Completed, decode
from forebay.pool.record import Record
from forebay.pool.tracker import Tracker

log = logging.getLogger("forebay.pool")


class Lease:
    """What is known of an assigned partition."""

    __slots__ = (
        "already", "bound", "closing", "committed", "lanes", "parked", "partition", "paused", "topic", "tracker",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int = -1,
        metadata: str | None = None,
        *,
        keep: bool = False,
    ) -> None:
        """`offset` and `metadata` are the group's; a negative offset means that it has none. `keep`: see `Tracker`."""
        self.topic = topic
        self.partition = partition
        self.tracker = Tracker(keep)
        self.lanes: dict[Hashable, deque[Record] | None] = {}
        self.closing = False  # no record of it is begun any more
        self.paused = False
        self.bound: int | None = None  # the most workers that may be at it, while it is heavy
        self.parked: deque[Record] = deque()  # its turn has come, and the bound was reached
        self.committed: tuple[int, str] | None = (offset, metadata or "") if offset >= 0 else None
        self.already = self._done_before(offset, metadata) if offset >= 0 else Completed()

    def _done_before(self, offset: int, metadata: str | None) -> Completed:
        try:
            return decode(offset, metadata or "")
        except BadMetadataError as error:
            log.warning(
                "%s: the metadata of the committed offset %d is not used, and what it may have named as done is "
                "handled again: %s", self, offset, error,
            )  # fmt: skip
            return Completed()

    def receive(self, messages: Sequence[Any], offsets: Sequence[int]) -> list[Record]:
        """The records of a run of messages; those that were done before a restart are done, and left out."""
        records = [Record(message, self) for message in messages]
        self.tracker.deliver(records, offsets[-1] + 1)
        if not self.already:
            return records
        fresh = []
        for record, offset in zip(records, offsets, strict=True):
            if offset in self.already:
                record.done = True
            else:
                fresh.append(record)
        if offsets[-1] + 1 >= self.already.end:
            self.already = Completed()
        return fresh

    def goes_back(self, offsets: Sequence[int]) -> bool:
        """Whether the broker has begun again at an earlier offset: what it held before is gone."""
        position = self.tracker.position
        if position is None:
            position = self.committed[0] if self.committed else 0
        return offsets[0] < position or sorted(offsets) != offsets

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
