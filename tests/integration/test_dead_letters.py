"""ON ERROR on the real broker: what is skipped, what becomes a letter, what ends the query."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from sessions import caught_up, connect, name, rows
from support import Cluster, unique

import forebay
from forebay.deadletter.letter import Letter

COLUMNS = "id BIGINT NOT NULL, v BIGINT"


def source_sql(cluster: Cluster, source: str, topic: str, on_error: str, **options: str | int) -> str:
    given = {"brokers": cluster.bootstrap_servers, "topic": topic, "group_id": source, **options}
    listed = ", ".join(f"{key} = '{value}'" for key, value in given.items())
    return f"CREATE SOURCE {source} ({COLUMNS}) FROM KAFKA ({listed}) FORMAT JSON {on_error}"


def to_topic(topic: str, **more: Any) -> str:
    listed = ", ".join(f"{key} = '{value}'" for key, value in {"dead_letter_topic": topic, **more}.items())
    return f"ON ERROR = 'dead_letter' WITH ({listed})"


def good(numbers: range) -> list[bytes]:
    return [b'{"id": %d, "v": 1}' % number for number in numbers]


def letters(cluster: Cluster, topic: str) -> list[Letter]:
    """Every letter in a topic, repeated ones too."""
    consumer = cluster.consumer(unique("letters"))
    try:
        found = []
        for number, (low, high) in cluster.watermarks(topic).items():
            consumer.assign([TopicPartition(topic, number, low)])
            at = low
            while at < high:
                message = consumer.poll(10)
                assert message is not None, f"{topic}-{number} has {high} records, and {at} were read"
                assert message.error() is None
                found.append(Letter.from_kafka(message.key(), message.value(), message.headers()))
                at = message.offset() + 1
        return found
    finally:
        consumer.close()


def counts(session: forebay.Session, source: str) -> tuple[int, int, int, int]:
    """errors_total, dlq_total, skipped, rate_limited."""
    [found] = [each for each in session._catalog.source_errors() if each.source_name == source]
    return found.errors_total, found.dlq_total, found.skipped, found.rate_limited


def view_over(source: str, columns: str = "id") -> str:
    return f"CREATE MATERIALIZED VIEW {source}_v AS SELECT {columns} FROM {source}"


# -- the strategies ---------------------------------------------------------------------------------------


def test_skip_delivers_all_good_records_and_counts_the_others(cluster: Cluster, tmp_path: Path) -> None:
    topic, source = cluster.make_topic(2), name("skip")
    cluster.produce(topic, [value for n in range(300) for value in (*good(range(n, n + 1)), b"{")])
    with connect(tmp_path) as db:
        db.execute(source_sql(cluster, source, topic, "ON ERROR = 'skip'") + ";" + view_over(source))
        caught_up(db)
        assert sorted(rows(db, f"SELECT id FROM {source}_v")) == [(n,) for n in range(300)]
    with connect(tmp_path) as db:
        assert counts(db, source) == (300, 0, 300, 0)


def test_letters_are_byte_exact_and_good_records_stay_in_order(cluster: Cluster, tmp_path: Path) -> None:
    topic, source, dlq = cluster.make_topic(1, max_message_bytes="8000000"), name("exact"), unique("dlq")
    headers: list[tuple[str, bytes | None]] = [
        ("trace", b"\x00\xff\xfe"), ("trace", b"again"), ("empty", b""), ("null", None),
        ("forebay.headers", b"99"), ("__connect.errors.topic", b"not yours"),
    ]  # fmt: skip
    big = b'{"id": "' + b"x" * (2 << 20)
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"k", b'{"id": 1', headers),
        (None, b'{"v": 2}', []),
        (b"\x80\x81", None, headers[:2]),
        (b"", b"", []),
        (b"k", b'{"id": "7"}', []),
        (b"k", b"\xff\xfe", []),
        (b"big", big, headers[:1]),
    ]
    bad = {}
    for number, (key, value, own) in enumerate(sent):
        cluster.produce(topic, good(range(number, number + 1)), partition=0)
        [message] = produce_large(cluster, topic, key, value, own)
        bad[message.offset()] = (message.timestamp()[1], key, value, own)
    with connect(tmp_path) as db:
        db.execute(source_sql(cluster, source, topic, to_topic(dlq, max_raw_message_size="1MB")))
        db.execute(view_over(source))
        caught_up(db)
        assert rows(db, f"SELECT id FROM {source}_v") == [(n,) for n in range(len(sent))]
        assert counts(db, source) == (len(sent), len(sent), 0, 0)
    found = {letter.offset: letter for letter in letters(cluster, dlq)}
    assert found.keys() == bad.keys()
    for offset, (stamp, key, value, own) in bad.items():
        letter = found[offset]
        assert (letter.source, letter.topic, letter.partition) == (source, topic, 0)
        assert (letter.timestamp_ms, letter.key, list(letter.headers)) == (stamp, key, own)
        assert letter.size == len(value or b"")
        if value is big:
            assert letter.value == big[: 1 << 20]
            assert letter.sha256 == hashlib.sha256(big).hexdigest()
            assert not letter.whole
        else:
            assert letter.value == value
            assert letter.whole
    assert [found[offset].kind for offset in sorted(found)] == [
        "MalformedPayload", "SchemaMismatch", "MalformedPayload", "MalformedPayload", "TypeConversion",
        "MalformedPayload", "MalformedPayload",
    ]  # fmt: skip
    assert found[3].field == "id"
    assert found[9].field == "id"


def produce_large(
    cluster: Cluster,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> list[Any]:
    from confluent_kafka import Producer
    from support import QUIET

    producer = Producer({**cluster.client, "acks": "all", "message.max.bytes": 8 << 20}, logger=QUIET)
    done: list[Any] = []
    producer.produce(
        topic,
        value,
        key,
        partition=0,
        headers=headers or None,
        on_delivery=lambda error, m: done.append((error, m)),
    )
    assert producer.flush(30) == 0
    [(error, message)] = done
    assert error is None, error
    return [message]
