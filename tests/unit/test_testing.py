"""`forebay.testing`: what a handler does with records, decided by the pool's own code, without a broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.errors import BadRecordError, HandlerTimeoutError, PoolHaltedError, PoolStateError
from forebay.kafka.producer import OutgoingRecord
from forebay.testing import HandledRecord, handle, record


def summary(outcomes: list[HandledRecord]) -> list[tuple[str, int]]:
    return [(each.verdict, each.attempts) for each in outcomes]


def test_a_record_is_what_a_handler_is_given() -> None:
    made = record(
        {"id": 1}, key="k", headers=[("h", b"x")], topic="orders", partition=3, offset=7, timestamp=1000
    )
    assert (made.value, made.raw, made.key, made.headers) == ({"id": 1}, b'{"id":1}', b"k", [("h", b"x")])
    assert (made.topic, made.partition, made.offset, made.timestamp) == ("orders", 3, 7, 1000)
    assert made.attempt == 1
    assert (record("text").value, record(b"\xff").value) == (b"text", b"\xff")
    assert (record().value, record().key, record().headers, record().timestamp) == (None, None, [], None)


async def coroutine(record: forebay.Record) -> None:
    assert record.value == {"id": 1}


def function(record: forebay.Record) -> None:
    assert threading.current_thread() is not threading.main_thread()
    assert record.value == {"id": 1}


@pytest.mark.parametrize("handler", [coroutine, function])
def test_async_and_plain_handlers_run_as_in_a_pool(handler: Any) -> None:
    outcomes = handle(handler, [record({"id": 1})] * 3, format="json")
    assert summary(outcomes) == [("done", 1)] * 3
    assert outcomes[0].error is None


def test_values_are_what_the_format_makes_of_them() -> None:
    seen: list[Any] = []

    async def keep(record: forebay.Record) -> None:
        seen.append(record.value)

    handle(keep, [record({"id": 1})])
    handle(keep, [record({"id": "1", "more": 2})], format="json", columns="id STRING")
    handle(keep, [record("7,x")], format="csv", columns="n BIGINT, s STRING")
    assert seen == [b'{"id":1}', {"id": "1"}, {"n": 7, "s": "x"}]


def test_a_value_that_does_not_decode_is_not_handled_and_not_tried_again() -> None:
    seen: list[Any] = []

    async def keep(record: forebay.Record) -> None:
        seen.append(record.value)

    [bad, good] = handle(keep, [record("{"), record({"id": 1})], format="json", dead_letter_topic="dlq")
    assert (bad.verdict, bad.attempts, good.verdict) == ("dead_letter", 1, "done")
    assert isinstance(bad.error, BadRecordError)
    assert bad.error.kind == "MalformedPayload"
    assert seen == [{"id": 1}]


def test_attempts_and_verdicts_are_the_pools() -> None:
    async def fail(record: forebay.Record) -> None:
        if record.value == b"once" and record.attempt > 1:
            return
        raise {b"key": KeyError, b"value": ValueError}.get(record.value, OSError)

    given = [record(value) for value in ("once", "always", "key", "value")]
    errors = {KeyError: "skip", ValueError: "dead_letter"}
    settings: dict[str, Any] = {"max_attempts": 4, "errors": errors}
    outcomes = handle(fail, given, **settings, dead_letter_topic="dlq")
    assert summary(outcomes) == [("done", 2), ("dead_letter", 4), ("skip", 1), ("dead_letter", 1)]
    assert [type(each.error) for each in outcomes] == [type(None), OSError, KeyError, ValueError]
    outcomes = handle(fail, given, **settings)  # without a topic for them, letters cannot be written
    assert summary(outcomes) == [("done", 2), ("halt", 4), ("skip", 1), ("halt", 1)]


def test_what_waits_behind_a_record_that_halted_is_pending() -> None:
    async def fail(record: forebay.Record) -> None:
        if record.value == b"bad":
            raise OSError

    given = [
        record("good", key="a"),
        record("bad", key="a"),
        record("good", key="a"),
        record("good", key="b"),
    ]
    outcomes = handle(fail, given, order="key", max_attempts=1)
    assert summary(outcomes) == [("done", 1), ("halt", 1), ("pending", 0), ("done", 1)]


def test_too_many_halted_records_end_the_pool() -> None:
    async def fail(record: forebay.Record) -> None:
        raise OSError("no")

    assert summary(handle(fail, [record()] * 2, max_errors=2, max_attempts=1)) == [("halt", 1)] * 2
    with pytest.raises(PoolHaltedError, match="3 records have failed"):
        handle(fail, [record()] * 3, max_errors=2, max_attempts=1)


def test_what_is_sent_is_that_of_the_attempt_that_succeeded() -> None:
    async def send(record: forebay.Record) -> None:
        record.send("out", b"%d" % record.attempt, key=record.key)
        if record.attempt == 1 or record.key == b"bad":
            raise OSError

    [good, bad] = handle(send, [record(key="k"), record(key="bad")], transactional=True, max_attempts=2)
    assert good.sent == (OutgoingRecord("out", b"k", b"2", []),)
    assert (bad.verdict, bad.sent) == ("halt", ())
    [refused] = handle(send, [record()], max_attempts=1)
    assert "needs a transaction" in str(refused.error)


def test_batches_that_fail_are_taken_apart() -> None:
    sizes: Counter[int] = Counter()

    def many(records: list[forebay.Record]) -> None:
        sizes[len(records)] += 1
        if any(each.value == b"bad" for each in records):
            raise OSError

    given = [record("good"), record("bad"), record("good")]
    assert summary(handle(many, given, batch_size=3, on_error="skip", max_attempts=2)) == [
        ("done", 1),
        ("skip", 2),
        ("done", 1),
    ]
    assert sizes == {3: 1, 1: 4}


def test_a_handler_that_takes_too_long_has_failed() -> None:
    async def hang(record: forebay.Record) -> None:
        await asyncio.sleep(60)

    [outcome] = handle(hang, [record()], handler_timeout_ms=20, max_attempts=1, adaptive=True, heavy_lag=1)
    assert outcome.verdict == "halt"
    assert isinstance(outcome.error, HandlerTimeoutError)


def test_retries_do_not_wait() -> None:
    async def fail(record: forebay.Record) -> None:
        raise OSError

    began = time.monotonic()
    [outcome] = handle(fail, [record()], max_attempts=8, retry_backoff_ms=10_000)
    assert outcome.attempts == 8
    assert time.monotonic() - began < 10  # the first of them alone would wait for at least five seconds


def test_a_pool_of_the_users_lends_its_settings_and_is_not_started() -> None:
    pool = forebay.Pool(
        bootstrap_servers="localhost:1",
        topics=["orders"],
        group_id="g",
        format="json",
        errors={ValueError: "skip"},
    )

    @pool.handler
    async def refuse(record: forebay.Record) -> None:
        raise ValueError(record.value["id"])

    [outcome] = handle(refuse, [record({"id": 5})], pool=pool)
    assert (outcome.verdict, str(outcome.error)) == ("skip", "5")
    assert (pool.state, pool.skipped) == ("new", 0)
    with pytest.raises(PoolStateError, match="has settings already"):
        handle(refuse, [], pool=pool, workers=1)


def test_no_records_have_no_outcomes() -> None:
    assert handle(coroutine, [], format="json") == []


def test_in_an_async_test_it_runs_in_a_thread() -> None:
    async def main() -> list[HandledRecord]:
        return await asyncio.to_thread(handle, coroutine, [record({"id": 1})], format="json")

    assert summary(asyncio.run(main())) == [("done", 1)]


def test_the_example_in_the_documentation_runs() -> None:
    page = Path(__file__).parents[2] / "docs" / "pool.md"
    section = page.read_text().split("## Testing a handler")[1]
    exec(section.split("```python")[1].split("```")[0], {})
