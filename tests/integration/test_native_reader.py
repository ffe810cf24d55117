"""The native reader on a real broker: the same records as the plain one, again and again, in little memory."""

from __future__ import annotations

import json
import os
from typing import Any

import inside
import psutil
import pyarrow as pa
import pytest
from support import Cluster, kafka_source, numbers

from forebay import column_types as types
from forebay.kafka.native_reader import NativeReader
from forebay.kafka.offsets import KafkaSplit, Range
from forebay.kafka.rows import RowDecoder

pytest.importorskip("forebay_native", reason="the native reader is not built (make setup)")
MIXED = pa.schema([pa.field("n", types.BIGINT, False), pa.field("s", types.STRING)])
BATCHES = int(os.environ.get("FOREBAY_LEAK_BATCHES", "400"))  # make chaos: ten thousand
RAW = pa.schema([pa.field("key", types.STRING), pa.field("value", types.BINARY)])


def everything(options: dict[str, str], schema: pa.Schema, split: KafkaSplit) -> tuple[list[Any], list[Any]]:
    source = kafka_source(options, schema)
    batches = list(source.read_batch(split))
    source.close()
    for batch in batches:  # which rows are of which partition: all of them, unless some records have no row
        owners = batch.records.column("_partition").to_pylist()
        assert all(set(owners[start:end]) == {number} for (_, number), start, end in batch.segments)
        assert batch.skipped or sum(end - start for _, start, end in batch.segments) == len(owners)
    good = [row for batch in batches for row in batch.records.to_pylist()]
    bad = [(bad.partition, bad.offset, bad.kind) for batch in batches for bad in batch.rejected]
    return sorted(good, key=lambda row: (row["_partition"], row["_offset"])), sorted(bad)


@pytest.mark.parametrize("format", ["json", "csv", "raw"])
def test_both_readers_give_the_same_rows_keys_headers_and_refusals(
    cluster: Cluster, plainly: Any, format: str
) -> None:
    topic = cluster.make_topic(2)
    values: list[bytes | None] = [
        b'{"n": 1, "s": "x"}',
        b"1,x",
        b"",
        None,
        b"\xff",
        b'{"s": "no n"}',
        b'"1","a,b"',
    ]
    producer = cluster.transactional_producer()
    producer.begin_transaction()
    for index, value in enumerate(values * 20):
        key = None if index % 5 == 0 else b"\xfe" if index % 5 == 1 else f"k{index}".encode()
        headers = [("h", str(index).encode()), ("h", None if index % 2 else b"last"), ("e", b"")]
        producer.produce(topic, value, key, partition=index % 2, headers=headers[: index % 4])
    producer.commit_transaction(30)
    options = cluster.kafka_options(topic, format=format, include_metadata="true", include_headers="true")
    schema = RAW if format == "raw" else MIXED
    checked = kafka_source(options, schema).options
    assert NativeReader.open([], RowDecoder(schema, checked), checked)
    split = KafkaSplit((Range(topic, 0, 0, 71), Range(topic, 1, 3, 70)))
    first = everything(options, schema, split)
    plainly()
    assert first == everything(options, schema, split)
    assert first[0]
    assert first[1]


def test_both_readers_count_the_bytes_of_keys_and_values_good_and_bad(cluster: Cluster, plainly: Any) -> None:
    topic = cluster.make_topic(1)
    values = [b'{"n": 1, "s": "x"}', b'{"n": 2}', b"no json", b""]
    for number, value in enumerate(values):
        cluster.produce(topic, [value], partition=0, key=b"k" * number)
    options, split = cluster.kafka_options(topic), KafkaSplit((Range(topic, 0, 0, len(values)),))

    def counted() -> tuple[int, int]:
        source = kafka_source(options, MIXED)
        found = sum(batch.bytes for batch in source.read_batch(split))
        source.close()
        return found, source.metrics().bytes_total

    expected = sum(len(value) for value in values) + 0 + 1 + 2 + 3
    assert counted() == (expected, expected)
    plainly()
    assert counted() == (expected, expected)


SHAPES: dict[str, tuple[dict[str, str], list[bytes | None]]] = {
    "csv lines": (
        {"format": "csv", "csv.header": "true", "csv.comment": "#"},
        [b"n,s", b"1,x", b"# said", b"2,", b"oops,x", None, b""],
    ),
    "a change log": (
        {"format": "debezium-json", "include.timestamp.as": "at"},
        [
            b'{"op": "c", "after": {"n": 1, "s": "a"}, "ts_ms": 1}',
            b'{"op": "u", "before": {"n": 1, "s": "a"}, "after": {"n": 1, "s": "b"}, "ts_ms": 2}',
            None,
            b'{"payload": {"op": "d", "before": {"n": 1, "s": "b"}, "ts_ms": 3}}',
            b'{"op": "u", "after": {"n": 1}, "ts_ms": 4}',
            b"{",
        ],
    ),
}


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_readers_skip_double_and_key_the_same_records(
    cluster: Cluster, plainly: Any, monkeypatch: pytest.MonkeyPatch, shape: str, keyed: bool
) -> None:
    more, values = SHAPES[shape]
    topic = cluster.make_topic(1)
    keys = [b'{"k": 1}', None, b'{"k": "x"}', b'{"k": null}', b"{"]
    producer = cluster.transactional_producer()
    producer.begin_transaction()
    for index, value in enumerate(values * 11):
        producer.produce(topic, value, keys[index % len(keys)], partition=0)
    producer.commit_transaction(30)
    schema = pa.schema([*MIXED, *([pa.field("k", types.BIGINT)] if keyed else [])])
    key = {"key.format": "json", "key.columns": "k"} if keyed else {}
    options = cluster.kafka_options(topic, include_metadata="true") | more | key
    split = KafkaSplit((Range(topic, 0, 0, len(values) * 11),))

    def everything() -> tuple[Any, ...]:
        source = kafka_source(options, schema)
        batches = list(source.read_batch(split))
        source.close()
        assert sum(batch.read for batch in batches) == len(values) * 11
        rows = [row for batch in batches for row in batch.records.to_pylist()]
        # Both find text that does not parse; each says in its own words where that shows.
        bad = [
            (bad.offset, bad.kind, bad.message if bad.kind != "MalformedPayload" else bad.message[:4])
            for batch in batches
            for bad in batch.rejected
        ]
        return rows, bad, sum(b.skipped for b in batches), sum(b.extra for b in batches)

    with monkeypatch.context() as alone:
        inside.forbid_the_plain_reader(alone)
        first = everything()
    plainly()
    assert first == everything()
    assert all(first[:3])


def test_one_range_after_another_skips_nothing(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(200_000), partition=0)
    source = kafka_source(cluster.kafka_options(topic))
    for first in range(0, 200_000, 25_000):
        split = KafkaSplit((Range(topic, 0, first, first + 25_000),))
        found = [n for batch in source.read_batch(split) for n in batch.records.column("n").to_pylist()]
        assert found == list(range(first, first + 25_000))
    source.close()


def test_thousands_of_small_batches_leave_nothing_behind(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(2000), partition=0)
    source = kafka_source(cluster.kafka_options(topic))
    process = psutil.Process()
    marks = []
    for number in range(BATCHES):
        start = number % 1000
        total = sum(
            batch.records.num_rows
            for batch in source.read_batch(KafkaSplit((Range(topic, 0, start, start + 1),)))
        )
        assert total == 1
        if number % (BATCHES // 10) == 0:
            marks.append((process.memory_info().rss, process.num_threads(), process.num_fds()))
    source.close()
    # The first tenth fills caches; after that a leak shows, of threads, of files, or of memory.
    assert marks[-1][0] - marks[1][0] < max(BATCHES << 10, 4 << 20)
    assert marks[-1][1] <= marks[1][1] + 1
    assert marks[-1][2] <= marks[1][2] + 4


def test_a_task_stays_within_its_budget(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    value = json.dumps({"n": 1, "s": "x" * 100_000}).encode()
    cluster.produce(topic, [value] * 3000, partition=0)  # 300 MB
    schema = pa.schema([pa.field("n", types.BIGINT), pa.field("s", types.STRING)])
    source = kafka_source(cluster.kafka_options(topic, **{"fetch.budget.bytes": "32MB"}), schema)
    process = psutil.Process()
    before, highest, records = process.memory_info().rss, 0, 0
    for batch in source.read_batch(KafkaSplit((Range(topic, 0, 0, 3000),))):
        records += batch.records.num_rows
        highest = max(highest, process.memory_info().rss)
    source.close()
    assert records == 3000
    assert highest - before < 64 << 20  # the budget, and what the allocators keep of it
