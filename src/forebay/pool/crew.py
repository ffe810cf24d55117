"""The workers: coroutines that take records from a queue and await the handler.

A worker handles one record after another; there is no task for a record. Workers are hired while there is work for
them and leave when there is none. All of this runs in one event loop and in no other thread.
"""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import StrEnum
from time import monotonic
from typing import Any

from forebay.errors import HandlerTimeoutError
from forebay.pool.lease import Lease
from forebay.pool.record import Record

TURN_S = 0.01  # a handler that never waits gives way to others after so long
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds of the histogram of how long handlers take."""


class Order(StrEnum):
    """Which records may be handled at the same time."""

    UNORDERED = "unordered"
    """Any."""

    KEY = "key"
    """Those of different keys; records of one key one after another. A record without a key is in no order."""

    PARTITION = "partition"  # str has a method of that name
    """Those of different partitions."""


class Slot:
    """A worker, and what it is at."""

    __slots__ = ("expired", "records", "reported", "since", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.records: Sequence[Record] = ()
        self.since = 0.0
        self.expired = False  # cancelled because it took too long, and for nothing else
        self.reported = 0.0  # the `since` that was last reported


class Crew:
    """Takes records, hires workers, and says of each record whether it was handled or failed.

    `failed` hears of a failure; it later gives the record back to `again()` or to `finished()`, or leaves it.
    """

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[Any]],
        failed: Callable[[Record, BaseException], None],
        *,
        crashed: Callable[[BaseException], None],
        order: Order = Order.UNORDERED,
        limit: int = 100,
    ) -> None:
        self.limit = limit
        self.ready: deque[Record] = deque()
        self.slots: set[Slot] = set()
        self.taken = 0
        self.completed = 0
        self.times = [0] * (len(SECONDS) + 1)
        self.total_s = 0.0
        self._crashed = crashed
        self._handler = handler
        self._failed = failed
        self._order = order
        self._steps = 0
        self._watched = False
        self._hungry_below = 0
        self._stopped = False
        self.fed = threading.Event()  # whoever feeds the crew waits here while the queue is full
        self.rested = threading.Event()  # set when a handler has ended, while `watched`

    # -- work comes ----------------------------------------------------------------------------------

    def take(self, records: Sequence[Record]) -> None:
        """Records in the order of their partition."""
        self.taken += len(records)
        if self._stopped:
            return
        if self._order is Order.UNORDERED:
            self.ready.extend(records)
        else:
            for record in records:
                self._queue(record)
        if len(self.ready) < self._hungry_below:
            self.fed.set()
        self._hire()

    def again(self, record: Record) -> None:
        """A record that failed and was waited with. In its lane it is still the first."""
        if not self._stopped:
            self.ready.append(record)
            self._hire()

    def finished(self, record: Record) -> None:
        """A record that failed and is done with all the same: a letter was written, or it is skipped."""
        record.done = True
        self.completed += 1
        following = self._follower(record)
        if following is not None:
            self.again(following)

    def reopened(self, record: Record) -> None:
        """A record that was done, and is not after all. Those behind it in its lane have gone on: it is in none now."""
        record._lane = None
        self.completed -= 1

    def wait_for_room(self, handed: int, below: int, timeout: float) -> None:
        """For the thread that feeds: until fewer records than that wait for a worker, of all it has handed over.

        It must not come back at once to look again: a thread that spins keeps the others from running.
        """
        self.fed.clear()
        self._hungry_below = below
        if len(self.ready) + handed - self.taken >= below:
            self.fed.wait(timeout)
        self._hungry_below = 0

    def busy_with(self, leases: Collection[Lease]) -> bool:
        """Whether a record of these partitions is being handled."""
        return any(
            record._lease in leases and not record.done
            for slot in list(self.slots)
            for record in slot.records
        )

    def wait_until_idle(self, leases: Collection[Lease], timeout: float) -> bool:
        """For another thread: until no record of these partitions is being handled; False if that takes longer."""
        deadline = monotonic() + timeout
        self._watched = True
        try:
            while True:
                self.rested.clear()
                if not self.busy_with(leases):
                    return True
                if not self.rested.wait(deadline - monotonic()):
                    return not self.busy_with(leases)
        finally:
            self._watched = False

    def stop(self) -> None:
        """Begin no more records; those that are being handled go on."""
        self._stopped = True
        self.ready.clear()
        self.fed.set()

    def cancel(self) -> None:
        for slot in list(self.slots):
            if slot.task is not None:
                slot.task.cancel()

    # -- order ---------------------------------------------------------------------------------------

    def _queue(self, record: Record) -> None:
        lane = record.key if self._order is Order.KEY else b""
        record._lane = lane
        if lane is None:
            self.ready.append(record)
            return
        assert record._lease is not None
        lanes = record._lease.lanes
        if lane not in lanes:
            lanes[lane] = None  # somebody is at it, nobody waits
            self.ready.append(record)
            return
        waiting = lanes[lane]
        if waiting is None:
            waiting = lanes[lane] = deque()
        waiting.append(record)

    def _follower(self, record: Record) -> Record | None:
        """Who may come now that this one is done."""
        if self._order is Order.UNORDERED or record._lane is None:
            return None
        assert record._lease is not None
        lanes = record._lease.lanes
        waiting = lanes[record._lane]
        if waiting:
            return None if self._stopped else waiting.popleft()
        del lanes[record._lane]
        return None

    # -- heavy partitions ----------------------------------------------------------------------------

    def bind(self, lease: Lease, most: int | None) -> None:
        """From now on at most so many workers are at this partition; None: as many as there are."""
        lease.bound = most
        if most is None and not self._stopped:
            self.ready.extend(lease.parked)
            lease.parked.clear()
            self._hire()

    def _parks(self, record: Record, lease: Lease) -> bool:
        """Whether so many are at its partition already that it has to wait until one of them is done."""
        assert lease.bound is not None
        at_work = sum(one._lease is lease for slot in self.slots for one in slot.records)
        if at_work <= lease.bound:  # this record among them
            return False
        lease.parked.append(record)
        return True

    def _in_turn(self, lease: Lease, following: Record | None) -> Record | None:
        """Who takes the place of one that has ended: the one that has waited longest, and then the next of its lane."""
        if not lease.parked or self._stopped:
            return following
        if following is not None:
            lease.parked.append(following)
        return lease.parked.popleft()

    # -- workers -------------------------------------------------------------------------------------

    def _hire(self) -> None:
        """Two at most: each of them hires two more if there is work left for them when its turn comes.

        A handler that never waits is so served by one worker, without a hundred being called for each batch.
        """
        for _ in range(min(2, self._waiting(), self.limit - len(self.slots))):
            slot = Slot()
            self.slots.add(slot)
            slot.task = asyncio.get_running_loop().create_task(self._employ(slot))

    def _waiting(self) -> int:
        return len(self.ready)

    async def _employ(self, slot: Slot) -> None:
        try:
            self._hire()
            await self._work(slot)
        except asyncio.CancelledError:
            pass  # the pool ends; what was not finished is not done
        except BaseException as error:
            self._crashed(error)
        finally:
            slot.records = ()
            self.slots.discard(slot)
            if self._watched:
                self.rested.set()

    async def _work(self, slot: Slot) -> None:
        ready, handler = self.ready, self._handler
        ordered = self._order is not Order.UNORDERED
        turn = now = monotonic()
        while ready and len(self.slots) <= self.limit:
            record: Record | None = ready.popleft()
            if len(ready) < self._hungry_below:
                self.fed.set()
            while record is not None:
                # Shown first, then looked at: whoever closes the lease does it the other way round, and so one
                # of the two sees the other.
                slot.records = (record,)
                lease: Lease = record._lease  # type: ignore[assignment]
                if lease.closing or (lease.bound is not None and self._parks(record, lease)):
                    slot.records = ()
                    break
                slot.since = now
                self._steps = step = self._steps + 1
                following = None
                try:
                    await handler(record)
                except Exception as error:
                    self._failed(record, error)
                except asyncio.CancelledError:
                    self._failed(record, self._cancelled(slot))
                else:
                    record.done = True
                    self.completed += 1
                    if ordered:
                        following = self._follower(record)
                now, turn = self._over(slot, now, turn, step)
                if now - turn > TURN_S:
                    await asyncio.sleep(0)
                    turn = now = monotonic()
                # Only now: whoever waits must not be counted as being at work.
                record = following if lease.bound is None else self._in_turn(lease, following)

    def _over(self, slot: Slot, began: float, turn: float, step: int) -> tuple[float, float]:
        """Count what has just ended; returns the time now, and when this turn began."""
        now = monotonic()
        self.times[bisect_left(SECONDS, now - began)] += 1
        self.total_s += now - began
        if self._watched:
            self.rested.set()
        # Where others had their turn meanwhile, the handler has waited for something.
        return now, turn if self._steps == step else now

    def _cancelled(self, slot: Slot) -> Exception:
        """Why a handler ended by being cancelled. Raises again if it is because the pool ends."""
        if slot.expired:
            slot.expired = False
            assert slot.task is not None
            slot.task.uncancel()
            return HandlerTimeoutError(f"the handler took longer than {monotonic() - slot.since:.1f} s")
        if slot.task is not None and slot.task.cancelling():
            raise asyncio.CancelledError
        return RuntimeError("the handler was cancelled from within")
