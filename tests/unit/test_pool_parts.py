"""The pool's parts without a broker: workers and their order, failures, handlers, metrics."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import inside
import pytest
from crews import Message, assert_each_once_in_order, crash, done, received
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import eventually, until

from forebay import testing
from forebay.errors import BadRecordError, HandlerTimeoutError, OptionConflictError, OutputError
from forebay.kafka.producer import OutgoingRecord
from forebay.pool import Record
from forebay.pool.adaptive import Adaptive
from forebay.pool.batch_crew import BatchCrew
from forebay.pool.committer import Committer
from forebay.pool.crew import TURN_S, Crew, Order
from forebay.pool.failures import FailurePolicy, Verdict
from forebay.pool.handler_threads import DaemonThreads
from forebay.pool.handlers import Adapted
from forebay.pool.lease import Lease
from forebay.pool.loop import run
from forebay.pool.options import bind
from forebay.pool.plain_commits import Commits

# -- order -------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    keys=st.lists(st.sampled_from([None, b"a", b"b", b"c"]), min_size=1, max_size=60),
    order=st.sampled_from(list(Order)),
    batch=st.sampled_from([0, 1, 7]),
    bad=st.sets(st.integers(0, 59), max_size=8),
    workers=st.integers(1, 8),
)
def test_whatever_fails_every_record_is_done_and_lanes_keep_their_order(
    keys: list[bytes | None], order: Order, batch: int, bad: set[int], workers: int
) -> None:
    """Records of `bad` fail once; they come back a moment later."""
    handled: list[int] = []
    at_work: Counter[Any] = Counter()

    def lane(record: Record) -> Any:
        return {Order.KEY: record.key, Order.PARTITION: 0, Order.UNORDERED: None}[order]

    async def handle(given: Any) -> None:
        records = given if batch else [given]
        lanes = {lane(record) for record in records} - {None}
        at_work.update(lanes)
        assert all(at_work[one] == 1 for one in lanes)
        await asyncio.sleep(0)
        at_work.subtract(lanes)
        if any(record.offset in bad and record.attempt == 1 for record in records):
            raise ValueError
        handled.extend(record.offset for record in records)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def failed(record: Record, error: BaseException) -> None:
            assert isinstance(error, ValueError)
            inside.fail_attempt(record)
            loop.call_later(0.001, crew.again, record)

        more: dict[str, Any] = {"crashed": crash, "order": order, "limit": workers}
        crew = BatchCrew(handle, failed, size=batch, **more) if batch else Crew(handle, failed, **more)
        lease = Lease("t", 0)
        records = received(keys, lease)
        for at in range(0, len(records), 13):
            crew.take(records[at : at + 13])
            await asyncio.sleep(0)
        await done(crew, len(keys))
        assert lease.tracker.frontier() == len(keys)
        assert lease.lanes == {}

    asyncio.run(main())
    assert_each_once_in_order(handled, keys, order)


def test_as_many_handlers_as_there_are_workers_are_at_work_and_no_more() -> None:
    at_work = most = 0

    async def handle(record: Record) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.002)
        at_work -= 1

    async def main() -> None:
        crew = Crew(handle, lambda *_: None, crashed=crash, limit=50)
        crew.take(received([None] * 1000))
        await done(crew, 500)
        assert most == 50
        crew.limit = 5
        await until(lambda: len(crew.slots) <= 5, "those beyond the limit leave")
        await done(crew, 1000)
        await until(lambda: not crew.slots, "all leave when there is nothing to do")

    asyncio.run(main())


def test_a_handler_that_never_waits_leaves_the_loop_its_turns() -> None:
    async def handle(record: Record) -> None:
        until = time.monotonic() + 0.001
        while time.monotonic() < until:
            pass

    async def main() -> None:
        crew = Crew(handle, lambda *_: None, crashed=crash, limit=10)
        crew.take(received([None] * 300))
        most = last = 0
        while crew.completed < 300:
            await asyncio.sleep(0)
            most, last = max(most, crew.completed - last), crew.completed
        # Counted in records, each of which takes a millisecond or more: however busy the machine is, no more fit in.
        assert most <= 10 * TURN_S / 0.001

    asyncio.run(main())


def test_records_of_a_partition_that_goes_are_not_begun() -> None:
    lease, seen = Lease("t", 0), []

    async def handle(record: Record) -> None:
        seen.append(record.offset)
        lease.closing = True

    async def main() -> None:
        crew = Crew(handle, lambda *_: None, crashed=crash, limit=1)
        crew.take(received([None] * 10, lease))
        while crew.slots:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert seen == [0]
    assert lease.tracker.frontier() == 1


def test_a_handler_that_is_cancelled_from_within_has_failed_and_its_worker_goes_on() -> None:
    failures: list[BaseException] = []

    async def handle(record: Record) -> None:
        if record.offset == 0:
            raise asyncio.CancelledError

    async def main() -> None:
        crew = Crew(handle, lambda _, error: failures.append(error), crashed=crash, limit=1)
        crew.take(received([None] * 3))
        await done(crew, 2)

    asyncio.run(main())
    assert [type(error) for error in failures] == [RuntimeError]


def test_a_handler_that_expired_has_failed_and_its_worker_goes_on() -> None:
    failures: list[BaseException] = []

    async def handle(record: Record) -> None:
        if record.offset == 0:
            await asyncio.sleep(60)

    async def main() -> None:
        crew = Crew(handle, lambda _, error: failures.append(error), crashed=crash, limit=1)
        crew.take(received([None] * 3))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (slot,) = crew.slots
        slot.expired = True
        assert slot.task is not None
        slot.task.cancel()
        await done(crew, 2)

    asyncio.run(main())
    assert [type(error) for error in failures] == [HandlerTimeoutError]


def test_what_is_no_exception_ends_the_pool() -> None:
    crashes: list[BaseException] = []

    async def handle(record: Record) -> None:
        raise SystemExit(3)

    async def main() -> None:
        crew = Crew(handle, lambda *_: None, crashed=crashes.append)
        crew.take(received([None]))
        while crew.slots:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert [type(error) for error in crashes] == [SystemExit]


# -- failures ----------------------------------------------------------------------------------------


def test_the_nearest_class_of_an_exception_decides_and_attempts_run_out() -> None:
    policy = FailurePolicy(
        Verdict.DEAD_LETTER,
        3,
        errors={OSError: Verdict.SKIP, TimeoutError: Verdict.RETRY, KeyError: Verdict.HALT},
    )
    assert policy.verdict(FileNotFoundError(), 1) is Verdict.SKIP
    assert [policy.verdict(TimeoutError(), n) for n in (1, 2, 3)] == ["retry", "retry", "dead_letter"]
    assert policy.verdict(KeyError(), 1) is Verdict.HALT
    assert policy.verdict(ValueError(), 2) is Verdict.RETRY
    assert policy.verdict(BadRecordError("junk"), 1) is Verdict.DEAD_LETTER
    assert FailurePolicy(max_attempts=0).verdict(ValueError(), 10**6) is Verdict.RETRY


@given(st.integers(1, 100))
def test_waits_double_up_to_a_limit_and_are_spread(attempt: int) -> None:
    policy = FailurePolicy(backoff_ms=100, backoff_max_ms=30_000)
    longest = min(30.0, 0.1 * 2 ** (attempt - 1))
    assert longest / 2 <= policy.wait_s(attempt) <= longest


# -- handlers ----------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {"bootstrap_servers": "localhost:1", "topic": "t", "group_id": "g"}


def in_another_process(record: Record) -> tuple[int, int, bytes]:
    """Module level: it is found by its name there."""
    import os

    if record.offset == 13:
        os._exit(1)
    return os.getpid(), record.offset, record.value


def test_a_plain_function_runs_in_processes_of_its_own_and_a_dead_one_is_replaced() -> None:
    import os

    adapted = Adapted(in_another_process, bind({**OPTIONS, "processes": 1}))

    async def main() -> None:
        pid, offset, value = await adapted.call(Record(Message(3), None))
        assert pid != os.getpid()
        assert (offset, value) == (3, b"3")
        with pytest.raises(RuntimeError, match="has died"):
            await adapted.call(Record(Message(13), None))
        assert (await adapted.call(Record(Message(4), None)))[1] == 4

    asyncio.run(main())
    adapted.close()


def test_an_async_handler_with_processes_is_refused() -> None:
    async def handle(record: Record) -> None: ...

    with pytest.raises(OptionConflictError, match="async"):
        Adapted(handle, bind({**OPTIONS, "processes": 1}))


def test_an_object_with_an_async_call_is_an_async_handler() -> None:
    class Handler:
        async def __call__(self, record: Record) -> str:
            return threading.current_thread().name

    adapted = Adapted(Handler(), bind(OPTIONS))
    assert asyncio.run(adapted.call(None)) == threading.current_thread().name  # type: ignore[arg-type]


def test_threads_are_no_more_than_asked_for_and_a_failure_is_the_callers() -> None:
    threads = DaemonThreads(3)
    gate, names = threading.Event(), set()

    def job(wait: bool) -> str:
        names.add(threading.current_thread().name)
        if wait:
            gate.wait(10)
        return "ok"

    futures = [threads.submit(job, True) for _ in range(10)]
    eventually(lambda: len(names) == 3, "three threads are at work")
    gate.set()
    assert [future.result(10) for future in futures] == ["ok"] * 10
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(10)
    assert len(names) == 3
    threads.shutdown()


def test_a_hanging_thread_does_not_keep_the_program_from_ending() -> None:
    code = "import time; from forebay.pool.handler_threads import DaemonThreads; DaemonThreads(1).submit(time.sleep, 600); print('end')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "end\n"


def test_a_record_survives_pickling_with_its_decoded_value() -> None:
    record = testing.record({"id": 1}, key="k", topic="t", offset=5, timestamp=7)
    inside.fail_attempt(record)
    inside.fail_attempt(record)
    copy = pickle.loads(pickle.dumps(record))
    assert (copy.topic, copy.partition, copy.offset, copy.key, copy.raw) == ("t", 0, 5, b"k", b'{"id":1}')
    assert (copy.value, copy.attempt, copy.timestamp, copy.headers) == ({"id": 1}, 3, 7, [])


# -- adaptive ----------------------------------------------------------------------------------------


def simulate(latency_s: Callable[[int], float], most: int, steps: int = 200) -> list[int]:
    adaptive, limits, completed, total_s = Adaptive(most), [], 0, 0.0
    for _ in range(steps):
        completed += adaptive.limit
        total_s += adaptive.limit * latency_s(adaptive.limit)
        limits.append(adaptive.step(completed, total_s, saturated=True))
    return limits


def test_workers_are_added_as_long_as_handlers_do_not_get_slower() -> None:
    assert simulate(lambda _: 0.01, 500)[-1] == 500


def test_workers_stay_about_where_handlers_begin_to_get_slower() -> None:
    """A service that does 40 calls at a time; more of them queue."""
    limits = simulate(lambda limit: 0.01 * max(1, limit / 40), 500)[50:]
    assert 30 <= sum(limits) / len(limits) <= 120


def test_handlers_that_have_become_slower_for_good_get_their_workers_back() -> None:
    calls = iter(range(10**6))
    assert simulate(lambda _: 0.01 if next(calls) < 50 else 0.1, 500, 400)[-1] == 500


def test_without_work_nothing_changes() -> None:
    adaptive = Adaptive(100)
    assert adaptive.step(0, 0.0, saturated=False) == adaptive.limit == 8


# -- what is sent, and what is committed -------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"value": {"a": 1}}, "its value is a dict"),
        ({"value": 5}, "its value is a int"),
        ({"value": [b"x"]}, "its value is a list"),
        ({"value": "\ud800"}, "half of a surrogate pair"),
        ({"value": b"x" * 1001}, "and the most is 1,000"),
        ({"value": b"x" * 500, "key": b"k" * 500}, "and the most is 1,000"),
        ({"headers": [("h", b"x" * 1000)]}, "and the most is 1,000"),
        ({"key": 7}, "its key is a int"),
        ({"topic": None}, "no name of a topic"),
        ({"topic": ""}, "no name of a topic"),
        ({"topic": "a b"}, "no name of a topic"),
        ({"topic": ".."}, "no name of a topic"),
        ({"headers": {"h": b"x"}}, "is no header"),
        ({"headers": [("h",)]}, "is no header"),
        ({"headers": [(None, b"x")]}, "has no name"),
        ({"headers": [("h", 5)]}, "its header's value is a int"),
        ({"partition": -1}, "no partition"),
        ({"partition": "0"}, "no partition"),
        ({"partition": True}, "no partition"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_once_and_nothing_of_it_is_kept(
    given: dict[str, Any], reason: str
) -> None:
    record = Record(Message(0), None)
    outbox = inside.give_outbox(record, 1000)
    with pytest.raises(OutputError, match=reason):
        record.send(**{"topic": "t", "value": b"v", **given})
    assert outbox.records == []


def test_what_can_be_sent_is_bytes_from_then_on() -> None:
    record = Record(Message(0), None)
    outbox = inside.give_outbox(record, 1000)
    value = bytearray(b"v")
    record.send("t", value, key="ä", headers=[("h", "x"), ("n", None)], partition=3)  # type: ignore[arg-type]
    value[:] = b"changed"
    record.send("t", None)
    assert outbox.records == [
        OutgoingRecord("t", "ä".encode(), b"v", [("h", b"x"), ("n", None)], 3),
        OutgoingRecord("t", None, None, []),
    ]


class OddConsumer:
    """Fails once in a way that nobody has thought of."""

    def __init__(self) -> None:
        self.calls = 0

    def commit(self, offsets: Any, asynchronous: bool) -> list[Any]:
        self.calls += 1
        if self.calls == 1:
            raise SystemError("error return without exception set")
        return []


def test_a_commit_that_breaks_off_is_not_taken_for_confirmed(caplog: pytest.LogCaptureFixture) -> None:
    commits = Commits(Committer(interval_s=0), lambda: 1)
    commits.consumer = OddConsumer()  # type: ignore[assignment]
    lease = Lease("t", 0)
    for record in received([None], lease):
        record.done = True
    commits.finish([lease], 10)
    assert commits.consumer.calls == 2  # type: ignore[attr-defined]
    assert (commits.commits, commits.failures) == (1, 1)
    assert lease.committed == (1, "")
    assert "SystemError" in caplog.text


# -- the loop ----------------------------------------------------------------------------------------


def test_timers_of_the_pools_loop_are_exact() -> None:
    late: list[float] = []

    async def main() -> None:
        for _ in range(40):
            began = time.perf_counter()
            await asyncio.sleep(0.0024)
            late.append(time.perf_counter() - began - 0.0024)

    run(main())
    assert sorted(late)[10] < 0.0005  # epoll alone rounds up to 3 ms, each time


def test_timers_of_the_pools_loop_come_in_order_can_be_cancelled_and_may_fail() -> None:
    order, failures = [], []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, told: failures.append(told["exception"]))
        later = loop.call_later(0.02, order.append, "later")
        for number in range(300):  # more than the loop bears of cancelled ones before it sweeps them out
            loop.call_later(60 + number, order.append, "never").cancel()
        loop.call_later(0.01, order.append, "sooner")
        loop.call_later(0.005, lambda: 1 // 0)
        loop.call_at(loop.time() - 1, order.append, "at once")
        assert later.when() > loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.03):
                await asyncio.sleep(60)
        assert not later.cancelled()

    run(main())
    assert order == ["at once", "sooner", "later"]
    assert [type(failure) for failure in failures] == [ZeroDivisionError]


def test_importing_the_pool_loads_no_spark() -> None:
    code = "import sys; from forebay import Pool, Record; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
