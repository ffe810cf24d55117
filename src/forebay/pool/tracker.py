"""Which records of a partition are done, and so how far its offset may be committed.

The tracker hears what was delivered, in order, and looks at each record once when it leaves: the cost of a
record is constant, and what is held is what lies between the first unfinished record and the last delivered
one. Offsets that were never delivered (compacted away, markers of transactions) are no gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol


class Tracked(Protocol):
    """A delivered record. Whoever handles it sets `done`, from any thread, once."""

    done: bool

    @property
    def offset(self) -> int: ...


class Tracker:
    """Of one partition, for as long as it is assigned without a break.

    With `keep`, records that are done stay known until they are `settled()`, so that one of them can be `reopen()`ed.
    """

    __slots__ = ("_open", "_passed", "position", "seen")

    def __init__(self, keep: bool = False) -> None:
        self._open: deque[Tracked] = deque()
        self._passed: deque[Tracked] | None = deque() if keep else None  # before the frontier, not settled
        self.position: int | None = None
        """The offset behind all that was delivered; None before anything was."""
        self.seen: int | None = None
        """The last answer of `frontier()`, for other threads, which must not ask."""

    def deliver(self, records: Iterable[Tracked], position: int) -> None:
        """In the order of their offsets; `position` is the one after the last."""
        self._open.extend(records)
        self.position = position

    def passed(self, position: int) -> None:
        """The broker has nothing more before this offset: what is left there are markers."""
        if self.position is None or position > self.position:
            self.position = position

    def frontier(self) -> int | None:
        """What may be committed: the first unfinished record's offset, or the position if all are done."""
        waiting = self._open
        while waiting and waiting[0].done:
            record = waiting.popleft()
            if self._passed is not None:
                self._passed.append(record)
        self.seen = waiting[0].offset if waiting else self.position
        return self.seen

    def beyond(self) -> list[int]:
        """The offsets that are done although an earlier one is not, in order. Call `frontier()` first."""
        return [record.offset for record in self._open if record.done]

    def reopen(self, records: Iterable[Tracked]) -> None:
        """These are not done after all: the frontier goes back to the first of them. None of them is settled."""
        assert self._passed is not None
        for record in records:
            record.done = False
        while self._passed:
            self._open.appendleft(self._passed.pop())

    def settled(self, offset: int) -> None:
        """What is before this offset is done for good."""
        while self._passed and self._passed[0].offset < offset:
            self._passed.popleft()

    def glance(self) -> list[Tracked]:
        """The records from the frontier on, for another thread: nothing where they change too quickly to be copied."""
        for _ in range(5):
            try:
                return list(self._open)
            except RuntimeError:  # it was changed while it was copied
                continue
        return []

    def oldest(self) -> Tracked | None:
        """The record that the frontier waits for. Call `frontier()` first."""
        return self._open[0] if self._open else None

    def __len__(self) -> int:
        """How many records are between the frontier and the position, as of the last `frontier()`."""
        return len(self._open)
