"""Workers whose handler takes a list of records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any

from forebay.pool.crew import TURN_S, Crew, Order, Slot
from forebay.pool.record import Record


class BatchCrew(Crew):
    """A batch is what is ready, up to `size`, and behind each record those that wait for it, in their order.

    One that fails is taken apart: its records are tried again one by one, so that a bad record costs itself only.
    """

    def __init__(self, *args: Any, size: int, **more: Any) -> None:
        super().__init__(*args, **more)
        self._size = size
        self._alone: deque[Record] = deque()

    def again(self, record: Record) -> None:
        if not self._stopped:
            self._alone.append(record)
            self._hire()

    def stop(self) -> None:
        self._alone.clear()
        super().stop()

    def _waiting(self) -> int:
        return len(self.ready) + len(self._alone)

    async def _work(self, slot: Slot) -> None:
        ready, handler = self.ready, self._handler
        turn = now = monotonic()
        while (ready or self._alone) and len(self.slots) <= self.limit:
            records = self._gather()
            if len(ready) < self._hungry_below:
                self.fed.set()
            slot.records = records  # shown first, then looked at, as in Crew
            slot.records = records = [r for r in records if not r._lease.closing]  # type: ignore[union-attr]
            if not records:
                continue
            slot.since = now
            self._steps = step = self._steps + 1
            try:
                await handler(records)
            except Exception as error:
                self._take_apart(records, error)
            except asyncio.CancelledError:
                self._take_apart(records, self._cancelled(slot))
            else:
                self._done(records)
            now, turn = self._over(slot, now, turn, step)
            if now - turn > TURN_S:
                await asyncio.sleep(0)
                turn = now = monotonic()

    def _gather(self) -> list[Record]:
        ready = self.ready
        if self._alone:
            record = self._alone.popleft()
            return [] if record._lease.closing else [record]  # type: ignore[union-attr]
        if self._order is Order.UNORDERED:
            found = [ready.popleft() for _ in range(min(self._size, len(ready)))]
            return [record for record in found if not record._lease.closing]  # type: ignore[union-attr]
        records: list[Record] = []
        while ready and len(records) < self._size:
            record = ready.popleft()
            if record._lease.closing:  # type: ignore[union-attr]
                continue
            records.append(record)
            behind = self._behind(record)
            while behind and len(records) < self._size:
                records.append(behind.popleft())
        return records

    def _behind(self, record: Record) -> deque[Record] | None:
        if record._lane is None:
            return None
        assert record._lease is not None
        return record._lease.lanes[record._lane]

    def _lanes(self, records: Sequence[Record]) -> list[list[Record]]:
        """The records by lane; one without a lane is by itself."""
        if self._order is Order.UNORDERED:
            return [[record] for record in records]
        found: dict[Any, list[Record]] = {}
        for record in records:
            lane = id(record) if record._lane is None else (record._lease, record._lane)
            found.setdefault(lane, []).append(record)
        return list(found.values())

    def _done(self, records: Sequence[Record]) -> None:
        for record in records:
            record.done = True
        self.completed += len(records)
        if self._order is Order.UNORDERED:
            return
        for lane in self._lanes(records):
            following = self._follower(lane[-1])
            if following is not None:
                self.ready.append(following)

    def _take_apart(self, records: Sequence[Record], error: Exception) -> None:
        if len(records) == 1:
            self._failed(records[0], error)
            return
        for first, *others in self._lanes(records):
            self._alone.append(first)
            if others:
                assert first._lease is not None
                behind = first._lease.lanes[first._lane]
                first._lease.lanes[first._lane] = deque([*others, *(behind or ())])
        self._hire()
