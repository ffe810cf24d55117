"""From records to rows: metadata, headers, raw bytes, and the records that do not decode."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from conftest import MakeSource
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from support import NUMBERS, Cluster, numbers, read

from forebay.errors import MissingOptionError, UnsupportedSqlError


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
        ((("value", BinaryType()),), [{"value": b"\xff\x00"}, {"value": None}]),
        ((("key", StringType()),), [{"key": "k"}, {"key": None}]),
        (
            (("value", BinaryType()), ("key", StringType())),
            [{"value": b"\xff\x00", "key": "k"}, {"value": None, "key": None}],
        ),
    ],
    ids=["none declared", "value", "key", "value and key"],
)
def test_raw_gives_key_and_value_as_they_are(
    cluster: Cluster,
    kafka_source: MakeSource,
    columns: tuple[tuple[str, BinaryType | StringType], ...],
    expected: list[dict[str, object]],
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"\xff\x00"], key="k")
    cluster.produce(topic, [None])
    schema = StructType([StructField(name, kind) for name, kind in columns])
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
    assert source.discover_schema() is None


def test_a_raw_key_that_is_no_text_rejects_its_record_only(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(1)
    for key, value in ((b"a", b"1"), (b"\xff", b"2"), (b"c", b"\xfe"), (b"d", b"4")):
        cluster.produce(topic, [value], key=key)
    schema = StructType([StructField("value", StringType()), StructField("key", StringType())])
    source = kafka_source(cluster.kafka_options(topic, format="raw"), schema)
    start = source.initial_offsets()
    rows, rejected = read(source, start, source.latest_offsets(start, None))
    assert rows == [{"value": "1", "key": "a"}, {"value": "4", "key": "d"}]
    assert [item.offset for item in rejected] == [1, 2]


def test_csv_takes_its_own_options(cluster: Cluster, kafka_source: MakeSource) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"1;'a;b'", b"-;c"])
    schema = StructType([StructField("n", LongType()), StructField("s", StringType())])
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
        ({"key.format": "json"}, NUMBERS, "'key.format' is not in this version"),
        ({}, StructType(), "needs its columns"),
        ({"format": "raw"}, NUMBERS, "has the columns key and value"),
    ],
)
def test_what_cannot_be_decoded_is_refused_at_open(
    cluster: Cluster, kafka_source: MakeSource, more: dict[str, str], schema: StructType, complaint: str
) -> None:
    source = kafka_source(cluster.kafka_options(cluster.make_topic(1)) | more, schema)
    with pytest.raises((UnsupportedSqlError, MissingOptionError), match=complaint):
        source.open()


def test_a_declared_column_may_not_have_the_name_of_an_added_one(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    schema = StructType([StructField("_Offset", LongType())])
    source = kafka_source(cluster.kafka_options("t", include_metadata="true"), schema)
    with pytest.raises(UnsupportedSqlError, match="_offset"):
        source.full_schema()
