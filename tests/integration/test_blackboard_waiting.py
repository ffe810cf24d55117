"""Nothing that a blackboard waits for keeps the program's event loop waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import inside
import pytest
from boards import artifact, board, run
from support import Cluster
from waiting import until

from forebay.devstack import DevStack
from forebay.errors import BlackboardError

STALL_S = 0.5  # a machine that is shared stalls now and then; what blocks here blocks for longer


@asynccontextmanager
async def a_loop_that_turns() -> AsyncIterator[Callable[[], int]]:
    """Fails if the event loop stood still for a moment inside. What it yields says how often it has turned."""
    longest, last, turns = 0.0, time.monotonic(), 0

    async def beat() -> None:
        nonlocal longest, last, turns
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            longest, last, turns = max(longest, now - last), now, turns + 1

    beating = asyncio.ensure_future(beat())
    try:
        yield lambda: turns
        seen = turns
        await until(lambda: turns > seen, "it turns once more: what stood still until now is counted")
    finally:
        beating.cancel()
    assert longest < STALL_S, f"the event loop stood still for {longest:.2f} s"


def test_publishers_wait_for_room_in_the_queue_and_the_event_loop_does_not(mortal_broker: DevStack) -> None:
    cluster, count = Cluster(mortal_broker), 40

    async def work() -> None:
        small = {"kafka.queue.buffering.max.messages": "3"}
        async with board(cluster, partitions=1, read_timeout_ms=60_000, **small) as store:
            await asyncio.to_thread(mortal_broker.broker.kill)
            async with a_loop_that_turns() as turns:
                sent = [
                    asyncio.ensure_future(store.publish(artifact(n, correlation_id="c")))
                    for n in range(count)
                ]
                await until(lambda: turns() > 200, "the loop turns while they wait")
                assert not any(each.done() for each in sent)
                await asyncio.to_thread(mortal_broker.broker.start)
                await asyncio.gather(*sent)
            assert [each.payload["n"] for each in await store.list()] == list(range(count))
            assert len(cluster.records(store.topics.artifacts)) == count

    run(work(), 120)


def test_a_look_at_one_artifact_or_mark_does_not_wait_for_a_long_search(cluster: Cluster) -> None:
    async def work() -> None:
        async with board(cluster) as store:
            one = artifact(1)
            await store.publish(one)
            await store.list()
            marks, searching, over = store.marks(), threading.Event(), threading.Event()

            def search() -> None:
                with inside.moment_of(store):
                    searching.set()
                    over.wait(20)

            held = asyncio.ensure_future(asyncio.to_thread(search))
            await asyncio.to_thread(searching.wait, 10)
            threading.Timer(3, over.set).start()  # so that a loop that stands still goes on at last
            async with a_loop_that_turns():
                assert await store.get(one.id) == one
                assert await store.get(uuid4()) is None
                assert not await marks.has(str(one.id), "web", "", None)
                for number in range(200):
                    marks.made(str(number), "web", "", None)
            assert not over.is_set()
            over.set()
            await held

    run(work())


def test_own_marks_are_let_go_a_few_at_a_time(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.blackboard.marks.PRUNE", 100)

    async def work() -> None:
        async with board(cluster, partitions=1) as store:
            marks, ids = store.marks(), [str(uuid4()) for _ in range(300)]
            await inside.write_records(
                store, [marks.mark(each, "web", "", ("t", 0, 1), {"result": "done"}) for each in ids[:200]]
            )
            await store.list()
            for each in ids:
                marks.made(each, "web", "", store)
            # Those that the index does not have are kept, however many others are let go.
            assert [each for each in ids[200:] if await marks.has(each, "web", "", None)] == []
            assert len(inside.fresh_marks(marks)) <= 160
            assert {f"{each}:web".encode() for each in ids[200:]} <= set(inside.fresh_marks(marks))

    run(work())


@pytest.mark.parametrize("transactions", [False, True], ids=["plain", "transactional"])
def test_a_writer_whose_thread_fails_lets_nobody_wait_for_ever(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, transactions: bool
) -> None:
    """What ends such a thread is a fault that nobody has thought of: one is put into its way."""

    async def work() -> None:
        async with board(cluster, transactions=transactions) as store:
            await store.publish(artifact(1))
            broken = True

            class Broken:
                failures = 0

                def __init__(self, real: Any) -> None:
                    self.real = real

                def __getattr__(self, name: str) -> Any:
                    if broken and name in ("poll", "begin_transaction", "abort_transaction"):
                        Broken.failures += 1
                        raise LookupError("nobody has thought of this")
                    return getattr(self.real, name)

            inside.replace_producer(store, Broken)
            if transactions:
                with pytest.raises((LookupError, BlackboardError)):
                    await asyncio.wait_for(store.publish(artifact(2)), 20)
            else:
                waiting = asyncio.ensure_future(store.publish(artifact(2)))
                await until(lambda: Broken.failures > 3, "its thread has failed again and again")
            broken = False
            if not transactions:
                await asyncio.wait_for(waiting, 20)
            await asyncio.wait_for(store.publish(artifact(3)), 20)
            assert 3 in [each.payload["n"] for each in await store.list()]

    run(work())
