"""Sources whose schemas are in a registry: Confluent's own serializers, a real Kafka, a real Apicurio."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import inside
import pyarrow as pa
import pytest
import sessions
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from pools import pool_on, run_until
from support import Cluster, Stack, kafka_source, read, registry_beside
from waiting import eventually

from forebay import column_types as types
from forebay.devstack import DevStack
from forebay.errors import (
    ConnectorError,
    NoColumnsError,
    OptionValueError,
    UnreachableError,
    UnsupportedSqlError,
)
from forebay.formats.protobuf_files import add_files
from forebay.formats.protobuf_schema import registered_files
from forebay.pool import Record

FIELDS: list[Any] = [{"name": "id", "type": "long"}, {"name": "price", "type": "int"}]
AMOUNT = {"name": "amount", "type": "double", "aliases": ["price"]}
CURRENCY = {"name": "currency", "type": {"type": "enum", "name": "C", "symbols": ["EUR", "USD"]}}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
ORDERS = [
    {"type": "record", "name": "Order", "fields": FIELDS},
    {"type": "record", "name": "Order", "fields": [AMOUNT, FIELDS[0], CURRENCY | {"default": "EUR"}]},
    {"type": "record", "name": "Order", "fields": [FIELDS[0], AMOUNT, NOTE, CURRENCY | {"default": "EUR"}]},
]
VALUES = [
    {"id": 1, "price": 10},
    {"id": 2, "amount": 20.5, "currency": "USD"},
    {"id": 3, "amount": 30.5, "currency": "EUR", "note": "n"},
]
COLUMNS = pa.schema(
    [
        pa.field("id", types.BIGINT, False),
        pa.field("amount", types.DOUBLE, False),
        pa.field("currency", types.STRING),
        pa.field("note", types.STRING),
    ]
)
ROWS = [
    {"id": 1, "amount": 10.0, "currency": "EUR", "note": None},
    {"id": 2, "amount": 20.5, "currency": "USD", "note": None},
    {"id": 3, "amount": 30.5, "currency": "EUR", "note": "n"},
]
OBJECT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "currency": {"type": "string"}},
}
DDL = "id BIGINT NOT NULL, amount DOUBLE NOT NULL, currency STRING, note STRING"


@pytest.fixture(autouse=True)
def nothing_is_for_python_alone(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Every format behind a registry, and every key, is one that the native reader knows."""
    inside.forget_what_was_said()
    yield
    assert [found.message for found in caplog.records if "native reader is left out" in found.message] == []


_clients: dict[str, SchemaRegistryClient] = {}


@pytest.fixture(scope="module", autouse=True)
def closed_clients() -> Iterator[None]:
    yield
    while _clients:
        _clients.popitem()[1].close()


def client(stack: Stack) -> SchemaRegistryClient:
    url = str(stack.schema_registry_url)
    if url not in _clients:
        _clients[url] = SchemaRegistryClient({"url": url})
    return _clients[url]


def avro(stack: Stack, topic: str, version: int, value: dict[str, Any]) -> bytes:
    serializer = AvroSerializer(client(stack), json.dumps(ORDERS[version]))
    found = serializer(value, SerializationContext(topic, MessageField.VALUE))
    assert found is not None
    return found


def orders(stack: Stack, topic: str, rounds: int = 1) -> list[bytes]:
    """Each of the three schemas in turn, registered in their order."""
    each = [avro(stack, topic, version, VALUES[version]) for version in range(3)]
    assert len({value[:5] for value in each}) == 3
    return each * rounds


def options(kafka: Cluster, topic: str, **more: str) -> dict[str, str]:
    url = str(kafka.stack.schema_registry_url)
    given = kafka.kafka_options(topic, format="avro")
    return given | {"schema.registry.url": url, "connect.timeout.ms": "2000"} | more


def everything(given: dict[str, str], schema: pa.Schema) -> tuple[list[Any], list[Any]]:
    source = kafka_source(given, schema)
    source.open()
    found = read(source, source.initial_offsets(), source.end_offsets())
    source.close()
    return found


@pytest.mark.usefixtures("either_decoder")
def test_three_schema_ids_in_one_topic_and_one_batch(stack: Stack, kafka: Cluster) -> None:
    topic = kafka.make_topic(1)
    kafka.produce(topic, orders(stack, topic, rounds=50))
    rows, rejected = everything(options(kafka, topic), COLUMNS)
    assert rejected == []
    assert rows == ROWS * 50


def test_a_pool_is_given_what_a_source_reads(stack: Stack, kafka: Cluster) -> None:
    topic = kafka.make_topic(1)
    kafka.produce(topic, orders(stack, topic))
    seen: list[Any] = []

    async def handle(record: Record) -> None:
        seen.append(record.value)

    pool = pool_on(
        kafka, topic, order="partition", format="avro", schema_registry_url=str(stack.schema_registry_url)
    )
    asyncio.run(run_until(pool, handle, lambda: len(seen) == 3))
    assert seen == ROWS


def message_type(text: str) -> Any:
    """A message class of its own pool, as generated code has it."""
    pool = add_files(registered_files(text, {}))
    return message_factory.GetMessageClass(pool[-1].message_types_by_name["Order"])


@pytest.mark.usefixtures("either_decoder")
def test_protobuf_of_the_confluent_serializer_with_two_schema_ids(stack: Stack, kafka: Cluster) -> None:
    topic = kafka.make_topic(1)
    context = SerializationContext(topic, MessageField.VALUE)
    body = "message Note { string text = 1; } message Order { int64 id = 1; double amount = 2; %s }"
    old, new = (message_type(f'syntax = "proto3"; {body % more}') for more in ("", "string currency = 3;"))
    values = []
    for kind, given in [
        (old, {"id": 1, "amount": 10.0}),
        (new, {"id": 2, "amount": 20.5, "currency": "USD"}),
    ]:
        serializer = ProtobufSerializer(kind, client(stack), {"use.deprecated.format": False})
        values.append(serializer(kind(**given), context))
    kafka.produce(topic, [values[0], values[1], b"\x00\x7f\xff\xff\xff\x00", values[0]])
    schema = pa.schema([*list(COLUMNS)[:2], pa.field("currency", types.STRING)])
    rows, rejected = everything(options(kafka, topic, format="protobuf"), schema)
    first = {"id": 1, "amount": 10.0, "currency": None}
    assert rows == [first, {"id": 2, "amount": 20.5, "currency": "USD"}, first]
    assert [bad.kind for bad in rejected] == ["UnknownSchemaId"]


@pytest.mark.usefixtures("either_decoder")
def test_keys_name_their_schemas_too(stack: Stack, kafka: Cluster) -> None:
    topic = kafka.make_topic(1)
    values = orders(stack, topic)
    keys = []
    for kind, value in (("int", 7), ("long", 2**40)):
        schema = {"type": "record", "name": "Key", "fields": [{"name": "region", "type": kind}]}
        made = AvroSerializer(client(stack), json.dumps(schema))
        keys.append(made({"region": value}, SerializationContext(topic, MessageField.KEY)))
    unknown = b"\x00\x7f\xff\xff\xff\x02"
    for key, value in zip([*keys, unknown, None], [*values, values[0]], strict=True):
        kafka.produce(topic, [value], key=key, partition=0)
    given = {"key.format": "avro", "key.columns": "region"}
    schema = pa.schema([*list(COLUMNS)[:2], pa.field("region", types.BIGINT)])
    rows, rejected = everything(options(kafka, topic, **given), schema)
    assert [(row["id"], row["region"]) for row in rows] == [(1, 7), (2, 2**40), (1, None)]
    assert [(bad.kind, bad.offset) for bad in rejected] == [("UnknownSchemaId", 2)]
    assert rejected[0].message.startswith("key")


@pytest.mark.usefixtures("either_decoder")
def test_what_is_wrong_with_a_record_costs_that_record_and_has_a_kind(stack: Stack, kafka: Cluster) -> None:
    topic = kafka.make_topic(1)
    good = orders(stack, topic)
    other = AvroSerializer(
        client(stack),
        json.dumps({"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "double"}]}),
        conf={"subject.name.strategy": lambda _, __: f"{topic}-other"},
    )
    unfit = other({"amount": 1.0}, SerializationContext(topic, MessageField.VALUE))
    text = JSONSerializer(json.dumps(OBJECT), client(stack))
    context = SerializationContext(f"{topic}-json", MessageField.VALUE)
    foreign = text({"id": 1}, context)
    values = [
        good[0],
        b'{"id": 1}',  # no frame
        b"\x00\x00",
        None,
        b"",
        good[1] + b"\x00",
        good[2][:-1],
        b"\x00\x7f\xff\xff\xff" + good[0][5:],
        foreign,
        unfit,
        good[2],
    ]
    kafka.produce(topic, values)
    rows, rejected = everything(options(kafka, topic), COLUMNS)
    assert rows == [ROWS[0], ROWS[2]]
    assert [record.kind for record in rejected] == ["MalformedPayload"] * 6 + [
        "UnknownSchemaId",
        "SchemaMismatch",
        "SchemaMismatch",
    ]
    assert "the first byte is 123" in rejected[0].message
    assert f"schema id {0x7FFFFFFF} is not known" in rejected[6].message
    assert str(stack.schema_registry_url) in rejected[6].message
    assert "of type JSON" in rejected[7].message
    assert "column id is NOT NULL" in rejected[8].message


def test_the_reader_is_the_schema_that_the_statement_gives(
    stack: Stack, kafka: Cluster, tmp_path: Path
) -> None:
    topic = kafka.make_topic(1)
    kafka.produce(topic, orders(stack, topic))
    reader = {
        "type": "record",
        "name": "Mine",
        "fields": [
            FIELDS[0],
            {"name": "cost", "type": "double", "aliases": ["amount", "price"]},
            {"name": "by", "type": "string", "default": "nobody"},
        ],
    }
    file = tmp_path / "mine.avsc"
    file.write_text(json.dumps(reader))
    schema = pa.schema([pa.field(n, t) for n, t in [("cost", types.DOUBLE), ("by", types.STRING)]])
    for given in ({"avro.schema": json.dumps(reader)}, {"avro.schema.file": str(file)}):
        rows, rejected = everything(options(kafka, topic, **given), schema)
        assert rejected == []
        assert rows == [{"cost": cost, "by": "nobody"} for cost in (10.0, 20.5, 30.5)]
    wrong = pa.schema([pa.field("costs", types.DOUBLE)])
    with pytest.raises(UnsupportedSqlError, match="costs is not a field of the reader's") as caught:
        everything(options(kafka, topic, **{"avro.schema.file": str(file)}), wrong)
    assert "did you mean cost?" in caught.value.remedy


@pytest.mark.parametrize("strategy", ["record", "topic-record"])
def test_subjects_by_record_name(stack: Stack, kafka: Cluster, strategy: str) -> None:
    topic = kafka.make_topic(1)
    name = f"shop.Order{strategy.replace('-', '')}"
    subject = name if strategy == "record" else f"{topic}-{name}"
    for version in range(3):
        serializer = AvroSerializer(
            client(stack),
            json.dumps(ORDERS[version] | {"name": name}),
            conf={"subject.name.strategy": lambda _, __: subject},
        )
        kafka.produce(topic, [serializer(VALUES[version], SerializationContext(topic, MessageField.VALUE))])
    named = {"schema.registry.subject.name.strategy": strategy, "schema.registry.record.name": name}
    assert everything(options(kafka, topic, **named), COLUMNS) == (ROWS, [])
    # Without the name there is no newest schema to take aliases and defaults from: the columns are enough.
    del named["schema.registry.record.name"]
    columns = pa.schema([pa.field("id", types.BIGINT), pa.field("amount", types.DOUBLE)])
    rows, rejected = everything(options(kafka, topic, **named), columns)
    assert rejected == []
    assert [row["amount"] for row in rows] == [None, 20.5, 30.5]


def test_json_behind_the_frame(stack: Stack, kafka: Cluster) -> None:
    topic = kafka.make_topic(1)
    serializer = JSONSerializer(json.dumps(OBJECT), client(stack))
    good = serializer({"id": 1, "currency": "EUR"}, SerializationContext(topic, MessageField.VALUE))
    assert good is not None
    kafka.produce(topic, [good, good[5:], good[:5], good[:5] + b"[1]", b"\x00\x7f\x00\x00\x00{}", good])
    columns = pa.schema([pa.field("id", types.BIGINT, False), pa.field("currency", types.STRING)])
    rows, rejected = everything(options(kafka, topic, format="json"), columns)
    assert rows == [{"id": 1, "currency": "EUR"}] * 2
    kinds = ["MalformedPayload", "MalformedPayload", "SchemaMismatch", "UnknownSchemaId"]
    assert [record.kind for record in rejected] == kinds
    assert "array" in rejected[2].message


def test_a_source_is_checked_against_its_registry_when_it_is_created(stack: Stack, kafka: Cluster) -> None:
    topic = kafka.make_topic(1)
    kafka.produce(topic, orders(stack, topic))

    def refusal(kind: type[Exception], schema: pa.Schema = COLUMNS, **more: str) -> str:
        with pytest.raises(kind) as caught:
            everything(options(kafka, topic, **more), schema)
        return str(caught.value)

    url = str(stack.schema_registry_url)
    text = pa.schema([pa.field("amount", types.STRING)])
    said = refusal(UnsupportedSqlError, text)
    assert "the newest schema of the subject (id " in said
    assert "column amount is declared STRING" in said
    missing = pa.schema([pa.field("missing", types.BIGINT, False)])
    assert "column missing is NOT NULL" in refusal(UnsupportedSqlError, missing)
    away = {"schema.registry.url": "http://127.0.0.1:1", "connect.timeout.ms": "300"}
    said = refusal(UnreachableError, **away)
    assert "cannot reach the schema registry at http://127.0.0.1:1" in said
    said = refusal(ConnectorError, **{"schema.registry.url": url.replace("/apis/ccompat/v7", "")})
    assert "/apis/ccompat/v7" in said
    assert "is not an address" in refusal(OptionValueError, **{"schema.registry.url": "localhost:8081"})
    said = refusal(OptionValueError, **{"schema.registry.ssl.ca.location": "/no/such/ca.pem"})
    assert "'schema.registry.ssl.ca.location' cannot be used: there is no such file" in said
    said = refusal(UnsupportedSqlError, format="csv")
    assert "format 'csv' does not go with a schema registry" in said


def test_a_schema_that_contains_itself_is_read_over_where_no_column_needs_it(
    stack: Stack, kafka: Cluster
) -> None:
    topic = kafka.make_topic(1)
    child = {"name": "next", "type": ["null", "Node"], "default": None}
    node = {"type": "record", "name": "Node", "fields": [child, {"name": "id", "type": "long"}]}
    made = client(stack).register_schema(f"{topic}-value", Schema(json.dumps(node), "AVRO"))
    frame = b"\0" + made.to_bytes(4, "big")
    # Nested three times, not at all, and a record that ends inside of its second self.
    kafka.produce(topic, [frame + b"\2\2\2\0\2\4\6\x0a", frame + b"\0\x0e", frame + b"\2\2"], partition=0)
    rows, rejected = everything(options(kafka, topic), pa.schema([pa.field("id", types.BIGINT)]))
    assert rows == [{"id": 5}, {"id": 7}]
    assert [bad.kind for bad in rejected] == ["MalformedPayload"]
    with pytest.raises(UnsupportedSqlError, match=r"the record Node contains itself") as refused:
        kafka_source(options(kafka, topic), pa.schema([])).discover_schema()
    assert "FORMAT RAW" in refused.value.remedy


def test_sql_end_to_end_and_known_schemas_go_on_while_the_registry_is_away(
    broker: DevStack, tmp_path: Path
) -> None:
    with registry_beside(broker, tmp_path / "registry") as own:
        kafka, registry = Cluster(own), own.registry
        topic = kafka.make_topic(1)
        kafka.produce(topic, orders(own, topic))
        with sessions.connect(tmp_path / "home") as db:
            wrong = f"""CREATE SOURCE orders (id BIGINT NOT NULL, amount BIGINT)
                FROM KAFKA (brokers = '{kafka.bootstrap_servers}', topic = '{topic}')
                FORMAT AVRO USING SCHEMA REGISTRY (url = '{own.schema_registry_url}')"""
            with pytest.raises(UnsupportedSqlError, match="column amount is declared BIGINT") as caught:
                db.execute(wrong)
            assert caught.value.position is not None
            leaky = wrong.replace("http://", "http://me:hush@")
            with pytest.raises(OptionValueError, match="holds a user or a password") as refused:
                db.execute(leaky)
            assert "(line 3, column" in str(refused.value)
            assert "hush" not in str(refused.value)
            db.execute(
                f"""CREATE SOURCE orders ({DDL})
                FROM KAFKA (brokers = '{kafka.bootstrap_servers}', topic = '{topic}',
                            connect_timeout_ms = 5000)
                FORMAT AVRO USING SCHEMA REGISTRY (url = '{own.schema_registry_url}');
                CREATE MATERIALIZED VIEW v AS SELECT id, amount, currency, note FROM orders"""
            )
            sessions.caught_up(db)
            assert sorted(sessions.rows(db, "SELECT * FROM v")) == [
                (1, 10.0, "EUR", None),
                (2, 20.5, "USD", None),
                (3, 30.5, "EUR", "n"),
            ]
            more = orders(own, topic)
            new = {"type": "record", "name": "Order", "fields": [*ORDERS[2]["fields"], NOTE | {"name": "x"}]}
            # Under another subject: the source asks for the newest of its own, and may do so before the stop.
            elsewhere = SerializationContext(f"{topic}-elsewhere", MessageField.VALUE)
            fourth = AvroSerializer(client(own), json.dumps(new))({**VALUES[2], "id": 4}, elsewhere)
            registry.stop()
            kafka.produce(topic, more)
            sessions.caught_up(db)
            assert sessions.rows(db, "SELECT count(*) FROM v") == [(6,)]
            kafka.produce(topic, [fourth, *more])
            sessions.caught_up(db)
            assert sessions.rows(db, "SELECT count(*) FROM v") == [(9,)]
            told = sessions.notes(db, "DESCRIBE EXTENDED SOURCE orders")
            assert any("UnknownSchemaId" in line for line in told)
            registry.start()
            kafka.produce(topic, [fourth])

            def arrived() -> bool:
                kafka.produce(topic, [fourth])
                sessions.caught_up(db)
                return bool(sessions.rows(db, "SELECT 1 FROM v WHERE id = 4"))

            # An id that could not be had is asked for again after a while.
            eventually(arrived, "the new schema is read", timeout=60)


def test_columns_that_nobody_declared_are_found_kept_and_told(
    stack: Stack, kafka: Cluster, tmp_path: Path
) -> None:
    framed, plain, empty = kafka.make_topic(1), kafka.make_topic(2), kafka.make_topic(1)
    kafka.produce(framed, orders(stack, framed))
    kafka.produce(plain, [b'{"id": 1, "at": "2026-01-01T00:00:00Z", "x": 1}', b'{"id": 2, "x": "a"}', b"{"])
    registered = (
        f"CREATE SOURCE orders FROM KAFKA (brokers = '{stack.bootstrap_servers}', topic = '{framed}', "
        f"startup_mode = 'earliest') FORMAT AVRO USING SCHEMA REGISTRY (url = '{stack.schema_registry_url}')"
    )
    sampled = (
        f"CREATE SOURCE events FROM KAFKA (brokers = '{stack.bootstrap_servers}', topic = '{plain}', "
        "startup_mode = 'earliest') FORMAT JSON"
    )
    with sessions.connect(tmp_path / "home") as db:
        told = sessions.notes(db, registered)
        assert told[0].endswith(
            "id BIGINT NOT NULL, amount DOUBLE NOT NULL, note STRING, currency STRING NOT NULL"
        )
        assert f"{framed}-value, version 3" in told[0]
        told = sessions.notes(db, sampled)
        assert told[0] == "columns from a sample of 2 records: id BIGINT, at TIMESTAMP"
        assert told[1] == "left out: x (integer and text)"
        with pytest.raises(NoColumnsError, match="there are no records"):
            db.execute(sampled.replace("events", "nothing").replace(plain, empty))
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM orders")
        kafka.produce(plain, [b'{"id": 3, "new": true}'])  # what is kept is not found anew
        assert sessions.notes(db, sampled) == []
        shown = sessions.rows(db, "SHOW CREATE SOURCE events")[0][-1]
        assert "id BIGINT" in shown
        assert "new" not in shown
        sessions.caught_up(db)
        assert sorted(sessions.rows(db, "SELECT id, amount, currency, note FROM v")) == [
            tuple(row.values()) for row in ROWS
        ]
