"""A transactional pool is not stopped by what one record sends; a pool that fails to start is not running."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pools import committed, ends, pool_on, run_until
from support import Cluster, unique
from waiting import until

from forebay.errors import (
    ForebayError,
    OptionValueError,
    OutputError,
    PoolHaltedError,
    PoolStateError,
    UnknownTopicError,
)
from forebay.pool import Record
from forebay.pool.lease import Lease
from forebay.pool.pool import PoolState

COUNT = 60


@pytest.fixture(scope="module")
def narrow(cluster: Cluster) -> str:
    """A topic that takes no more than 5,000 bytes at a time."""
    return cluster.make_topic(1, max_message_bytes="5000")


# -- what is sent ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "batch"), [("unordered", None), ("unordered", 10), ("key", None)])
def test_a_record_whose_output_the_broker_refuses_fails_alone(
    cluster: Cluster, order: str, batch: int | None
) -> None:
    topic, out = cluster.make_topic(1), cluster.make_topic(1, max_message_bytes="5000")
    for key in (b"a", b"b", b"c"):
        cluster.produce(topic, (b"%s%d" % (key, n) for n in range(COUNT // 3)), key=key)
    refused = {b"a3", b"b0", b"c19"}
    tries: Counter[bytes] = Counter()

    async def handle(given: Any) -> None:
        for record in given if isinstance(given, list) else [given]:
            tries[record.value] += 1
            record.send(out, record.value)
            if record.value in refused:
                record.send(out, b"x" * 20_000)

    pool = pool_on(
        cluster,
        topic,
        workers=10,
        order=order,
        batch_size=batch,
        max_attempts=2,
        dead_letter_topic=topic + "-dlq",
    ).transactional(unique("tx"), interval_ms=50)
    asyncio.run(
        run_until(
            pool, handle, lambda: pool.stats().completed == COUNT and pool.stats().dead_letters == 3, 60
        )
    )
    expected = {b"%s%d" % (key, n) for key in (b"a", b"b", b"c") for n in range(COUNT // 3)} - refused
    found = cluster.values(out)
    assert len(found) == len(expected)
    assert set(found) == expected
    assert committed(cluster, pool, topic) == ends(cluster, topic)
    assert {tries[value] for value in refused} == {2}
    assert set(tries.values()) <= {1, 2}
    letters = cluster.records(topic + "-dlq")
    assert {message.value() for message in letters} == refused
    kinds = {dict(message.headers())["forebay.error.kind"] for message in letters}
    assert kinds == {b"OutputError"}


def test_outputs_that_are_too_large_only_together_are_written(cluster: Cluster, narrow: str) -> None:
    """The client library puts them into one batch, and the broker measures that."""
    topic = cluster.make_topic(1)
    cluster.produce(topic, (b"%d" % n for n in range(20)))
    texts = {b"%d" % n: b"%d" % n * 800 for n in range(20)}

    async def handle(record: Record) -> None:
        record.send(narrow, texts[record.value])
        record.send(narrow, texts[record.value])

    before = len(cluster.values(narrow))
    pool = pool_on(cluster, topic).transactional(unique("tx"), interval_ms=50)
    asyncio.run(
        run_until(
            pool, handle, lambda: pool.stats().partitions and pool.stats().partitions[0].committed == 20, 60
        )
    )
    assert Counter(cluster.values(narrow)[before:]) == dict.fromkeys(texts.values(), 2)


def test_a_record_that_is_refused_late_does_not_let_those_that_overtook_it_be_written_again(
    cluster: Cluster, narrow: str
) -> None:
    """Those are committed beyond it, and must stay so when the commit's offset goes back to it."""
    topic, out, group = cluster.make_topic(1), cluster.make_topic(1), unique("group")
    cluster.produce(topic, (b"%d" % n for n in range(30)))
    release = asyncio.Event()

    async def handle(record: Record) -> None:
        if record.offset == 5:
            await release.wait()
            record.send(narrow, b"x" * 20_000)
        record.send(out, record.value)

    pool = pool_on(cluster, topic, group_id=group, max_attempts=1, max_errors=5).transactional(
        unique("tx"), interval_ms=20
    )

    async def main() -> None:
        await pool.start(handle)
        await until(lambda: pool.stats().completed == 29, "all but one are done")
        await until(lambda: len(cluster.values(out)) == 29, "and written")
        release.set()
        await until(lambda: pool.stats().halted == 1, "the late one is refused")
        await pool.stop()

    asyncio.run(main())
    assert committed(cluster, pool, topic) == {0: 5}

    async def good(record: Record) -> None:
        record.send(out, record.value)

    again = pool_on(cluster, topic, group_id=group).transactional(unique("tx"), interval_ms=20)
    asyncio.run(run_until(again, good, lambda: again.stats().completed == 1))
    assert sorted(cluster.values(out), key=int) == [b"%d" % n for n in range(30)]


def test_outputs_that_are_refused_count_as_failures_of_their_records(cluster: Cluster, narrow: str) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"x"] * 3)

    async def handle(record: Record) -> None:
        record.send(narrow, b"x" * 20_000)

    pool = pool_on(cluster, topic, max_attempts=1, max_errors=1).transactional(unique("tx"), interval_ms=50)
    with pytest.raises(PoolHaltedError, match="is refused: Broker: Message size too large") as halted:
        asyncio.run(run_until(pool, handle, lambda: False, 60))
    assert isinstance(halted.value.__cause__, OutputError)


# -- starting ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def a_port_that_is_taken() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("forebay-pool")}


async def handle_nothing(record: Record) -> None: ...


@pytest.mark.parametrize("reason", ["port", "topic", "letters", "columns"])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_pool_that_fails_to_start_is_not_running(
    cluster: Cluster, reason: str, transactional: bool
) -> None:
    topic = cluster.make_topic(1)
    expected: type[ForebayError] = OptionValueError

    async def main(**settings: Any) -> None:
        before = threads()
        pool = pool_on(cluster, settings.pop("topic", topic), **settings)
        if transactional:
            pool.transactional(unique("tx"))
        with pytest.raises(expected) as raised:
            await pool.run(handle_nothing)
        assert pool.state is PoolState.STOPPED
        assert threads() <= before
        await pool.stop()
        with pytest.raises(expected) as again:
            await pool.wait()
        assert again.value is raised.value
        if reason != "port":
            with pytest.raises(PoolStateError):
                pool.stats()
        with pytest.raises(PoolStateError, match="the pool is stopped"):
            await pool.start(handle_nothing)

    if reason == "port":
        with a_port_that_is_taken() as port:
            asyncio.run(main(metrics_port=port, dead_letter_topic=topic + "-dlq"))
    elif reason == "topic":
        expected = UnknownTopicError
        asyncio.run(main(topic="there-is-no-such-topic"))
    elif reason == "letters":
        expected = ForebayError
        asyncio.run(main(dead_letter_topic=topic))
    else:
        asyncio.run(main(format="csv", columns="n NONSENSE"))
    assert cluster.admin.list_consumer_groups().result(30)  # the client is alive and well


def test_a_pool_that_was_not_started_has_nothing_to_wait_for(cluster: Cluster) -> None:
    async def main() -> None:
        pool = pool_on(cluster, "t")
        await pool.stop()
        with pytest.raises(PoolStateError, match="not started"):
            await pool.wait()

    asyncio.run(main())


def test_a_pool_whose_polling_thread_fails_ends_with_the_reason_though_nobody_waits(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.make_topic(1)

    async def main() -> None:
        pool = pool_on(cluster, topic)
        await pool.start(handle_nothing)
        monkeypatch.setattr(Lease, "receive", lambda *given: 1 // 0)
        await asyncio.to_thread(cluster.produce, topic, [b"x"])
        await until(lambda: pool.state is PoolState.STOPPED, "it is stopped by itself")
        with pytest.raises(ForebayError, match="ZeroDivisionError"):
            await pool.wait()
        assert threads() == set()

    asyncio.run(main())
