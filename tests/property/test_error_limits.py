"""The rate limit, the ledger and the breakers: whatever comes, in whatever order, their promises hold."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from forebay.connectors.contract import RejectedRecord, Stretch
from forebay.deadletter.breaker import FEWEST, Health, HealthFolder
from forebay.deadletter.ledger import NEAR, joined
from forebay.deadletter.limiter import Bucket, SharedLimiter, TaskLimiter, shares
from forebay.deadletter.policy import ErrorPolicy

asks = st.lists(st.tuples(st.floats(-2, 5), st.integers(0, 300)), min_size=1, max_size=40)


# -- the rate limit ---------------------------------------------------------------------------------------


@given(st.integers(1, 200), asks)
def test_never_more_than_the_rate_and_one_burst_in_any_stretch_of_time(
    rate: int, steps: list[tuple[float, int]]
) -> None:
    now = 1000.0
    bucket = Bucket.full(rate, now)
    granted: list[tuple[float, int]] = []
    latest = now
    for step, wanted in steps:
        now += step  # also backwards: a clock may be set
        latest = max(latest, now)
        given_now, bucket = bucket.take(wanted, now)
        assert 0 <= given_now <= wanted
        granted.append((latest, given_now))
    for first in range(len(granted)):
        total = 0
        for moment, count in granted[first:]:
            total += count
            assert total <= rate * (moment - granted[first][0]) + rate + 1e-6


@given(st.integers(1, 200), st.integers(2, 60))
def test_who_always_asks_gets_the_rate_within_a_tenth_after_ten_seconds(
    rate: int, asks_a_second: int
) -> None:
    bucket = Bucket.full(rate, 0.0)
    total = 0
    for step in range(10 * asks_a_second):
        granted, bucket = bucket.take(1000, (step + 1) / asks_a_second)
        total += granted
    assert 10 * rate - 1 <= total <= 11 * rate


@given(st.integers(1, 200), st.integers(2, 200))
def test_who_asks_only_where_it_is_worth_it_gets_the_rate_all_the_same(
    rate: int, reads_a_second: int
) -> None:
    now = 1000.0
    limiter = TaskLimiter(Bucket.full(rate, now), lambda: now)
    total = asked = 0
    for step in range(3 * reads_a_second):
        now = 1000.0 + step / reads_a_second
        worth = limiter.worth_asking()
        asked += worth > 0
        assert limiter.take(worth) == worth
        total += worth
    # A burst at the start, and all that has come since but for what the last tenth of a second brought.
    assert rate * (now - 1000.0 - 0.1) + rate - 1 <= total <= rate * (now - 1000.0) + rate
    assert asked <= 1 + 10 * 3


def test_reads_that_plan_at_once_are_lent_no_more_than_one_alone(tmp_path: Path) -> None:
    lent: list[float] = []

    def plan() -> None:
        limiter = SharedLimiter(tmp_path / "b", 50, lambda: 7.0)
        lent.extend(limiter.lend(str(threading.get_ident()) + "x").tokens for _ in range(20))

    threads = [threading.Thread(target=plan) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(lent) == 50


def test_a_bucket_whose_writer_was_killed_and_a_clock_set_back_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"[100, 3")
    now = 5000.0
    assert SharedLimiter(tmp_path / "b", 10, lambda: now).lend().tokens == 10
    now = 10.0
    late = SharedLimiter(tmp_path / "b", 10, lambda: now)
    assert late.lend().tokens == 0
    now = 11.0
    assert late.lend().tokens == 10


@given(st.integers(1, 200), st.integers(1, 8), st.lists(st.tuples(st.floats(0, 2), asks), max_size=6))
def test_what_is_lent_and_given_back_is_never_more_than_the_rate(
    rate: int, tasks: int, batches: list[tuple[float, list[tuple[float, int]]]]
) -> None:
    """Batches one after another, their tasks side by side: as one bucket that all of them had asked."""
    now = [1000.0]
    total = 0
    with TemporaryDirectory() as folder:
        limiter = SharedLimiter(Path(folder) / "b", rate, lambda: now[0])
        for pause, steps in batches:
            now[0] += pause
            shared = [TaskLimiter(share, lambda: now[0]) for share in shares(limiter.lend(), tasks)]
            for step, wanted in steps:
                now[0] += max(0.0, step)
                total += sum(task.take(wanted) for task in shared)
            limiter.give_back([task.left() for task in shared])
    assert total <= rate * (now[0] - 1000.0) + rate + 1e-6


@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 2), st.integers(0, 300), st.booleans()), max_size=40),
)
def test_reads_that_run_at_a_time_are_lent_no_more_than_the_rate_together(
    rate: int, steps: list[tuple[int, float, int, bool]]
) -> None:
    """Three reads lend, take and give back in any order; some give nothing back, because their batch was given up."""
    now, total = [1000.0], 0
    with TemporaryDirectory() as folder:
        limiter = SharedLimiter(Path(folder) / "b", rate, lambda: now[0])
        held: dict[int, TaskLimiter] = {}
        for read, step, wanted, gives_back in steps:
            now[0] += step
            if read not in held:
                held[read] = TaskLimiter(limiter.lend(f"r{read}", 3 if gives_back else 1), lambda: now[0])
            total += held[read].take(wanted)
            if gives_back:
                limiter.give_back([held.pop(read).left()], f"r{read}")
            elif wanted % 7 == 0:
                del held[read]
    assert total <= rate * (now[0] - 1000.0) + rate + 1e-6


def test_two_reads_at_a_time_share_the_rate_and_one_that_is_gone_holds_none_of_it(tmp_path: Path) -> None:
    now = [1000.0]
    limiter = SharedLimiter(tmp_path / "b", 100, lambda: now[0])
    first, late = limiter.lend("all.1", 2), limiter.lend("view-v.1", 2)
    assert (first.rate, first.tokens, late.rate, late.tokens) == (50, 50, 50, 50)
    limiter.give_back([first], "all.1")
    limiter.give_back([late], "view-v.1")
    alone = limiter.lend("all.1")
    assert (alone.rate, alone.tokens) == (100, 100)
    assert limiter.lend("view-v.1", 2).rate == 0, "all of it is lent"
    limiter.give_back([alone], "all.1")
    limiter.give_back([Bucket(0, 0.0, now[0])], "view-v.1")
    assert limiter.lend(f"view-v.{2**22 + 1}").tokens == 100  # beyond any process's number
    now[0] += 1
    again = limiter.lend("all.1")
    assert (again.rate, again.tokens) == (100, 100), "of who is gone nothing comes back, and nothing is held"


@given(st.integers(1, 200), st.integers(1, 4), st.integers(1, 40))
def test_who_always_asks_gets_the_rate_also_of_what_is_lent(rate: int, tasks: int, batches: int) -> None:
    now = [1000.0]
    total = 0
    with TemporaryDirectory() as folder:
        limiter = SharedLimiter(Path(folder) / "b", rate, lambda: now[0])
        for _ in range(batches):
            shared = [TaskLimiter(share, lambda: now[0]) for share in shares(limiter.lend(), tasks)]
            now[0] += 0.1
            total += sum(task.take(1000) for task in shared)
            left = [task.left() for task in shared]
            now[0] += 0.1  # the batch is kept
            limiter.give_back(left)
    whole = rate * (now[0] - 1000.0 - 0.1)
    assert total >= 0.9 * whole - tasks - 1, "each task gives whole letters only"


# -- the ledger -------------------------------------------------------------------------------------------

offsets = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1), st.integers(0, 9000)), unique=True
)


@given(offsets)
def test_joined_stretches_hold_every_record_and_count_each_once(places: list[tuple[str, int, int]]) -> None:
    found = joined(Stretch(topic, number, offset, offset + 1, 1) for topic, number, offset in places)
    assert sum(each.bad for each in found) == len(places)
    for topic, number, offset in places:
        assert sum(each[:2] == (topic, number) and each.start <= offset < each.end for each in found) == 1
    for one, other in itertools.pairwise(found):
        assert one[:2] != other[:2] or other.start - one.end >= NEAR
    assert joined(found) == found


# -- the breakers -----------------------------------------------------------------------------------------


def seen(health: Health, record_is_bad: list[bool]) -> None:
    rejected, good = [], 0
    for offset, bad in enumerate(record_is_bad):
        if bad:
            rejected.append(RejectedRecord("t", 0, offset, "Other", "why", before=good))
        good += not bad
    health.see(rejected, good)


@given(st.lists(st.lists(st.booleans(), max_size=30), min_size=1, max_size=6), st.integers(1, 20))
def test_the_longest_run_is_found_however_the_records_are_cut_into_batches_and_tasks(
    batches: list[list[bool]], most: int
) -> None:
    policy = ErrorPolicy(max_consecutive_errors=most)
    whole = [bad for batch in batches for bad in batch]
    longest = max((len(run) for run in "".join("x" if bad else " " for bad in whole).split()), default=0)
    health, tripped = Health(), False
    for batch in batches:
        health = health.handed_on()
        seen(health, batch)
        tripped = tripped or health.fault(policy) is not None
    assert tripped == (longest >= most)


@given(st.integers(0, 400), st.integers(0, 400), st.floats(0, 1))
def test_a_ratio_is_judged_of_a_hundred_records_or_more(bad: int, good: int, ratio: float) -> None:
    health = Health()
    seen(health, [True] * bad + [False] * good)
    expected = bad + good >= FEWEST and bad > ratio * (bad + good)
    assert (health.fault(ErrorPolicy(max_error_ratio=ratio)) is not None) == expected


def test_how_a_partition_fared_goes_on_where_the_next_task_starts(tmp_path: Path) -> None:
    health = Health()
    seen(health, [False] * 50 + [True] * 3)
    kept = HealthFolder(tmp_path)
    kept.save("my-topic", 0, 0, 53, health)
    kept.save("my-topic", 0, 53, 90, Health())
    assert kept.load("my-topic", 0, 53).run == 3
    assert kept.load("my-topic", 0, 53).records == 53
    assert kept.load("my-topic", 0, 54) == Health()
    kept.save("my-topic", 0, 90, 120, Health())
    assert kept.load("my-topic", 0, 53) == Health(), "nobody starts there any more"
    assert len(list(tmp_path.iterdir())) == 2


@given(st.lists(st.lists(st.booleans(), max_size=40), max_size=5))
def test_tasks_that_read_parts_of_a_partition_are_judged_as_one(parts: list[list[bool]]) -> None:
    whole = Health()
    seen(whole, [each for part in parts for each in part])
    joined = Health()
    for part in parts:
        of_task = Health()
        seen(of_task, part)
        joined = joined.then(of_task)
    assert joined == whole


@given(st.integers(1, 1000), st.floats(0, 1000), st.integers(1, 50))
def test_shares_of_a_bucket_are_the_bucket(rate: int, tokens: float, tasks: int) -> None:
    whole = Bucket(rate, min(float(rate), tokens), 0.0)
    found = shares(whole, tasks)
    assert sum(share.rate for share in found) == rate
    assert sum(share.tokens for share in found) <= whole.tokens + 1e-9
    assert all(share.tokens <= share.rate for share in found)
    assert max(share.rate for share in found) - min(share.rate for share in found) <= 1
