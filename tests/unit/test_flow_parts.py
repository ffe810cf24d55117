"""Sizes of batches, the budget in flight, catching up: as a read decides them, without a broker."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.source import batch_size
from forebay.source.batch_size import FIRST, GROWTH, LEAST, BatchSize, Cause, first, following
from forebay.source.budget import Budget, InFlight
from forebay.source.catch_up import CatchUp, ReadPace
from forebay.source.flow import FlowLimits, ReadFlow
from forebay.source.flow_folder import FlowFolder, Plan

CAP = 4_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# -- the size of a batch ---------------------------------------------------------------------------------


def test_a_first_batch_is_small_and_a_backlog_of_ten_million_is_read_in_few() -> None:
    size, left, batches = first(CAP), 10_000_000, 0
    assert (size.records, size.cause) == (FIRST, Cause.FIRST)
    while left:
        read = min(size.records, left)
        left, batches = left - read, batches + 1
        size = following(size, read, 0.2 + read / 1_000_000, 5.0, CAP)
    assert batches <= 6  # three of them would do without the small ones in front


@given(
    overhead=st.floats(0.01, 2.0),
    per_record=st.floats(1e-7, 1e-3),
    target=st.floats(0.5, 20.0),
    cap=st.integers(1, CAP),
)
def test_batches_of_a_backlog_come_to_take_the_target_or_stand_at_a_bound(
    overhead: float, per_record: float, target: float, cap: int
) -> None:
    size = first(cap)
    for _ in range(60):
        size = following(size, size.records, overhead + size.records * per_record, target, cap)
        assert 1 <= size.records <= cap
    took = overhead + size.records * per_record
    at_a_bound = size.records in (cap, LEAST) or size.records <= LEAST
    assert at_a_bound or 0.5 * target <= took <= 1.5 * target


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 100)), max_size=40), st.integers(1, CAP))
def test_a_size_never_leaves_its_bounds_and_grows_by_the_factor_at_most(
    batches: list[tuple[float, float]], cap: int
) -> None:
    size = first(cap)
    for share, took in batches:
        before, size = size, following(size, int(size.records * share), took, 5.0, cap)
        assert min(cap, LEAST, before.records) <= size.records <= min(cap, before.records * GROWTH)
        assert size.why


def test_a_batch_that_held_all_there_was_says_nothing_about_a_larger_one() -> None:
    size = BatchSize(100_000, Cause.GREW, "")
    assert following(size, 150, 0.1, 5.0).records == 100_000
    assert following(size, 150, 60.0, 5.0).records == LEAST  # it took far too long all the same
    assert "150 records" in following(size, 150, 0.1, 5.0).why


def test_each_decision_says_why() -> None:
    size = first(CAP)
    grew = following(size, size.records, 0.4, 2.0, CAP)
    assert (grew.cause, grew.why) == (Cause.GREW, "grew: last batch took 0.4 s of 2 s")
    shrank = following(grew, grew.records, 4.0, 2.0, CAP)
    assert (shrank.cause, shrank.why) == (Cause.SHRANK, "shrank: last batch took 4.0 s of 2 s")
    assert following(size, size.records, 0.1, 2.0, 30_000).why == "capped by max.records.per.batch"
    assert batch_size.first(10).cause is Cause.CAPPED


# -- the budget in flight --------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 1000)), max_size=60),
    st.floats(1, 5000),
)
def test_what_is_planned_never_passes_the_high_watermark(
    steps: list[tuple[int, bool, int]], record_bytes: float
) -> None:
    """Four reads of a source plan and finish batches in any order."""
    budget = Budget(1000, 1_000_000, 0.8, 0.5)
    held: dict[int, InFlight] = {}
    for read, finishes, wanted in steps:
        held.pop(read, None)
        if finishes:
            continue
        others = InFlight.sum(held.values())
        records = min(wanted, budget.room(others, record_bytes))
        if records:
            held[read] = InFlight(records, int(records * record_bytes))
        total = InFlight.sum(held.values())
        assert budget.fill(total) <= budget.high or total.records == 1


def test_above_the_high_watermark_nothing_is_fetched_until_it_is_below_the_low_one() -> None:
    budget = Budget(1000, 1 << 40, 0.8, 0.5)
    fills, stopped, seen = [0, 600, 800, 900, 600, 501, 500, 499, 700], False, []
    for records in fills:
        stopped = budget.stopped(InFlight(records), stopped)
        seen.append(stopped)
    assert seen == [False, False, True, True, True, True, True, False, False]


def test_a_record_that_is_larger_than_the_budget_is_read_where_nothing_else_is_in_flight() -> None:
    budget = Budget(1000, 1000)
    assert budget.room(InFlight(), 10_000_000) == 1
    assert budget.room(InFlight(1, 10), 10_000_000) == 0


def test_two_reads_share_one_budget_and_the_one_that_waits_names_whose_table_is_slow(tmp_path: Path) -> None:
    folder, limits = FlowFolder(tmp_path / "flow"), FlowLimits(budget=Budget(1000, 1 << 30))
    folder.write(_plan("view-slow", 800))
    flow = ReadFlow(limits, folder, "all", lambda: ["v"])
    held = flow.next(CAP)
    assert (held.records, held.cause) == (0, Cause.BACKPRESSURE)
    assert held.why == "above the high watermark: the table of view slow is slow"
    assert [plan.cause for plan in folder.plans() if plan.read == "all"] == [Cause.BACKPRESSURE]
    folder.write(_plan("view-slow", 600))  # below the high one, but not the low one
    assert flow.next(CAP).records == 0
    folder.write(_plan("view-slow", 400))
    assert (flow.next(CAP).records, flow.next(CAP).cause) == (400, Cause.BUDGET)


def test_a_read_leaves_room_for_one_that_waits(tmp_path: Path) -> None:
    folder, limits = FlowFolder(tmp_path / "flow"), FlowLimits(budget=Budget(1000, 1 << 30))
    greedy = ReadFlow(limits, folder, "all", lambda: ["v"])
    assert greedy.next(CAP).records == 800
    folder.write(replace(_plan("view-w", 0), cause=Cause.BACKPRESSURE))
    size = greedy.next(CAP)
    assert (size.records, size.cause) == (400, Cause.BUDGET)
    assert greedy.planned(400, 400, size)
    assert not limits.budget.stopped(InFlight(400), True), "the other one goes on"


def test_a_batch_that_does_not_fit_any_more_is_not_planned(tmp_path: Path) -> None:
    folder, limits = FlowFolder(tmp_path / "flow"), FlowLimits(budget=Budget(1000, 1 << 30))
    flow = ReadFlow(limits, folder, "all", lambda: ["v"])
    size = flow.next(CAP)
    folder.write(_plan("view-other", 500))  # between the decision and the plan
    assert not flow.planned(size.records, size.records, size)
    size = flow.next(CAP)
    assert size.records == 300
    assert flow.planned(300, 300, size)
    assert InFlight.sum(plan.in_flight for plan in folder.plans()).records == 800


def test_the_plan_of_a_process_that_is_gone_counts_for_nothing(tmp_path: Path) -> None:
    folder = FlowFolder(tmp_path / "flow")
    folder.write(_plan("view-a", 10, pid=2**22 + 1))  # beyond any process number
    folder.write(_plan("view-b", 10, pid=1, at_ms=1))  # of a process that had this number long ago
    folder.write(_plan("view-c", 10))
    assert [plan.read for plan in folder.plans()] == ["view-c"]


def test_bytes_of_records_narrow_the_batch(tmp_path: Path) -> None:
    folder, limits = FlowFolder(tmp_path / "flow"), FlowLimits(budget=Budget(CAP, 1_000_000))
    flow = ReadFlow(limits, folder, "all", lambda: ["v"])
    size = flow.next(CAP)
    assert flow.planned(size.records, CAP, size)
    folder.measured("all", InFlight(100, 100_000))  # a kilobyte each
    assert flow.next(CAP).records == 800


@pytest.mark.parametrize(
    ("sampled", "fits", "most"), [(100.0, True, FIRST), (1e6, False, 858), (None, False, 819)]
)
def test_a_first_batch_fits_by_the_bytes_of_a_few_records_or_else_by_those_of_the_largest(
    tmp_path: Path, sampled: float | None, fits: bool, most: int
) -> None:
    flow = ReadFlow(FlowLimits(), FlowFolder(tmp_path / "flow"), "all", lambda: ["v"])
    asked: list[bool] = []

    def record_bytes() -> float | None:
        asked.append(True)
        return sampled

    assert flow.next(CAP).records == FIRST
    assert flow.fits(800, record_bytes), "so many fit whatever they are"
    assert not asked
    assert flow.fits(FIRST, record_bytes) is fits
    size = flow.next(CAP)
    assert size.records == most
    assert flow.fits(size.records, record_bytes)
    assert flow.planned(size.records, CAP, size)
    assert len(asked) == 1


# -- pausing and waiting ---------------------------------------------------------------------------------


def test_a_paused_read_plans_nothing_also_when_it_is_paused_while_it_plans(tmp_path: Path) -> None:
    folder = FlowFolder(tmp_path / "flow")
    flow = ReadFlow(FlowLimits(), folder, "all", lambda: ["v"])
    size = flow.next(CAP)
    assert folder.pause()
    assert not folder.pause()
    assert not flow.planned(10, 10, size)
    assert flow.next(CAP).cause is Cause.PAUSED
    [plan] = folder.plans()
    assert (plan.cause, plan.records) == (Cause.PAUSED, 0)
    assert folder.resume()
    assert not folder.resume()
    assert flow.next(CAP).records == size.records


@pytest.mark.parametrize("least", [None, 100])
def test_a_batch_waits_for_more_records_but_no_longer_than_the_delay(least: int | None) -> None:
    clock = Clock()
    flow = ReadFlow(FlowLimits(delay_s=0.5, least=least), None, "", lambda: [], clock)
    size = flow.next(CAP)
    assert not flow.full_enough(10, size)
    clock.now += 0.4
    assert not flow.full_enough(50, size)
    assert flow.full_enough(size.records, size)
    assert flow.full_enough(100, size) is (least == 100)
    clock.now += 0.1
    assert flow.full_enough(50, size)
    assert flow.planned(50, 50, size)
    flow.next(CAP)
    assert not flow.full_enough(10, size)  # the next one waits anew


def test_how_long_a_batch_took_is_what_the_next_one_follows() -> None:
    clock = Clock()
    flow = ReadFlow(FlowLimits(target_s=2.0), None, "", lambda: [], clock)
    size = flow.next(CAP)
    assert flow.planned(size.records, CAP, size)
    clock.now += 0.5
    assert flow.next(CAP) == BatchSize(FIRST * 4, Cause.GREW, "grew: last batch took 0.5 s of 2 s")


# -- catching up -----------------------------------------------------------------------------------------


def test_a_catch_up_is_estimated_from_what_is_read_less_what_arrives() -> None:
    pace = ReadPace()
    assert str(pace.planned(0.0, 100_000, 1_000_000)) == "behind by 1.0 M records"
    found = pace.planned(1.0, 100_000, 920_000)  # 100,000 were read, 20,000 came
    assert (found.reads, found.arrives, found.seconds) == (100_000, 20_000, 11.5)
    assert str(found) == "behind by 920,000 records, 12 s at this rate"
    assert str(pace.planned(2.0, 100_000, 80_000)) == "current"  # this batch takes all of them


def test_one_that_does_not_catch_up_says_so() -> None:
    pace = ReadPace()
    pace.planned(0.0, 10_000, 1_000_000)
    found = pace.planned(1.0, 10_000, 1_002_000)
    assert found.seconds == float("inf")
    assert str(found) == "behind by 1.0 M records, not catching up: 12,000 a second arrive, 10,000 are read"


@given(st.integers(1, 10**12), st.floats(0, 1e9), st.floats(0, 1e9))
def test_every_estimate_has_words(behind: int, reads: float, arrives: float) -> None:
    text = str(CatchUp(behind, reads, arrives))
    assert text.startswith("behind by ")
    assert text.endswith("at this rate") or "not catching up" in text


def _plan(read: str, records: int, *, pid: int | None = None, at_ms: int = 1 << 50) -> Plan:
    return Plan(
        read, (read.removeprefix("view-"),), pid or os.getpid() if pid is None else pid, at_ms, records, records,
        records, Cause.KEPT, "",
    )  # fmt: skip
