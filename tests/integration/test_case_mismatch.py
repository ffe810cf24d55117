"""A column that differs from the records' field only in case: said at CREATE, counted while it is read."""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pytest
from conftest import MakeSource
from sessions import caught_up, create_source, name, notes, rows
from support import Cluster

from forebay import column_types as types
from forebay.errors import UnreachableError
from forebay.kafka.connector import KafkaSource
from forebay.kafka.native_reader import NativeReader
from forebay.runtime.session import Session

RECORDS = [json.dumps({"userid": number, "city": "x"}) for number in range(8)]
RIGHT = [json.dumps({"userId": number, "city": "x"}) for number in range(4)]


def test_a_column_that_differs_from_a_field_only_in_case_is_said_at_create_and_counted(
    db: Session, cluster: Cluster
) -> None:
    topic, source, view = cluster.make_topic(2), name("src"), name("view")
    cluster.produce(topic, RECORDS + RIGHT)
    statement = create_source(cluster, source, topic, "userId BIGINT, city STRING")
    (created,) = db.execute(statement)
    (note,) = created.notes
    assert "column 'userId' is NULL in 8 of 12 sampled records: they have a field 'userid'" in note
    assert "declare the column as 'userid'" in note
    (again,) = db.execute(statement)
    assert not again.notes  # nothing was created, and nothing is looked at

    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT userId, city FROM {source}")
    caught_up(db)
    assert len(rows(db, f"SELECT * FROM {view} WHERE userId IS NULL")) == 8
    (status,) = [each for each in db.sources() if each.name == source]
    assert status.case_mismatches == 8
    shown = {row["name"]: row["case_mismatches"] for row in db.sql("SHOW SOURCES").arrow().to_pylist()}
    assert shown[source] == 8
    described = notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
    assert any(line.startswith("case_mismatches: 8 ") for line in described)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in db.collector().collect()
        for sample in family.samples
    }
    assert samples["forebay_source_case_mismatches_total", source] == 8


def test_the_remedy_of_the_note_works(db: Session, cluster: Cluster) -> None:
    topic, source, view = cluster.make_topic(1), name("src"), name("view")
    cluster.produce(topic, RECORDS)
    (created,) = db.execute(create_source(cluster, source, topic, "userid BIGINT, city STRING"))
    assert not created.notes
    db.execute(
        f"CREATE MATERIALIZED VIEW {view} AS SELECT userId, count(*) AS n FROM {source} GROUP BY userId"
    )
    caught_up(db)
    assert sorted(rows(db, f"SELECT userId, n FROM {view}")) == [(number, 1) for number in range(8)]
    (status,) = [each for each in db.sources() if each.name == source]
    assert status.case_mismatches == 0
    assert not [line for line in notes(db, f"DESCRIBE EXTENDED SOURCE {source}") if "case_mismatches" in line]


def test_an_empty_topic_says_nothing(db: Session, cluster: Cluster) -> None:
    (created,) = db.execute(create_source(cluster, name("src"), cluster.make_topic(3), "userId BIGINT"))
    assert not created.notes


def test_a_sample_that_cannot_be_read_costs_the_note_and_not_the_statement(
    db: Session, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object) -> list[bytes | None]:
        raise UnreachableError("the broker went away after it was asked for its topics")

    monkeypatch.setattr(KafkaSource, "_newest_values", away)
    with caplog.at_level(logging.INFO, "forebay.kafka"):
        (created,) = db.execute(create_source(cluster, name("src"), cluster.make_topic(1), "userId BIGINT"))
    assert created.done.endswith("created")
    assert not created.notes
    assert "went away" in caplog.text


KEYED = pa.schema(
    [pa.field("Id", types.BIGINT), pa.field("userId", types.BIGINT), pa.field("city", types.STRING)]
)


@pytest.mark.parametrize("fast", [True, False], ids=["native", "plain"])
def test_both_readers_count_a_record_once_and_only_if_it_is_taken(
    cluster: Cluster, kafka_source: MakeSource, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    if not fast:
        monkeypatch.setattr(NativeReader, "open", staticmethod(lambda *_, **__: None))
    topic = cluster.make_topic(1)
    for key, value in (
        (b'{"Id": 1}', b'{"userId": 1}'),
        (b'{"id": 1}', b'{"userId": 1}'),  # by its key
        (b'{"Id": 1}', b'{"userid": 1}'),  # by its value
        (b'{"id": 1}', b'{"userid": 1}'),  # by both, and once
        (b'{"id": 1}', b'{"userId": "x"}'),  # the value is refused
        (b"{", b'{"userid": 1}'),  # the key is refused
        (None, b'{"userId": 1}'),
        (None, b'{"userid": 1}'),
    ):
        cluster.produce(topic, [value], key=key)
    options = cluster.kafka_options(topic, key_format="json", key_columns="Id")
    source = kafka_source(options, KEYED)
    start = source.initial_offsets()
    splits = source.plan_batches(start, source.latest_offsets(start, None), 1)
    batches = [batch for split in splits for batch in source.read_batch(split)]
    assert sum(batch.records.num_rows for batch in batches) == 6
    assert sum(batch.case_mismatches for batch in batches) == 4
