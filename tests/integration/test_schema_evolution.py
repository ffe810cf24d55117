"""schema.evolution: records whose schema changes under a running view, on a real Kafka and a real registry."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sessions
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from support import Cluster, kafka_source, read
from tests.protobuf_support import columns

import forebay
from forebay.errors import NewFieldsError, OptionConflictError, SchemaChangedError
from forebay.formats.protobuf_files import add_files
from forebay.formats.protobuf_schema import registered_files
from forebay.kafka.connector import KafkaSource

ID = {"name": "id", "type": "long"}
AMOUNT = {"name": "amount", "type": "double"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
PLACE = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
WIDER = {**PLACE, "fields": [*PLACE["fields"], {"name": "zip", "type": "string", "default": ""}]}


class Topic:
    """A topic whose records are written with one schema after another."""

    def __init__(self, kafka: Cluster, registry: SchemaRegistryClient, partitions: int = 2) -> None:
        self.kafka = kafka
        self.registry = registry
        self.name = kafka.make_topic(partitions)

    def avro(self, fields: list[Any], rows: list[dict[str, Any]]) -> None:
        schema = {"type": "record", "name": "Order", "fields": fields}
        self._write(AvroSerializer(self.registry, json.dumps(schema)), rows)

    def json(self, properties: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        schema = {"title": "Order", "type": "object", "properties": properties}
        self._write(JSONSerializer(json.dumps(schema), self.registry), rows)

    def protobuf(self, text: str, rows: list[dict[str, Any]]) -> None:
        file = add_files(registered_files(text, {}))[-1]
        kind = message_factory.GetMessageClass(file.message_types_by_name["Order"])
        serializer = ProtobufSerializer(kind, self.registry, {"use.deprecated.format": False})
        self._write(lambda row, context: serializer(kind(**row), context), rows)

    def _write(self, serializer: Any, rows: list[dict[str, Any]]) -> None:
        context = SerializationContext(self.name, MessageField.VALUE)
        self.kafka.produce(self.name, [serializer(row, context) for row in rows])

    def takes_anything(self) -> None:
        """The registry then has new schemas that are not compatible with the old ones."""
        self.registry.set_compatibility(f"{self.name}-value", "NONE")

    def connector(self, policy: str, schema: pa.Schema, **more: str) -> KafkaSource:
        """As it is after CREATE SOURCE."""
        url = str(self.kafka.stack.schema_registry_url)
        given = self.kafka.kafka_options(self.name, format="avro") | {"schema.registry.url": url} | more
        source = kafka_source(given | {"schema.evolution": policy}, schema)
        source.redefine(replace(source.config, options={**source.config.options, **source.pinned()}))
        source.open()
        return source

    def source(self, policy: str, columns: str = "", form: str = "AVRO") -> str:
        evolution = f", schema_evolution = '{policy}'" if policy else ""
        return (
            f"CREATE SOURCE orders {columns} FROM KAFKA (brokers = '{self.kafka.bootstrap_servers}', "
            f"topic = '{self.name}', startup_mode = 'earliest'{evolution}) FORMAT {form} "
            f"USING SCHEMA REGISTRY (url = '{self.kafka.stack.schema_registry_url}')"
        )


@pytest.fixture
def topic(kafka: Cluster, registry: SchemaRegistryClient) -> Topic:
    return Topic(kafka, registry)


def numbered(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": n, "amount": n / 2, **more} for n in range(first, first + count)]


def caught_up(db: forebay.Session) -> None:
    """A change of the schema costs a query its batch and a start, so there is more patience than elsewhere."""
    db.wait(until_caught_up=True, timeout=180)


def names(db: forebay.Session, view: str) -> list[str]:
    return [str(name) for name in db.sql(f"SELECT * FROM {view}").arrow().column_names]


def test_a_new_field_becomes_a_column_while_the_views_run(topic: Topic, tmp_path: Path) -> None:
    topic.avro([ID, AMOUNT], numbered(0, 100))
    statement = topic.source("evolve")
    with sessions.connect(tmp_path / "home") as db:
        db.execute(statement)
        db.execute("CREATE MATERIALIZED VIEW everything AS SELECT * FROM orders")
        db.execute("CREATE MATERIALIZED VIEW chosen AS SELECT id, amount FROM orders")
        db.execute("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(amount) AS s FROM orders")
        caught_up(db)
        assert names(db, "everything") == ["id", "amount"]
        topic.avro([ID, AMOUNT, NOTE], numbered(100, 100, note="new"))
        topic.avro([ID, AMOUNT], numbered(200, 50))  # not every producer is updated at once
        caught_up(db)
        assert names(db, "everything") == ["id", "amount", "note"]
        assert names(db, "chosen") == ["id", "amount"]
        for view in ("everything", "chosen"):
            found = sessions.rows(db, f"SELECT id, amount FROM {view} ORDER BY id")
            assert found == [(n, n / 2) for n in range(250)]
        noted = sessions.rows(db, "SELECT id FROM everything WHERE note = 'new' ORDER BY id")
        assert noted == [(n,) for n in range(100, 200)]
        assert sessions.rows(db, "SELECT n, s FROM total") == [(250, sum(n / 2 for n in range(250)))]
        assert "note STRING" in sessions.rows(db, "SHOW CREATE SOURCE orders")[0][-1]
        told = db.sql("SUBSCRIBE everything").arrow()
        assert sorted(told.column("id").to_pylist()) == list(range(250))
    # What the source has become is kept, and the statement that made it still means it.
    with sessions.connect(tmp_path / "home") as db:
        db.execute(statement)
        db.execute("CREATE MATERIALIZED VIEW everything AS SELECT * FROM orders")
        topic.avro([ID, AMOUNT, NOTE], numbered(250, 10, note="later"))
        caught_up(db)
        found = sessions.rows(db, "SELECT id FROM everything WHERE note = 'later' ORDER BY id")
        assert found == [(n,) for n in range(250, 260)]
        assert sessions.rows(db, "SELECT count(*), count(DISTINCT id) FROM everything") == [(260, 260)]


def everything(source: KafkaSource) -> list[dict[str, Any]]:
    rows, rejected = read(source, source.initial_offsets(), source.end_offsets())
    assert rejected == []
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.usefixtures("either_decoder")
def test_evolve_meets_a_schema_and_reads_all_again_with_its_fields(topic: Topic) -> None:
    before = [ID, AMOUNT, {"name": "place", "type": PLACE}]
    after = [ID, {"name": "place", "type": WIDER}, NOTE, AMOUNT]
    topic.avro(before, numbered(0, 2, place={"city": "Bonn"}))
    source = topic.connector("evolve", columns("id BIGINT NOT NULL, place STRUCT<city: STRING>"))
    assert [row["id"] for row in everything(source)] == [0, 1]
    topic.avro(after, numbered(2, 2, place={"city": "Köln", "zip": "50667"}, note="n"))
    with pytest.raises(NewFieldsError) as met:
        everything(source)
    assert "place.zip (STRING): added; note (STRING): added" in met.value.message
    assert "amount" not in met.value.message  # it was there, and left out, when the source was created
    source.redefine(source.evolved(met.value.schema_id))
    assert source.full_schema() == columns(
        "id BIGINT NOT NULL, place STRUCT<city: STRING, zip: STRING>, note STRING"
    )
    old, new = {"city": "Bonn", "zip": ""}, {"city": "Köln", "zip": "50667"}
    assert everything(source) == [
        {"id": 0, "place": old, "note": None},  # defaults are those of the schema that was taken in
        {"id": 1, "place": old, "note": None},
        {"id": 2, "place": new, "note": "n"},
        {"id": 3, "place": new, "note": "n"},
    ]
    topic.avro(before, numbered(4, 1, place={"city": "Bonn"}))  # nothing new in the old one
    assert len(everything(source)) == 5


@pytest.mark.parametrize(
    ("policy", "fields", "row", "reason"),
    [
        ("reject", [ID, AMOUNT, NOTE], {}, r"note \(null \| string\): added, with a default"),
        ("reject", [ID], {}, r"amount \(double\): removed"),
        ("evolve", [ID, {**AMOUNT, "type": "string"}], {"amount": "x"}, r"amount \(string, was double\): another type"),
        ("evolve", [ID, {**AMOUNT, "name": "price", "aliases": ["amount"]}], {"price": 1.0}, "column amount would be NULL"),
        ("evolve", [AMOUNT], {}, "column id is NOT NULL"),
        ("evolve", [ID, AMOUNT, {"name": "x", "type": ["int", PLACE]}], {"x": 1}, "the new field x cannot be a column"),
    ],
)  # fmt: skip
def test_a_schema_that_is_not_taken_stops_the_source_and_shows_the_difference(
    topic: Topic, policy: str, fields: list[Any], row: dict[str, Any], reason: str
) -> None:
    topic.avro([ID, AMOUNT], numbered(0, 3))
    topic.takes_anything()
    source = topic.connector(policy, columns("id BIGINT NOT NULL, amount DOUBLE"))
    topic.avro([ID | {"doc": "the same, in other words"}, AMOUNT], numbered(3, 1))
    assert len(everything(source)) == 4
    topic.avro(fields, [{"id": 4, "amount": 2.0, **row}])
    with pytest.raises(SchemaChangedError, match=reason) as stopped:
        everything(source)
    assert stopped.value.message.startswith("source 's': schema id ")
    assert not stopped.value.retryable


def test_ignore_is_the_default_and_leaves_new_fields_out(topic: Topic) -> None:
    topic.avro([ID], numbered(0, 1))
    source = topic.connector("ignore", columns("id BIGINT NOT NULL"))
    assert source.pinned() == {}
    topic.avro([ID, NOTE], numbered(1, 1, note="n"))
    assert everything(source) == [{"id": 0}, {"id": 1}]


def test_json_schemas_evolve_too(topic: Topic) -> None:
    first = {"id": {"type": "integer"}, "amount": {"type": "number"}}
    second = first | {"at": {"type": "string", "format": "date-time"}}
    third = first | {"amount": {"type": "string"}}
    topic.json(first, numbered(0, 1))
    topic.takes_anything()
    source = topic.connector("evolve", columns("id BIGINT, amount DOUBLE"), format="json")
    topic.json(second, numbered(1, 1, at="2026-01-01T00:00:00Z"))
    with pytest.raises(NewFieldsError, match=r"at \(TIMESTAMP\): added") as met:
        everything(source)
    source.redefine(source.evolved(met.value.schema_id))
    assert [str(row["at"]) for row in everything(source)] == ["None", "2026-01-01 00:00:00+00:00"]
    topic.json(third, [{"id": 2, "amount": "x"}])
    with pytest.raises(SchemaChangedError, match="column amount is DOUBLE, and the field is now STRING"):
        everything(source)


def test_protobuf_schemas_evolve_too(topic: Topic) -> None:
    body = 'syntax = "proto3"; message Order {{ int64 id = 1; double amount = 2; {} }}'
    topic.protobuf(body.format(""), numbered(0, 1))
    topic.takes_anything()
    source = topic.connector("evolve", columns("id BIGINT, amount DOUBLE"), format="protobuf")
    topic.protobuf(body.format("repeated string tags = 3;"), numbered(1, 1, tags=["a"]))
    with pytest.raises(NewFieldsError, match=r"tags \(ARRAY<STRING>\): added") as met:
        everything(source)
    source.redefine(source.evolved(met.value.schema_id))
    assert [row["tags"] for row in everything(source)] == [None, ["a"]]
    other = 'syntax = "proto3"; message Order { int64 id = 1; string amount = 2; }'
    topic.protobuf(other, [{"id": 2, "amount": "x"}])
    with pytest.raises(SchemaChangedError, match=r"amount \(STRING, was DOUBLE\): another type"):
        everything(source)


def test_without_a_schema_to_compare_with_there_is_no_such_source(topic: Topic) -> None:
    for policy in ("reject", "evolve"):
        with pytest.raises(OptionConflictError, match=f"the registry has none under {topic.name}-value"):
            topic.connector(policy, columns("id BIGINT"))


def test_a_view_that_is_more_than_rows_keeps_the_columns_that_it_was_created_with(
    topic: Topic, tmp_path: Path
) -> None:
    topic.avro([ID, AMOUNT], numbered(0, 10))
    with sessions.connect(tmp_path / "home") as db:
        db.execute(topic.source("evolve"))
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM orders UNION ALL SELECT id, 0.5D FROM orders")
        caught_up(db)
        topic.avro([ID, NOTE, AMOUNT], numbered(10, 10, note="new"))
        caught_up(db)
        assert names(db, "v") == ["id", "amount"]
        assert sessions.rows(db, "SELECT count(*), count(DISTINCT id) FROM v") == [(40, 20)]


def test_a_view_over_a_source_that_rejects_ends_with_the_difference(topic: Topic, tmp_path: Path) -> None:
    topic.avro([ID, AMOUNT], numbered(0, 10))
    with sessions.connect(tmp_path / "home") as db:
        db.execute(topic.source("reject"))
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM orders")
        caught_up(db)
        topic.avro([ID, AMOUNT, NOTE], numbered(10, 10, note="new"))
        with pytest.raises(SchemaChangedError, match=r"source 'orders': .* note \(null \| string\): added"):
            caught_up(db)
        assert sessions.rows(db, "SELECT count(*) FROM v") == [(10,)]
