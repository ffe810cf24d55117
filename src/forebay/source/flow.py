"""When a read plans its next batch, and how large: in the process that plans, one for each read.

Four things hold a batch back: the source is paused, other reads of it have the budget in flight, a fuller batch is waited
for, or there is nothing to read. Each is said in the read's plan, with what it is held back by.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from forebay.connectors.alignment import HeldBack
from forebay.options import Options
from forebay.source import batch_size
from forebay.source.batch_size import BatchSize, Cause
from forebay.source.budget import Budget, InFlight
from forebay.source.catch_up import CatchUp, ReadPace
from forebay.source.flow_folder import ALL, FlowFolder, Plan

TARGET_S = 5.0
STEP_S, LONGEST_STEP_S = 0.02, 0.25
LARGEST_RECORD = 1 << 20  # bytes: what brokers take unless their `message.max.bytes` says otherwise


@dataclass(frozen=True)
class FlowLimits:
    """What a source's options say about the size of batches."""

    target_s: float = TARGET_S
    delay_s: float = 0.0
    least: int | None = None  # records that end the delay; None: as many as the batch may have
    budget: Budget = field(default_factory=Budget)

    @staticmethod
    def of(options: Options) -> FlowLimits:
        target_ms = options.get("batch.target.ms")
        return FlowLimits(
            TARGET_S if target_ms is None else target_ms / 1000,
            (options.get("max.delay.ms") or 0) / 1000,
            options.get("min.records.per.batch"),
            Budget.of(options),
        )


class ReadFlow:
    """Of one read. Without a folder, where there is no session, it knows of no other read and is never paused."""

    def __init__(
        self,
        limits: FlowLimits,
        folder: FlowFolder | None,
        read: str,
        views: Callable[[], Sequence[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._folder = folder
        self._read = read
        self._views = views
        self._clock = clock
        self._size: BatchSize | None = None
        self._batch: tuple[float, int] | None = None  # the one in flight: when it was planned, its records
        self._stopped = False
        self._waiting_since: float | None = None
        self._record_bytes = 0.0
        self._pace = ReadPace()
        self._catch_up: CatchUp | None = None
        self._told: Plan | None = None

    def next(self, most: int | None) -> BatchSize:
        """How many records the next batch may have; none while something holds it back. The batch before is done."""
        self._finish(most)
        size = self._size
        assert size is not None
        if self._folder is None:
            return size
        if self._folder.paused_ms() is not None:
            self._waiting_since = None
            return self._held(Cause.PAUSED, "paused by statement; RESUME SOURCE goes on")
        others = self._others()
        in_flight = InFlight.sum(plan.in_flight for plan in others)
        self._stopped = self._limits.budget.stopped(in_flight, self._stopped)
        if self._stopped:
            return self._above_high(others)
        return self._fitting(size, others)

    def _above_high(self, others: Sequence[Plan]) -> BatchSize:
        slowest = max(others, key=lambda plan: self._limits.budget.fill(plan.in_flight))
        return self._held(Cause.BACKPRESSURE, f"above the high watermark: {_slow(slowest)}")

    def _fitting(self, size: BatchSize, others: Sequence[Plan]) -> BatchSize:
        in_flight = InFlight.sum(plan.in_flight for plan in others)
        room = self._limits.budget.room(in_flight, self._record_bytes)
        if room == 0:
            self._stopped = True
            return self._above_high(others)
        # Those that wait for room get some: whoever plans batch after batch would never leave any.
        room = max(1, room // (1 + sum(plan.cause is Cause.BACKPRESSURE for plan in others)))
        if room >= size.records:
            return size
        return BatchSize(room, Cause.BUDGET, f"the budget in flight has room for {room:,} records")

    def full_enough(self, found: int, size: BatchSize) -> bool:
        """Whether a batch of so many records is planned now, or a fuller one is waited for."""
        limits = self._limits
        wanted = min(size.records, limits.least or size.records)
        now = self._clock()
        if found >= wanted or limits.delay_s <= 0:
            return True
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since >= limits.delay_s:
            return True
        text = f"waits for {wanted:,} records, at most {limits.delay_s:g} s"
        self._tell(BatchSize(size.records, Cause.WAITING, text))
        return False

    @property
    def step_s(self) -> float:
        """How long to wait before looking again for a fuller batch: a few looks, each of which asks the brokers."""
        return min(LONGEST_STEP_S, max(STEP_S, self._limits.delay_s / 5))

    def fits(self, records: int, record_bytes: Callable[[], float | None]) -> bool:
        """Whether a batch of so many records fits by its bytes, where nothing was measured yet: `record_bytes` asks then."""
        if self._folder is None or self._record_bytes:
            return True
        budget, others = self._limits.budget, InFlight.sum(plan.in_flight for plan in self._others())
        if records <= budget.room(others, LARGEST_RECORD):
            return True
        self._record_bytes = record_bytes() or LARGEST_RECORD
        return records <= budget.room(others, self._record_bytes)

    def planned(self, records: int, behind: int, size: BatchSize, held: HeldBack | None = None) -> bool:
        """A batch of so many records is to be planned, of `behind` that there are. False if it does not fit any more."""
        size = batch_size.aligned(size, held) if held else size
        if self._folder is None:
            self._begin(records, behind, size)
            return True
        with self._folder.locked():
            if self._folder.paused_ms() is not None:
                return False
            others = self._others()
            in_flight = InFlight.sum(plan.in_flight for plan in others)
            if records > self._limits.budget.room(in_flight, self._record_bytes):
                return False
            self._begin(records, behind, size)
        return True

    def _begin(self, records: int, behind: int, size: BatchSize) -> None:
        now = self._clock()
        self._waiting_since = None
        self._batch = (now, records)
        self._catch_up = self._pace.planned(now, records, behind)
        self._tell(size, records)

    def idle(self, behind: int = 0, held: HeldBack | None = None) -> None:
        """There is nothing to read now, or only what must wait for partitions that are behind."""
        self._waiting_since = None
        self._catch_up = self._pace.idle(behind)
        if self._size is not None:
            self._tell(batch_size.aligned(self._size, held) if held else self._size)

    def reads(self) -> int:
        """How many reads of the source there are now, this one among them."""
        return 1 if self._folder is None else 1 + sum(not plan.aside for plan in self._others())

    def close(self) -> None:
        """The read is stopped: nothing of it is in flight."""
        if self._folder is not None:
            self._folder.forget(self._read, os.getpid())

    # -- parts ---------------------------------------------------------------------------------------

    def _finish(self, most: int | None) -> None:
        """Spark asks for the next batch when the one before is in the tables and in the checkpoint."""
        begins = self._size is None
        if self._size is None:
            self._size = batch_size.first(most)
        if self._folder is not None and (begins or self._batch is not None):
            self._record_bytes = self._folder.record_bytes(self._read) or self._record_bytes
        if self._batch is None:
            return
        (began, records), self._batch = self._batch, None
        if records:
            took_s = self._clock() - began
            self._size = batch_size.following(self._size, records, took_s, self._limits.target_s, most)

    def _held(self, cause: Cause, why: str) -> BatchSize:
        held = BatchSize(0, cause, why)
        if self._told is None or self._told.cause is not cause:
            self._catch_up = None if self._catch_up is None else self._pace.idle(self._catch_up.behind)
        self._tell(held)
        return held

    def _others(self) -> list[Plan]:
        assert self._folder is not None
        return self._folder.plans(besides=(self._read, os.getpid()))

    def _tell(self, size: BatchSize, records: int = 0) -> None:
        """Write the plan, if it is another one."""
        if self._folder is None:
            return
        known = CatchUp(0) if self._catch_up is None else self._catch_up
        behind = None if self._catch_up is None else known.behind
        plan = Plan(
            self._read, tuple(self._views()), os.getpid(), int(time.time() * 1000), records,
            int(records * self._record_bytes), size.records, size.cause, size.why,
            behind, known.reads, known.arrives, size.ahead,
        )  # fmt: skip
        if records or self._told is None or replace(plan, at_ms=self._told.at_ms) != self._told:
            self._folder.write(plan)
            self._told = plan


def _slow(plan: Plan) -> str:
    """Of the read that has most in flight: whose table it waits for."""
    if plan.read == ALL or len(plan.views) != 1:
        return f"the tables of {', '.join(plan.views)} are slow"
    return f"the table of view {plan.views[0]} is slow"
