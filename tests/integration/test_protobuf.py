"""FORMAT PROTOBUF on the real Kafka, through Spark: bytes of protobuf's own runtime, in a view and in plain Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from google.protobuf import message_factory
from google.protobuf.message import Message
from pyspark.sql import SparkSession
from sessions import SPARK, caught_up, connect, name, notes, rows
from support import Cluster, unique

import forebay
from forebay.errors import ForebayError, OptionValueError, UnsupportedSqlError
from forebay.formats.protobuf_schema import find_message, given_files
from forebay.source.datasource import ForebaySource

ITEM = """
syntax = "proto3";
package shop;

message Item {
  string sku = 1;
  double price = 2;
}
"""
ORDER = """
syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "item.proto";

enum Status { UNKNOWN = 0; PAID = 1; SENT = 2; }

message Order {
  int64 id = 1;
  Status status = 2;
  google.protobuf.Timestamp at = 3;
  repeated Item items = 4;
  map<string, string> tags = 5;
  oneof payment { string card = 6; uint64 account = 7; }
  google.protobuf.StringValue note = 8;
}
"""
COLUMNS = """id BIGINT NOT NULL, status STRING, at TIMESTAMP, items ARRAY<STRUCT<sku: STRING, price: DOUBLE>>,
    tags MAP<STRING, STRING>, card STRING, account DECIMAL(20,0), note STRING"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forebay.Session]:
    with connect(tmp_path_factory.mktemp("protobuf")) as made:
        yield made


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    (tmp_path / "item.proto").write_text(ITEM)
    (tmp_path / "order.proto").write_text(ORDER)
    return tmp_path


def order_type(schemas: Path) -> type[Message]:
    options = {"protobuf.schema.file": str(schemas / "order.proto")}
    made: type[Message] = message_factory.GetMessageClass(find_message(given_files(options), options))
    return made


def orders(schemas: Path, count: int) -> list[bytes]:
    made = order_type(schemas)
    payloads = []
    for number in range(count):
        order = made(id=number, status=number % 3)
        order.at.FromDatetime(datetime(2026, 1, 15, 10, 0, number % 60, 123_456))
        order.items.add(sku=f"sku-{number}", price=1.5)
        order.tags["k"] = str(number)
        if number % 2:
            order.account = 2**64 - 1 - number
        else:
            order.card = "visa"
        if number % 5 == 0:
            order.note.value = ""
        payloads.append(order.SerializeToString())
    return payloads


def test_messages_are_rows_and_bad_ones_are_counted_by_their_kind(
    cluster: Cluster, session: forebay.Session, schemas: Path
) -> None:
    topic, source, view = cluster.make_topic(2), name("orders"), name("paid")
    cluster.produce(topic, orders(schemas, 200))
    session.execute(f"""
        CREATE SOURCE {source} ({COLUMNS}) FROM KAFKA (
            brokers = '{cluster.bootstrap_servers}', topic = '{topic}', group_id = '{source}', startup_mode = 'earliest',
            'protobuf.schema.file' = '{schemas / "order.proto"}'
        ) FORMAT PROTOBUF;
        CREATE MATERIALIZED VIEW {view} AS SELECT * FROM {source};
    """)
    caught_up(session)
    # Workers have what was compiled at CREATE: the files may go.
    (schemas / "item.proto").unlink()
    cluster.produce(topic, [b"\x08", b"\x10\x07", b"\x0a\x01x", b""])
    caught_up(session)
    found = {
        row[0]: row[1:]
        for row in rows(session, f"SELECT * FROM {view} WHERE card IS NOT NULL OR account IS NOT NULL")
    }
    assert len(found) == 200
    at = datetime(2026, 1, 15, 10, 0, 5, 123_456, tzinfo=UTC)
    status, moment, items, tags, card, account, note = found[5]
    assert (status, items, dict(tags), card, note) == (
        "SENT",
        [{"sku": "sku-5", "price": 1.5}],
        {"k": "5"},
        None,
        "",
    )
    assert account == Decimal(2**64 - 6)
    assert moment.replace(tzinfo=moment.tzinfo or UTC) == at
    assert found[4][4:] == ("visa", None, None)
    empty = rows(session, f"SELECT * FROM {view} WHERE card IS NULL AND account IS NULL")
    assert [(row[0], row[1], row[2], list(row[3])) for row in empty] == [(0, "UNKNOWN", None, [])]
    (query,) = [query for query in session.queries() if query.view == view]
    assert (query.records, query.rejected) == (204, 3)
    told = notes(session, f"DESCRIBE EXTENDED SOURCE {source}")
    for kind in ("MalformedPayload", "TypeConversion", "SchemaMismatch"):
        assert f"rejected.{kind}: 1" in told
    shown = str(rows(session, f"SHOW CREATE SOURCE {source}"))
    assert "order.proto" in shown
    assert "descriptor" not in shown


def test_plain_spark_takes_the_same_options(
    cluster: Cluster, session: forebay.Session, schemas: Path
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, orders(schemas, 10))
    options = cluster.kafka_options(topic, format="protobuf")
    options["protobuf.schema"] = ORDER
    options["protobuf.schema.folder"] = str(schemas)
    spark = SparkSession.getActiveSession() or SparkSession.builder.config(map=SPARK).getOrCreate()
    spark.dataSource.register(ForebaySource)
    frame = spark.read.format("forebay").options(**options).schema("id BIGINT, status STRING").load()
    assert sorted(tuple(row) for row in frame.collect())[:3] == [(0, "UNKNOWN"), (1, "PAID"), (2, "SENT")]


def test_a_wrong_schema_or_column_is_refused_at_create_at_its_place(
    cluster: Cluster, session: forebay.Session, schemas: Path
) -> None:
    topic = cluster.make_topic(1)

    def create(columns: str, *options: str) -> ForebayError:
        given = ", ".join([f"brokers = '{cluster.bootstrap_servers}', topic = '{topic}'", *options])
        with pytest.raises(ForebayError) as refused:
            session.execute(
                f"CREATE SOURCE {unique('s').replace('-', '_')} ({columns})\nFROM KAFKA ({given})\nFORMAT PROTOBUF"
            )
        return refused.value

    error = create("id BIGINT", "'protobuf.schema' = 'syntax = \"proto3\";\nmessage M { Foo id = 1; }'")
    assert isinstance(error, OptionValueError)
    assert 'protobuf.schema.proto:2:13: "Foo" is not defined' in error.message
    assert error.position is not None
    assert error.position.line == 2
    error = create("id STRING", f"'protobuf.schema.file' = '{schemas / 'order.proto'}'")
    assert isinstance(error, UnsupportedSqlError)
    assert error.message == (
        "column id is declared STRING, which cannot be read from what the schema has: int64"
    )
    error = create("id BIGINT")
    assert "needs the messages' schema" in error.message
    error = create("id BIGINT", "'protobuf.schema' = 'x'", "'protobuf.descriptor' = 'y'")
    assert "exclude each other" in error.message
