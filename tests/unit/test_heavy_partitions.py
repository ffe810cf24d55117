"""Heavy partitions, without a broker: which they are, and that their bound holds and loses nothing."""

from __future__ import annotations

import asyncio

import inside
import pytest
from crews import assert_each_once_in_order, crash, done, received
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.errors import OptionConflictError
from forebay.pool import Record
from forebay.pool.crew import Crew, Order
from forebay.pool.heavy import heavy
from forebay.pool.lease import Lease
from forebay.pool.options import bind

LAGS = st.dictionaries(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 100)), max_size=6)


@given(LAGS, st.integers(1, 100), st.sets(st.integers(0, 5)))
def test_a_partition_is_heavy_from_the_lag_on_until_half_of_it_unless_all_are(
    lags: dict[int, int | None], high: int, before: set[int]
) -> None:
    found = heavy(lags, high, before)
    assert len(found) < len(lags) or not lags
    behind = {key for key, lag in lags.items() if lag is not None and lag > high}
    calm = {key for key, lag in lags.items() if lag is None or lag <= high // 2}
    assert not found & calm
    if found:
        assert behind <= found
    assert found - behind <= before


@settings(max_examples=40)
@given(
    st.sampled_from(Order),
    st.lists(st.sampled_from([None, b"a", b"b", b"c"]), min_size=1, max_size=60),
    st.integers(1, 4),
    st.integers(1, 6),
    st.booleans(),
    st.sets(st.integers(0, 59), max_size=10),
)
def test_a_bounded_partition_keeps_its_bound_and_its_order_and_loses_nothing(
    order: Order, keys: list[bytes | None], bound: int, workers: int, lifted: bool, bad: set[int]
) -> None:
    at_work, handled = 0, []

    async def handle(record: Record) -> None:
        nonlocal at_work
        at_work += 1
        assert at_work <= bound or lease.bound is None
        await asyncio.sleep(0)
        at_work -= 1
        if record.offset in bad and record.attempt == 1:
            raise ValueError
        handled.append(record.offset)

    def failed(record: Record, error: BaseException) -> None:
        assert isinstance(error, ValueError), error
        inside.fail_attempt(record)
        asyncio.get_running_loop().call_later(0.001, crew.again, record)

    async def main() -> None:
        nonlocal crew
        crew = Crew(handle, failed, crashed=crash, order=order, limit=workers)
        crew.bind(lease, bound)
        records = received(keys, lease)
        for at in range(0, len(records), 13):
            crew.take(records[at : at + 13])
            await asyncio.sleep(0)
        if lifted:
            await done(crew, len(keys) // 2)
            crew.bind(lease, None)
        await done(crew, len(keys))
        assert lease.tracker.frontier() == len(keys)
        assert not lease.parked

    lease, crew = Lease("t", 0), Crew(handle, failed, crashed=crash)
    asyncio.run(main())
    assert_each_once_in_order(handled, keys, order)


def test_lists_are_not_bounded() -> None:
    with pytest.raises(OptionConflictError, match=r"heavy\.lag"):
        bind({"bootstrap_servers": "b", "topics": ["t"], "group_id": "g", "heavy_lag": 1, "batch_size": 2})
