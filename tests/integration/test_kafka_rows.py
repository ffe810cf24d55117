"""From records to rows: metadata, headers, raw bytes, and the records that do not decode."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from conftest import MakeSource
from support import NUMBERS, Cluster, numbers, read

from forebay import column_types as types
from forebay.connectors.contract import RejectedRecord
from forebay.errors import (
    MissingOptionError,
    NoColumnsError,
    OptionConflictError,
    OptionError,
    UnsupportedSqlError,
)
from forebay.kafka.connector import KafkaSource


def test_metadata_columns_tell_where_and_when_each_record_was_written(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(2)
    cluster.produce(topic, numbers(2), partition=1, timestamp=1_768_471_200_123)
    source = kafka_source(cluster.kafka_options(topic, include_metadata="true"))
    assert [field.name for field in source.full_schema()] == ["n", "_partition", "_offset", "_timestamp"]
    start = source.initial_offsets()
    rows, _ = read(source, start, source.latest_offsets(start, None))
    stamp = datetime(2026, 1, 15, 10, 0, 0, 123000, tzinfo=UTC)
    assert rows == [
        {"n": 0, "_partition": 1, "_offset": 0, "_timestamp": stamp},
        {"n": 1, "_partition": 1, "_offset": 1, "_timestamp": stamp},
    ]


def test_headers_are_a_map_with_the_last_value_of_each_name(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(1), headers=[("a", b"1"), ("b", None), ("a", b"\xff")])
    cluster.produce(topic, numbers(1, 1))
    source = kafka_source(cluster.kafka_options(topic, include_headers="true", include_metadata="true"))
    assert source.full_schema().names[-1] == "_headers"
    start = source.initial_offsets()
    rows, _ = read(source, start, source.latest_offsets(start, None))
    assert [dict(row["_headers"]) for row in rows] == [{"a": b"\xff", "b": None}, {}]


def test_without_those_options_there_are_only_the_declared_columns(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(1))
    source = kafka_source(cluster.kafka_options(topic))
    start = source.initial_offsets()
    assert read(source, start, source.latest_offsets(start, None))[0] == [{"n": 0}]
    assert source.full_schema() == NUMBERS


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ((), [{"key": b"k", "value": b"\xff\x00"}, {"key": None, "value": None}]),
        ((("value", types.BINARY),), [{"value": b"\xff\x00"}, {"value": None}]),
        ((("key", types.STRING),), [{"key": "k"}, {"key": None}]),
        (
            (("value", types.BINARY), ("key", types.STRING)),
            [{"value": b"\xff\x00", "key": "k"}, {"value": None, "key": None}],
        ),
    ],
    ids=["none declared", "value", "key", "value and key"],
)
def test_raw_gives_key_and_value_as_they_are(
    cluster: Cluster,
    kafka_source: MakeSource,
    columns: tuple[tuple[str, pa.DataType], ...],
    expected: list[dict[str, object]],
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"\xff\x00"], key="k")
    cluster.produce(topic, [None])
    schema = pa.schema([pa.field(name, kind) for name, kind in columns])
    source = kafka_source(cluster.kafka_options(topic, format="raw"), schema)
    source.open()
    start = source.initial_offsets()
    rows, rejected = read(source, start, source.latest_offsets(start, None))
    assert rows == expected
    assert rejected == []
    assert source.full_schema().names == list(expected[0])
    assert source.discover_schema() is not None


def test_a_record_that_does_not_decode_is_rejected_with_its_place_and_kind_and_never_a_row(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(2)
    cluster.produce(
        topic, [b'{"n": 1}', b"{broken", b'{"n": "x"}', b'{"n": 99999999999999999999}'], partition=1
    )
    cluster.produce(topic, [b"\xff", b'{"n": 2}'], partition=0)
    source = kafka_source(cluster.kafka_options(topic, include_metadata="true"))
    start = source.initial_offsets()
    rows, rejected = read(source, start, source.latest_offsets(start, None))
    assert sorted((row["_partition"], row["_offset"], row["n"]) for row in rows) == [(0, 1, 2), (1, 0, 1)]
    assert {(item.topic, item.partition, item.offset) for item in rejected} == {
        (topic, 0, 0), (topic, 1, 1), (topic, 1, 2), (topic, 1, 3),
    }  # fmt: skip
    assert all(item.kind and item.message for item in rejected)
    with pytest.raises(NoColumnsError, match=r"left out: n \(integer and number and text\)"):
        source.discover_schema()


def test_a_raw_key_that_is_no_text_rejects_its_record_only(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(1)
    for key, value in ((b"a", b"1"), (b"\xff", b"2"), (b"c", b"\xfe"), (b"d", b"4")):
        cluster.produce(topic, [value], key=key)
    schema = pa.schema([pa.field("value", types.STRING), pa.field("key", types.STRING)])
    source = kafka_source(cluster.kafka_options(topic, format="raw"), schema)
    start = source.initial_offsets()
    rows, rejected = read(source, start, source.latest_offsets(start, None))
    assert rows == [{"value": "1", "key": "a"}, {"value": "4", "key": "d"}]
    assert [item.offset for item in rejected] == [1, 2]


def test_csv_takes_its_own_options(cluster: Cluster, kafka_source: MakeSource) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"1;'a;b'", b"-;c"])
    schema = pa.schema([pa.field("n", types.BIGINT), pa.field("s", types.STRING)])
    options = cluster.kafka_options(topic, format="csv", csv_delimiter=";", csv_quote="'", csv_null="-")
    source = kafka_source(options, schema)
    start = source.initial_offsets()
    rows, rejected = read(source, start, source.latest_offsets(start, None))
    assert rejected == []
    assert rows == [{"n": 1, "s": "a;b"}, {"n": None, "s": "c"}]


@pytest.mark.parametrize(
    ("more", "schema", "complaint"),
    [
        ({"format": "protobuf"}, NUMBERS, "needs the messages' schema"),
        ({}, pa.schema([]), "needs its columns"),
        ({"format": "raw"}, NUMBERS, "has the columns key and value"),
    ],
)
def test_what_cannot_be_decoded_is_refused_at_open(
    cluster: Cluster, kafka_source: MakeSource, more: dict[str, str], schema: pa.Schema, complaint: str
) -> None:
    source = kafka_source(cluster.kafka_options(cluster.make_topic(1)) | more, schema)
    with pytest.raises((UnsupportedSqlError, MissingOptionError), match=complaint):
        source.open()


def test_a_declared_column_may_not_have_the_name_of_an_added_one(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    schema = pa.schema([pa.field("_Offset", types.BIGINT)])
    source = kafka_source(cluster.kafka_options("t", include_metadata="true"), schema)
    with pytest.raises(OptionConflictError, match="_offset"):
        source.full_schema()


def rows_of(source: KafkaSource) -> tuple[list[dict[str, Any]], list[RejectedRecord]]:
    source.open()
    start = source.initial_offsets()
    return read(source, start, source.latest_offsets(start, None))


AVRO_KEY = '{"type": "record", "name": "k", "fields": [{"name": "k", "type": "long"}]}'
KEYED = pa.schema([pa.field("n", types.BIGINT), pa.field("k", types.BIGINT), pa.field("s", types.STRING)])


@pytest.mark.parametrize(
    ("options", "schema", "key", "value"),
    [
        ({"key.format": "json", "key.columns": "k"}, KEYED, b'{"k": 7}', b'{"n": 1, "s": "x"}'),
        ({"key.format": "csv", "key.columns": "K, s", "key.csv.delimiter": ";"}, KEYED, b"7;x", b'{"n": 1}'),
        ({"key.format": "debezium-json", "key.columns": "k"}, KEYED, b'{"schema": {}, "payload": {"k": 7}}',
         b'{"n": 1, "s": "x"}'),
        ({"key.format": "json", "key.columns": "k,n", "format": "csv"}, KEYED, b'{"k": 7, "n": 1}', b"x"),
        ({"key.format": "avro", "key.columns": "k", "key.avro.schema": AVRO_KEY}, KEYED, bytes([14]),
         b'{"n": 1, "s": "x"}'),
    ],
    ids=["json", "csv", "debezium-json", "json beside csv", "avro"],
)  # fmt: skip
def test_columns_of_the_key_are_decoded_in_its_own_format_and_stand_where_they_are_declared(
    cluster: Cluster,
    kafka_source: MakeSource,
    options: dict[str, str],
    schema: pa.Schema,
    key: bytes,
    value: bytes,
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [value], key=key)
    rows, rejected = rows_of(kafka_source(cluster.kafka_options(topic) | options, schema))
    assert (rows, rejected) == ([{"n": 1, "k": 7, "s": "x"}], [])


def test_a_key_that_does_not_decode_rejects_its_record_and_says_that_it_is_the_key(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(1)
    value = b'{"n": 1}'
    for key, found in (
        (b'{"k": 1}', value),
        (b'{"k": "x"}', value),
        (b"{", value),
        (None, value),
        (b"{", b"["),
    ):
        cluster.produce(topic, [found], key=key)
    options = cluster.kafka_options(topic) | {"key.format": "json", "key.columns": "k"}
    schema = pa.schema([pa.field("k", types.BIGINT), pa.field("n", types.BIGINT)])
    rows, rejected = rows_of(kafka_source(options, schema))
    assert rows == [{"k": 1, "n": 1}, {"k": None, "n": 1}]
    assert [(item.offset, item.kind) for item in rejected] == [
        (1, "TypeConversion"), (2, "MalformedPayload"), (4, "MalformedPayload"),
    ]  # fmt: skip
    assert rejected[0].message.startswith("key.k: expected BIGINT")
    assert rejected[1].message.startswith("key: not JSON")
    assert not rejected[2].message.startswith("key")  # the value comes first
    schema = pa.schema([pa.field("k", types.BIGINT, nullable=False), pa.field("n", types.BIGINT)])
    _, rejected = rows_of(kafka_source(options, schema))
    assert [item.message for item in rejected if item.offset == 3] == [
        "key.k: NOT NULL, but the record has no key"
    ]


def test_include_gives_parts_of_the_record_the_names_they_are_asked_for_by(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(2)
    cluster.produce(topic, [b'{"n": 1}'], partition=1, key=b"\xff", headers=[("h", b"v")], timestamp=1000)
    names = {"key": "k", "partition": "p", "offset": "o", "timestamp": "t", "headers": "hs"}
    options = cluster.kafka_options(topic) | {f"include.{what}.as": name for what, name in names.items()}
    source = kafka_source(options, NUMBERS)
    rows, _ = rows_of(source)
    moment = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert rows == [{"n": 1, "k": b"\xff", "p": 1, "o": 0, "t": moment, "hs": [("h", b"v")]}]
    assert source.full_schema().names == list(rows[0])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"include.key.as": "N"}, "two columns 'N'"),
        ({"include.key.as": "k", "include.offset.as": "K"}, "two columns 'K'"),
        ({"include.offset.as": "_offset", "include.metadata": "true"}, "two columns '_offset'"),
        ({"key.format": "json", "key.columns": "m"}, "'key.columns' names 'm'"),
    ],
)
def test_names_that_clash_or_are_unknown_are_refused(
    cluster: Cluster, kafka_source: MakeSource, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        kafka_source(cluster.kafka_options("t") | options, NUMBERS).full_schema()


def test_a_change_log_s_updates_are_two_rows_of_one_record_and_tombstones_none(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(1)
    for value in (b'{"op": "c", "after": {"n": 1}}', b'{"op": "u", "before": {"n": 1}, "after": {"n": 2}, "ts_ms": 5}',
                  b'{"op": "u", "after": {"n": 3}}', b'{"op": "d", "before": {"n": 2}}', None):  # fmt: skip
        cluster.produce(topic, [value], key=b'{"k": 9}')
    options = {"format": "debezium-json", "key.format": "json", "key.columns": "k", "include.offset.as": "o"}
    schema = pa.schema([pa.field("k", types.BIGINT), pa.field("n", types.BIGINT)])
    source = kafka_source(cluster.kafka_options(topic) | options, schema)
    source.open()
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    batches = [batch for split in source.plan_batches(start, end, 1) for batch in source.read_batch(split)]
    rows = [tuple(row.values()) for batch in batches for row in batch.records.to_pylist()]
    assert rows == [
        (9, 1, "c", None, 1, 0),
        (9, 1, "u", 5, -1, 1),
        (9, 2, "u", 5, 1, 1),
        (9, 2, "d", None, -1, 3),
    ]
    assert sum(batch.skipped for batch in batches) == 1
    assert sum(batch.read for batch in batches) == 5
    assert [item.offset for batch in batches for item in batch.rejected] == [2]


def test_header_lines_and_comments_are_counted_as_skipped(cluster: Cluster, kafka_source: MakeSource) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"n", b"# one", b"1", b"x", b"n"])
    options = cluster.kafka_options(topic, format="csv") | {"csv.header": "true", "csv.comment": "#"}
    source = kafka_source(options, NUMBERS)
    source.open()
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    batches = [batch for split in source.plan_batches(start, end, 1) for batch in source.read_batch(split)]
    assert [row for batch in batches for row in batch.records.to_pylist()] == [{"n": 1}]
    assert sum(batch.skipped for batch in batches) == 3
    assert sum(batch.read for batch in batches) == 5
