"""What a reader tells of records that it rejects: both readers the same, and no more than is wanted."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from conftest import MakeSource
from support import Cluster

from forebay import column_types as types
from forebay.connectors.contract import SourceBatch, Wanted
from forebay.kafka.connector import KafkaSource
from forebay.kafka.native_reader import NativeReader
from forebay.native import native

KEYED = pa.schema(
    [pa.field("id", types.BIGINT, False), pa.field("v", types.BIGINT), pa.field("s", types.STRING)]
)
HEADERS: list[tuple[str, bytes | None]] = [("a", b"\xff"), ("a", None), ("b", b"")]
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]] = [
    (b'{"id": 1}', b'{"v": 1}', None),
    (b'{"id": 2}', b'{"v": "x"}', HEADERS),
    (b"{", b'{"v": 2}', None),
    (None, b'{"v": 3}', HEADERS),
    (b'{"id": null}', b"[", None),
    (b'{"id": 3}', None, None),
    (b'{"id": 4}', b'{"v": 4, "s": "t"}', HEADERS),
    (b"", b"", None),
]


def batches(source: KafkaSource, wanted: Wanted) -> list[SourceBatch]:
    source.wanted = wanted
    start = source.initial_offsets()
    splits = source.plan_batches(start, source.latest_offsets(start, None), 1)
    return [batch for split in splits for batch in source.read_batch(split)]


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    topic = cluster.make_topic(2)
    for number, (key, value, headers) in enumerate(RECORDS * 30):
        cluster.produce(topic, [value], key=key, headers=headers, partition=number // 3 % 2)
    return topic


def test_both_readers_tell_the_same_to_the_last_byte(
    cluster: Cluster, topic: str, kafka_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = cluster.kafka_options(topic, key_format="json", key_columns="id")
    quick = batches(kafka_source(options, KEYED), Wanted(whole=True))
    monkeypatch.setattr(NativeReader, "open", staticmethod(lambda *_, **__: None))
    plain = batches(kafka_source(options, KEYED), Wanted(whole=True))

    def told(found: list[SourceBatch]) -> list[tuple[object, ...]]:
        rejected = [bad for batch in found for bad in batch.rejected]
        return sorted(
            (bad.partition, bad.offset, bad.kind, bad.path, bad.of_key, bad.record and
             (bad.record.timestamp_ms, str(bad.record.key), str(bad.record.value), str(list(bad.record.headers))))
            for bad in rejected
        )  # fmt: skip

    assert told(quick) == told(plain)
    assert len(told(quick)) == 6 * 30
    for found in (quick, plain):
        good = sum((Counter(batch.good) for batch in found), Counter())
        assert good.total() == sum(batch.records.num_rows for batch in found) == 2 * 30


@pytest.mark.parametrize("fast", [True, False])
def test_good_records_between_bad_ones_are_counted_where_they_are(
    cluster: Cluster, topic: str, kafka_source: MakeSource, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    if not fast:
        monkeypatch.setattr(NativeReader, "open", staticmethod(lambda *_, **__: None))
    options = cluster.kafka_options(topic, key_format="json", key_columns="id", include_metadata="true")
    for batch in batches(kafka_source(options, KEYED), Wanted()):
        places = list(
            zip(batch.records["_partition"].to_pylist(), batch.records["_offset"].to_pylist(), strict=True)
        )
        for bad in batch.rejected:
            before = [offset for number, offset in places if number == bad.partition and offset < bad.offset]
            assert bad.before == len(before)


def test_beyond_what_is_wanted_records_are_only_counted_and_placed(
    cluster: Cluster, topic: str, kafka_source: MakeSource
) -> None:
    if native() is None:
        pytest.skip("without the native reader each is told")
    options = cluster.kafka_options(topic, key_format="json", key_columns="id")
    every = {
        (bad.partition, bad.offset): bad.kind
        for batch in batches(kafka_source(options, KEYED), Wanted())
        for bad in batch.rejected
    }
    for most in (0, 3):
        found = batches(kafka_source(options, KEYED), Wanted(most=lambda: most))  # noqa: B023
        assert all(len(batch.rejected) <= most for batch in found)
        assert all(bad.record is None for batch in found for bad in batch.rejected)
        kinds = sum((Counter(batch.counted) for batch in found), Counter())
        kinds += Counter(bad.kind for batch in found for bad in batch.rejected)
        assert kinds == Counter(every.values())
        stretches = [stretch for batch in found for stretch in batch.stretches]
        assert sum(stretch.bad for stretch in stretches) == len(every) - sum(len(b.rejected) for b in found)
        told = {(bad.partition, bad.offset) for batch in found for bad in batch.rejected}
        for number, offset in every.keys() - told:
            assert any(s.partition == number and s.start <= offset < s.end for s in stretches)
        assert sum(batch.read for batch in found) == len(RECORDS) * 30


def test_a_batch_is_full_of_good_records_however_many_bad_ones_are_between(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    if native() is None:
        pytest.skip("without the native reader a batch is what was polled")
    mixed, bad = cluster.make_topic(1), cluster.make_topic(1)
    cluster.produce(mixed, [b'{"v": 1}', b'{"v": "x"}'] * 30)
    cluster.produce(bad, [b"{"] * 50)
    values = pa.schema([pa.field("v", types.BIGINT)])
    rows = [
        batch.records.num_rows
        for batch in batches(
            kafka_source(cluster.kafka_options(mixed, max_poll_records="20"), values), Wanted()
        )
    ]
    assert rows == [20, 10]
    found = batches(kafka_source(cluster.kafka_options(bad, max_poll_records="20"), values), Wanted())
    assert [len(batch.rejected) for batch in found] == [20, 20, 10]
