"""`spark.readStream.format("forebay")` without a session: the same options, the same records."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import KafkaOptions
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from sessions import events
from support import Cluster

import forebay
from forebay.kafka.offsets import SMALL_BATCH
from forebay.source.datasource import ForebaySource

SCHEMA = "id BIGINT NOT NULL, k STRING, v BIGINT"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    # Spark's workers must run in this environment, as with any PySpark user: a Forebay session in the same
    # process sees to that, but this module may be the first to start Spark.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = (
        builder.config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    forebay.register(session)
    yield session
    session.stop()


def test_a_stream_reads_all_that_is_available_goes_on_and_skips_what_does_not_decode(
    spark: SparkSession, cluster: Cluster, kafka_options: KafkaOptions, tmp_path: Path
) -> None:
    topic = cluster.make_topic(2)
    options = kafka_options(topic, include_metadata="true", max_records_per_batch="10")
    del options["connector"]  # kafka, unless told otherwise
    seen: list[int] = []
    batches: list[int] = []

    def run() -> None:
        frame = spark.readStream.format("forebay").options(**options)
        query = (
            frame.schema(SCHEMA + ", _partition INT NOT NULL, _offset BIGINT NOT NULL, _timestamp TIMESTAMP")
            .load()
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        assert query.exception() is None

    def collect(frame, number: int) -> None:  # type: ignore[no-untyped-def]
        rows = frame.collect()
        assert all(row._partition == row.id % 2 for row in rows)
        seen.extend(row.id for row in rows)
        batches.append(number)

    cluster.produce(topic, [*events(range(24)), '{"id": null}', "junk"])
    run()
    assert sorted(seen) == list(range(24))
    assert len(batches) == 3
    cluster.produce(topic, events(range(24, 30)))
    run()
    assert sorted(seen) == list(range(30))
    # Plain PySpark has nobody who commits after the checkpoint, so the group is left alone.
    assert set(cluster.committed(options["group.id"], topic).values()) == {-1001}


def test_a_batch_read_is_a_table_of_all_that_is_there(
    spark: SparkSession, cluster: Cluster, kafka_options: KafkaOptions
) -> None:
    topic = cluster.make_topic(3)
    options = kafka_options(topic)
    del options["startup.mode"]
    cluster.commit(options["group.id"], topic, {0: 5, 1: 5, 2: 5})  # of no concern to a table
    frame = spark.read.format("forebay").options(**options).schema(SCHEMA).load()
    assert frame.count() == 0
    cluster.produce(topic, [*events(range(30)), "junk", '{"k": "no id"}'])
    frame = spark.read.format("forebay").options(**options).schema(SCHEMA).load()
    assert frame.rdd.getNumPartitions() == 1
    assert sorted(row.id for row in frame.collect()) == list(range(30))
    assert frame.where("k = 'a'").agg({"v": "sum"}).collect()[0][0] == sum(range(0, 30, 2))


def test_a_small_batch_is_one_task_and_a_large_one_several(
    cluster: Cluster, kafka_options: KafkaOptions
) -> None:
    topic = cluster.make_topic(4)
    cluster.produce(topic, events(range(8)))
    source = ForebaySource({**kafka_options(topic), "forebay.parallelism": "2"})
    reader = source.streamReader(StructType.fromDDL(SCHEMA))
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert len(reader.partitions(start, end)) == 1
        assert reader.partitions(start, start) == []
        far = {
            "source": "spark",
            "topics": {
                topic: {**end["topics"][topic], "partitions": {str(n): SMALL_BATCH + 1 for n in range(4)}}
            },
        }
        pieces = reader.partitions(start, far)
        assert len(pieces) == 4
        covered = sorted(
            (part.partition, part.start, part.end) for piece in pieces for part in piece.split.ranges
        )
        assert covered == [(n, 0, SMALL_BATCH + 1) for n in range(4)]
    finally:
        reader.stop()


def test_raw_needs_no_schema_and_json_takes_it_from_what_the_topic_holds(
    spark: SparkSession, cluster: Cluster, kafka_options: KafkaOptions
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, ["one", "two"])
    raw = spark.read.format("forebay").options(**kafka_options(topic, format="raw")).load()
    assert [bytes(row.value) for row in raw.collect()] == [b"one", b"two"]
    with pytest.raises(PySparkException, match="FB3010"):
        spark.read.format("forebay").options(**kafka_options(topic)).load()
    with pytest.raises(PySparkException, match="FB1002"):
        spark.read.format("forebay").options(**kafka_options(topic, format="csv")).load()
    cluster.produce(topic, ['{"n": 1, "s": "x"}'])
    found = spark.read.format("forebay").options(**kafka_options(topic)).load()
    assert [row.asDict() for row in found.collect()] == [{"n": 1, "s": "x"}]


def test_a_wrong_option_is_an_error_with_its_code(
    spark: SparkSession, cluster: Cluster, kafka_options: KafkaOptions
) -> None:
    options = kafka_options(cluster.make_topic(1)) | {"group.idd": "x"}
    with pytest.raises(PySparkException, match="FB1201"):
        spark.read.format("forebay").options(**options).schema(SCHEMA).load().collect()


def test_datagen_is_there_by_name(spark: SparkSession) -> None:
    frame = (
        spark.read.format("forebay")
        .option("connector", "datagen")
        .option("number.of.rows", "1000")
        .option("fields.n.kind", "sequence")
        .schema("n BIGINT, word STRING")
        .load()
    )
    assert frame.agg({"n": "sum"}).collect()[0][0] == sum(range(1000))
