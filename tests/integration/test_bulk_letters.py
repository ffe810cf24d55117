"""Letters that native code makes: the same as the plain writer's, to the last byte, and durable when it says so."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Message
from support import Cluster, kafka_source

from forebay.deadletter.breaker import HealthFolder
from forebay.deadletter.bulk import BulkLetters
from forebay.deadletter.destinations import KafkaDestination
from forebay.deadletter.letter import Letter
from forebay.deadletter.limiter import Bucket, TaskLimiter
from forebay.deadletter.policy import ErrorPolicy
from forebay.deadletter.router import Router
from forebay.devstack import DevStack
from forebay.errors import DeadLetterError, UnknownTopicError, UnreachableError
from forebay.kafka.connector import KafkaSource
from forebay.native import native

pytestmark = pytest.mark.skipif(native() is None, reason="the native reader is not built (make setup)")

HEADERS: list[tuple[str, bytes | None]] = [
    ("trace", b"\x00\xff\xfe"), ("trace", b"again"), ("empty", b""), ("null", None),
    ("forebay.headers", b"99"), ("__connect.errors.topic", b"not yours"), ("grüße", b"1"),
]  # fmt: skip
BAD: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"k", b'{"n": ', HEADERS),
    (None, b'{"n": "seven"}', []),
    (b"\x80\x81", None, HEADERS[:2]),
    (b"", b"", []),
    (b"key-1", b"[1]", []),
    (b"key-2", b"\xff\xfe", HEADERS[3:]),
    (b"key-3", b'{"n": 1, "n": 2}', []),
    (b"long", b'{"n": "' + b"x" * 3000 + b'"}', HEADERS[:1]),
    (b"key-5", b'{"n": "\xc3\xa4\xe2\x82\xac"}', []),
]
GOOD = b'{"n": 1}'


def source_of(cluster: Cluster, values: Sequence[tuple[bytes | None, bytes | None, object]]) -> KafkaSource:
    topic = cluster.make_topic(2)
    for number, (key, value, headers) in enumerate(values):
        cluster.produce(topic, [GOOD], partition=number % 2)
        cluster.produce(topic, [value], key=key, headers=headers, partition=number % 2)  # type: ignore[arg-type]
    return kafka_source(cluster.kafka_options(topic))


def run(
    source: KafkaSource,
    policy: ErrorPolicy,
    folder: Path,
    *,
    bulk: bool,
    limiter: TaskLimiter | None = None,
) -> tuple[Router, int]:
    """One task over all that the topic holds, and how many good rows it gave."""
    start = source.initial_offsets()
    [split] = source.plan_batches(start, source.latest_offsets(start, None), 1)
    made = BulkLetters.open("s", policy, source.options, split.topic_ids()) if bulk else None
    assert bulk == (made is not None)
    assert policy.topic is not None
    plain = KafkaDestination("s", policy.topic, source.options, policy.brokers)
    router = Router("s", policy, split, HealthFolder(folder), lambda: plain, limiter, made)
    source.wanted = router.wanted
    rows = 0
    for batch in source.read_batch(split):
        rows += batch.records.num_rows
        router.see(batch)
    router.finish()
    return router, rows


def told(messages: Sequence[Message]) -> list[tuple[object, ...]]:
    """All of a letter but when it failed. One without a key may be in any partition."""
    return sorted(
        (
            message.partition() if message.key() else -1,
            str(message.key()),
            str(message.value()),
            str([header for header in message.headers() if header[0] != "forebay.failed.at.ms"]),
        )
        for message in messages
    )


@pytest.mark.parametrize(
    "policy",
    [
        ErrorPolicy("dead_letter", max_raw_bytes=1000),
        ErrorPolicy("dead_letter", include_raw=False),
        ErrorPolicy("dead_letter", max_error_ratio=1.0),
    ],
    ids=["cut", "without value", "with a breaker"],
)
def test_both_write_the_same_letters_to_the_last_byte(
    cluster: Cluster, tmp_path: Path, policy: ErrorPolicy
) -> None:
    source = source_of(cluster, BAD)
    found = []
    for bulk in (True, False):
        there = ErrorPolicy(**{**vars(policy), "topic": cluster.make_topic(3)})
        router, rows = run(source, there, tmp_path, bulk=bulk)
        assert (rows, router.letters, router.limited) == (len(BAD), len(BAD), [])
        found.append(cluster.records(there.topic or ""))
    assert told(found[0]) == told(found[1])
    assert len(found[0]) == len(BAD)
    now = time.time() * 1000
    for message in found[0]:
        letter = Letter.from_kafka(message.key(), message.value(), message.headers())
        assert now - 60_000 < letter.failed_at_ms <= now + 1000
        assert letter.topic_id
        assert abs(message.timestamp()[1] - letter.failed_at_ms) < 5_000


def test_what_the_limit_keeps_out_is_taken_back_and_told_where_it_is(
    cluster: Cluster, tmp_path: Path
) -> None:
    source, dlq = source_of(cluster, BAD), cluster.make_topic(1)
    fresh = TaskLimiter(Bucket(4, 3.0, 0.0), lambda: 0.0)
    router, _ = run(source, ErrorPolicy("dead_letter", dlq), tmp_path, bulk=True, limiter=fresh)
    letters = cluster.letters(dlq)
    assert len(letters) == router.letters == 3
    assert sum(stretch.bad for stretch in router.limited) == len(BAD) - 3
    for letter in letters:
        assert not any(
            part[:2] == letter.identity[:2] and part.start == letter.offset for part in router.limited
        )


def test_many_letters_go_in_many_batches_and_none_is_missing(cluster: Cluster, tmp_path: Path) -> None:
    topic, dlq, count = cluster.make_topic(2), cluster.make_topic(3), 6000
    cluster.produce(topic, [b'{"n": "%d%s"}' % (n, b"x" * 300) for n in range(count)])
    source = kafka_source(cluster.kafka_options(topic))
    router, rows = run(source, ErrorPolicy("dead_letter", dlq), tmp_path, bulk=True)
    assert (rows, router.letters) == (0, count)
    letters = cluster.letters(dlq)
    assert len({letter.identity for letter in letters}) == len(letters) == count


def test_a_letter_that_its_topic_finds_too_large_is_made_smaller(cluster: Cluster, tmp_path: Path) -> None:
    long = b'{"n": "' + random.Random(7).randbytes(1500).hex().encode() + b'"}'
    bad = [*BAD, (b"long", long, [])]  # of which packing makes nothing smaller
    source, dlq = source_of(cluster, bad), cluster.make_topic(1, max_message_bytes="2500")
    run(source, ErrorPolicy("dead_letter", dlq), tmp_path, bulk=True)
    letters = cluster.letters(dlq)
    assert len({letter.identity for letter in letters}) == len(bad)
    [cut] = [letter for letter in letters if not letter.whole]
    assert cut.size == len(long)


def test_a_topic_that_is_gone_is_an_error_that_names_it(cluster: Cluster, tmp_path: Path) -> None:
    source = source_of(cluster, BAD[:1])
    with pytest.raises((DeadLetterError, UnknownTopicError), match="no-such-topic"):
        run(source, ErrorPolicy("dead_letter", "no-such-topic"), tmp_path, bulk=True)


def test_a_broker_that_is_away_is_waited_for_and_then_an_error(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.deadletter.bulk.PATIENCE_MS", 1500)
    source = source_of(cluster, BAD[:1])
    policy = ErrorPolicy("dead_letter", "dlq", brokers="127.0.0.1:1")
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        run(source, policy, tmp_path, bulk=True)
    assert time.monotonic() - began > 1.4


def test_letters_of_a_broker_that_comes_back_are_all_there(
    cluster: Cluster, mortal_broker: DevStack, tmp_path: Path
) -> None:
    """It is gone when the letters are granted, and back while the task waits for them."""
    other = Cluster(mortal_broker)
    dlq = other.make_topic(1)
    source = source_of(cluster, BAD)
    policy = ErrorPolicy("dead_letter", dlq, brokers=mortal_broker.bootstrap_servers)
    start = source.initial_offsets()
    [split] = source.plan_batches(start, source.latest_offsets(start, None), 1)
    made = BulkLetters.open("s", policy, source.options, split.topic_ids())
    assert made is not None
    plain = KafkaDestination("s", dlq, source.options, policy.brokers)
    router = Router("s", policy, split, tmp_path, lambda: plain, None, made)
    source.wanted = router.wanted
    for batch in source.read_batch(split):
        router.see(batch)
    mortal_broker.kill_broker()
    assert made.handle.flush(300) == len(BAD)
    assert made.handle.trouble
    mortal_broker.start_broker()
    router.finish()
    letters = other.letters(dlq)
    assert len({letter.identity for letter in letters}) == len(BAD)
